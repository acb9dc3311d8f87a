"""Control by a policy and a value: actor-critic with traces, for discrete and continuous actions."""

from typing import Any

from foretrace._network import Network
from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._agent import AbstractAgent
from foretrace.rl._policies import Categorical, Gaussian, Policy


class ActorCritic(AbstractAgent):
    """Learn a policy and its value from one stream: both are outputs of one network and share one trace.

        objective of a step = v(s_t) + actor_weight * log pi(a_t | s_t)       differentiated once
        theta <- theta + step * delta * z,   delta = reward + discount * v(s_{t+1}) - v(s_t)

    Args:
        network: network whose first output is the value. The others are one logit for each action, or, for continuous
            actions, first their means and then what the softplus makes their standard deviations.
        action_size: number of elements of a continuous action; None for discrete actions.
        actor_weight: weight of the log-probability relative to the value.
        entropy: weight of the entropy of the policy, whose gradient enters the trace with the sign of the error; 0 for
            none, which spares a second backward pass.
        options: those of `AbstractAgent`.

    Raises:
        TypeError, ValueError: as in `AbstractAgent`; a network with another number of outputs, a negative weight.

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

    def __init__(
        self,
        network: Network,
        *,
        action_size: int | None = None,
        actor_weight: float = 1.0,
        entropy: float = 0.0,
        **options: Any,
    ):
        self.action_size: int | None = action_size
        self.actor_weight: float = actor_weight
        self.entropy: float = entropy
        super().__init__(network, **options)
        outputs = network.output_size
        if action_size is None and outputs < 3:
            raise ValueError(
                f"ActorCritic: the network has {outputs} outputs, expected the value and one logit for each of at "
                "least two actions"
            )
        if action_size is not None and (action_size < 1 or outputs != 1 + 2 * action_size):
            raise ValueError(
                f"ActorCritic(action_size={action_size}): the network has {outputs} outputs, expected the value, and a "
                f"mean and a deviation for each element of an action: {1 + 2 * action_size}"
            )
        for name, weight in {"actor_weight": actor_weight, "entropy": entropy}.items():
            if not weight >= 0:
                raise ValueError(f"ActorCritic({name}={weight}) must not be negative")
        self._policy: Policy = Categorical(outputs - 1) if action_size is None else Gaussian(action_size)

    @property
    def action_count(self) -> int | None:
        """Number of actions; None for continuous ones."""
        return self.network.output_size - 1 if self.action_size is None else None

    @property
    def _entropy_bonus(self) -> float:
        return self.entropy

    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "A"]:
        return self._policy.noise(key, self._dtype)

    def _action(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Array:
        return self._policy.action(output[1:], noise)

    def _objective(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Float[Array, ""]:
        action = self._action(output, noise)
        return output[0] + self.actor_weight * self._policy.log_probability(output[1:], action)

    def _value(self, output: Float[Array, "O"], noise: Float[Array, "A"]) -> Float[Array, ""]:
        return output[0]

    def _entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        return self._policy.entropy(output[1:])
