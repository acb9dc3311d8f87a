"""Interface of the methods of learning: action, objective and value of a step."""

from typing import Protocol

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, PRNGKeyArray


class Method(Protocol):
    """A method of learning: functions of one stream and one step, with options.

    An action is a function of the network's outputs and of noise that is sampled before them, so
    the network can be run and differentiated in one call. The methods are `ActorCritic`,
    `QLearning` and `ValuePrediction`. Any object with these functions can be used, and a subclass
    inherits their defaults.
    """

    entropy: float = 0.0
    """Weight of the policy's entropy in the objective. Default: 0, no entropy."""

    def check(self, outputs: int) -> None:
        """Raise a ValueError if a network with this number of outputs does not fit."""

    def action_count(self, outputs: int) -> int | None:
        """Return the number of actions: 1 if there is only a prediction, None if continuous."""

    def noise(
        self, key: PRNGKeyArray, step: Array, outputs: int, dtype: jnp.dtype
    ) -> Float[Array, "K"]:
        """Sample the random part of an action. Default: zero."""
        return jnp.zeros(1, dtype)

    def action(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Array:
        """Return an action; if the noise is zero, the greedy action. Default: the value."""
        return self.value(output, noise)

    def objective(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the number whose gradient the trace collects. Default: the value."""
        return self.value(output, noise)

    def value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value of a step, which the error corrects. Default: the first output."""
        return output[0]

    def next_value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value of the next, or of the last, observation. Default: `value`."""
        return self.value(output, noise)

    def policy_entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the entropy of the policy. Called only if its weight is not 0. Default: 0."""
        return jnp.zeros((), output.dtype)

    def cuts_trace(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Bool[Array, ""]:
        """Return whether the trace of earlier steps ends before this action. Default: False."""
        return jnp.array(False)
