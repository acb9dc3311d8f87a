"""Control by a policy and a value: actor-critic with traces, for discrete or continuous actions."""

import dataclasses

import jax.numpy as jnp

from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._checks import check_ranges
from foretrace.rl._method import Method
from foretrace.rl._policies import Categorical, Gaussian


@dataclasses.dataclass(frozen=True)
class ActorCritic(Method):
    """Learn a policy and its value from one stream, as outputs of one network with one trace.

        objective = v(s_t) + actor_weight * log pi(a_t | s_t)       differentiated once
        theta <- theta + step * delta * z,   delta = reward + discount * v(s_{t+1}) - v(s_t)

    The first output of the network is the value. For discrete actions, the others are one logit for
    each action. For continuous actions, they are the means, followed by numbers whose softplus
    gives the standard deviations.

    Args:
        action_size: number of elements of a continuous action; None for discrete actions.
        actor_weight: weight of the log-probability of an action, relative to the value.
        entropy: weight of the policy's entropy, whose gradient enters the trace with the sign of
            the error. 0 (default) means no entropy, which saves a second backward pass.

    Raises:
        TypeError: an argument is no number.
        ValueError: an action size is below 1, or a weight is negative or infinite.

    Source: Barto, Sutton and Anderson, 1983; with traces and the sign of the error as in Elsayed,
        Vasan and Mahmood, arXiv 2410.14606.

    >>> import foretrace as ft, jax
    >>> cell = ft.LRU.factory(state_size=4)
    >>> network = ft.Network(2, 3, model_size=4, depth=1, cell=cell, key=jax.random.key(0))
    >>> agent = ft.rl.Agent(network, ft.rl.ActorCritic(), rule=ft.ONLINE)
    >>> start = ft.rl.Transition([0.0, 1.0], first=True)
    >>> action, state, _ = agent.step(agent.init(), start)
    >>> end = ft.rl.Transition([0.0, 1.0], reward=1.0, terminated=True)
    >>> action, state, info = agent.step(state, end)
    >>> int(action) in (0, 1)
    True
    """

    action_size: int | None = None
    actor_weight: float = 1.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def check(self, outputs: int) -> None:
        """Raise a ValueError if a network with this number of outputs does not fit."""
        size, expected = self.action_size, "one logit for each of at least two actions"
        if size is not None:
            expected = f"a mean and a deviation for each element of an action: {1 + 2 * size}"
        if outputs < 3 or (size is not None and outputs != 1 + 2 * size):
            raise ValueError(
                f"ActorCritic(action_size={size}): the network has {outputs} outputs, expected the "
                f"value, and {expected}"
            )

    def action_count(self, outputs: int) -> int | None:
        """Return the number of actions; None for continuous actions."""
        return outputs - 1 if self.action_size is None else None

    def noise(
        self, key: PRNGKeyArray, step: Array, outputs: int, dtype: jnp.dtype
    ) -> Float[Array, "K"]:
        """Sample the noise of the policy."""
        return self._policy(outputs).noise(key, dtype)

    def action(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Array:
        """Return a sample of the policy. If the noise is zero, return the most probable action."""
        return self._policy(output.size).action(output[1:], noise)

    def objective(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value plus the weighted log-probability of the action."""
        action = self.action(output, noise)
        log_probability = self._policy(output.size).log_probability(output[1:], action)
        return output[0] + self.actor_weight * log_probability

    def policy_entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the entropy of the policy."""
        return self._policy(output.size).entropy(output[1:])

    def _policy(self, outputs: int) -> Categorical | Gaussian:
        return Categorical(outputs - 1) if self.action_size is None else Gaussian(self.action_size)
