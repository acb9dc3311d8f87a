"""Control by a policy and a value: actor-critic with traces, for discrete actions."""

from typing import Any

import jax
import jax.numpy as jnp

from foretrace._network import Network
from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._agent import AbstractAgent


class ActorCritic(AbstractAgent):
    """Learn a policy and its value from one stream: both are outputs of one network and share one trace.

        objective of a step = v(s_t) + actor_weight * log pi(a_t | s_t)       differentiated once
        theta <- theta + step * delta * z,   delta = reward + discount * v(s_{t+1}) - v(s_t)

    Args:
        network: network whose first output is the value, and the others one logit for each action.
        actor_weight: weight of the log-probability relative to the value.
        entropy: weight of the entropy of the policy, whose gradient enters the trace with the sign of the error; 0 for
            none, which spares a second backward pass.
        options: those of `AbstractAgent`.

    Raises:
        TypeError, ValueError: as in `AbstractAgent`; a network with less than three outputs, a negative weight.

    Source: Barto, Sutton and Anderson, 1983; with traces and the sign of the error as in Elsayed, Vasan and Mahmood,
        arXiv 2410.14606.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> agent = ft.rl.ActorCritic(network, rule=ft.ONLINE)
    >>> action, state = agent.act(agent.init(), [0.0, 1.0])
    >>> state, info = agent.learn(state, 1.0, terminated=True)
    >>> int(action) in (0, 1)
    True
    """

    def __init__(self, network: Network, *, actor_weight: float = 1.0, entropy: float = 0.0, **options: Any):
        self.actor_weight, self.entropy = actor_weight, entropy
        super().__init__(network, **options)
        if network.output_size < 3:
            raise ValueError(
                f"ActorCritic: the network has {network.output_size} outputs, expected the value and one logit for "
                "each of at least two actions"
            )
        for name, weight in {"actor_weight": actor_weight, "entropy": entropy}.items():
            if not weight >= 0:
                raise ValueError(f"ActorCritic({name}={weight}) must not be negative")

    @property
    def action_count(self) -> int:
        """Number of actions."""
        return self.network.output_size - 1

    @property
    def _entropy_bonus(self) -> float:
        return self.entropy

    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "A"]:
        return jax.random.gumbel(key, (self.network.output_size - 1,), self._dtype)

    def _action(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Int[Array, ""]:
        # The largest of logits plus Gumbel noise is a sample of the policy.
        return jnp.argmax(output[1:] + noise).astype(jnp.int32)

    def _objective(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Float[Array, ""]:
        log_probability = jax.nn.log_softmax(output[1:])[self._action(output, noise)]
        return output[0] + self.actor_weight * log_probability

    def _value(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Float[Array, ""]:
        return output[0]

    def _last_value(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        return output[0]

    def _entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        log_probabilities = jax.nn.log_softmax(output[1:])
        return -(jnp.exp(log_probabilities) * log_probabilities).sum()
