"""Control by action values: Q(lambda) and SARSA(lambda)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from foretrace._network import Network
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._agent import AbstractAgent


class QLearning(AbstractAgent):
    """Learn the values of actions from one stream, and take the best one, or at times a random one.

        Q(lambda)        delta = reward + discount * max_a q(s', a) - q(s, a); an exploring action ends the trace
        SARSA(lambda)    delta = reward + discount * q(s', a') - q(s, a) with the action a' that is taken

    The action a' of SARSA is the one before the update; where the update makes another action the best, that is taken.
    At the last observation of a truncated episode it is drawn in the same way, though it is not taken.

    Args:
        network: network with one output for each action.
        epsilon: probability of a random action, or a function of the number of updates, such as an Optax schedule.
        on_policy: True for SARSA(lambda), False for Watkins's Q(lambda).
        options: those of `AbstractAgent`.

    Raises:
        TypeError, ValueError: as in `AbstractAgent`; a network with less than two outputs, an epsilon outside [0, 1].

    Source: Watkins, Learning from delayed rewards, 1989; Rummery and Niranjan, On-line Q-learning, 1994.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> agent = ft.rl.QLearning(network, rule=ft.ONLINE, epsilon=0.1)
    >>> action, state = agent.act(agent.init(), [0.0, 1.0])
    >>> state, info = agent.learn(state, 1.0, terminated=True)
    >>> int(action) in (0, 1, 2)
    True
    """

    def __init__(
        self,
        network: Network,
        *,
        epsilon: float | Callable[[Array], Array] = 0.1,
        on_policy: bool = False,
        **options: Any,
    ):
        self.epsilon: float | Callable[[Array], Array] = epsilon
        self.on_policy: bool = on_policy
        super().__init__(network, **options)
        if network.output_size < 2:
            raise ValueError(f"QLearning: the network has {network.output_size} output, expected one for each action")
        if not callable(epsilon) and not 0 <= epsilon <= 1:
            raise ValueError(f"QLearning(epsilon={epsilon}) must lie in [0, 1]")

    @property
    def action_count(self) -> int:
        """Number of actions."""
        return self.network.output_size

    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "2"]:
        """Return the random action, and whether it is taken."""
        which, whether = jax.random.split(key)
        epsilon = self.epsilon(step) if callable(self.epsilon) else self.epsilon
        action = jax.random.randint(which, (), 0, self.network.output_size)
        return jnp.stack([action.astype(self._dtype), jax.random.bernoulli(whether, epsilon).astype(self._dtype)])

    def _action(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Int[Array, ""]:
        return jnp.where(noise[1] > 0, noise[0].astype(jnp.int32), jnp.argmax(output).astype(jnp.int32))

    def _objective(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Float[Array, ""]:
        return self._value(output, noise)

    def _value(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Float[Array, ""]:
        return output[self._action(output, noise)]

    def _next_value(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Float[Array, ""]:
        return self._value(output, noise) if self.on_policy else output.max()

    def _cuts_trace(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Bool[Array, ""]:
        if self.on_policy:
            return jnp.array(False)
        return output[self._action(output, noise)] < output.max()
