"""Control by action values: Q(lambda) and SARSA(lambda)."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._checks import check_ranges
from foretrace.rl._method import Method


@dataclasses.dataclass(frozen=True)
class QLearning(Method):
    """Learn the values of actions; take the best action or, sometimes, a random action.

        Q(lambda)        delta = reward + discount * max_a q(s', a) - q(s, a)
        SARSA(lambda)    delta = reward + discount * q(s', a') - q(s, a) with the next action a'

    In Q(lambda), an exploring action ends the trace. In SARSA(lambda), the action a' is chosen
    before the update. If the update makes another action the best one, the agent takes that action.
    At the last observation of a truncated episode, a' is sampled in the same way, although it is
    not taken. The network has one output for each action.

    Args:
        epsilon: probability of a random action, or a function from the number of updates to this
            probability, such as an Optax schedule.
        on_policy: True for SARSA(lambda), False for Watkins's Q(lambda).

    Raises:
        TypeError: epsilon is neither a number nor a function.
        ValueError: epsilon is outside [0, 1].

    Source: Watkins, Learning from delayed rewards, 1989; Rummery and Niranjan, On-line Q-learning,
        1994.

    >>> import foretrace as ft, jax
    >>> cell = ft.LRU.factory(state_size=4)
    >>> network = ft.Network(2, 3, model_size=4, depth=1, cell=cell, key=jax.random.key(0))
    >>> agent = ft.rl.Agent(network, ft.rl.QLearning(epsilon=0.1), rule=ft.ONLINE)
    >>> start = ft.rl.Transition([0.0, 1.0], first=True)
    >>> action, state, _ = agent.step(agent.init(), start)
    >>> end = ft.rl.Transition([0.0, 1.0], reward=1.0, terminated=True)
    >>> action, state, info = agent.step(state, end)
    >>> int(action) in (0, 1, 2)
    True
    """

    epsilon: float | Callable[[Array], Array] = 0.1
    on_policy: bool = False

    def __post_init__(self) -> None:
        check_ranges(self)

    def check(self, outputs: int) -> None:
        """Raise a ValueError if a network with this number of outputs does not fit."""
        if outputs < 2:
            raise ValueError(
                f"QLearning: the network has {outputs} output, expected one for each action"
            )

    def action_count(self, outputs: int) -> int:
        """Return the number of actions."""
        return outputs

    def noise(
        self, key: PRNGKeyArray, step: Array, outputs: int, dtype: jnp.dtype
    ) -> Float[Array, "2"]:
        """Sample a random action, and whether it is taken."""
        which, whether = jax.random.split(key)
        epsilon = self.epsilon(step) if callable(self.epsilon) else self.epsilon
        action = jax.random.randint(which, (), 0, outputs).astype(dtype)
        return jnp.stack([action, jax.random.bernoulli(whether, epsilon).astype(dtype)])

    def action(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Int[Array, ""]:
        """Return the random action if it is taken, otherwise the best action."""
        best = jnp.argmax(output).astype(jnp.int32)
        return jnp.where(noise[1] > 0, noise[0].astype(jnp.int32), best)

    def value(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Float[Array, ""]:
        """Return the value of the action."""
        return output[self.action(output, noise)]

    def next_value(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Float[Array, ""]:
        """Return the value of the next action for SARSA(lambda), of the best one for Q(lambda)."""
        return self.value(output, noise) if self.on_policy else output.max()

    def cuts_trace(self, output: Float[Array, "O"], noise: Float[Array, "2"]) -> Bool[Array, ""]:
        """Return whether the action explores, for Q(lambda); False for SARSA(lambda)."""
        if self.on_policy:
            return jnp.array(False)
        return output[self.action(output, noise)] < output.max()
