"""What tells one way of learning from another: what is chosen, what is differentiated, what a step is worth."""

import abc

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, PRNGKeyArray


class AbstractMethod(abc.ABC):
    """A way of learning, said for one stream and one step; `LearningStep` does the rest.

    An action is a function of the outputs and of noise that is drawn before them, so that the network is run and
    differentiated in one call.
    """

    @property
    @abc.abstractmethod
    def action_count(self) -> int | None:
        """Number of actions; 1 where there is nothing to choose, None for continuous actions."""

    @property
    def _entropy_bonus(self) -> float:
        """Factor of the entropy in the objective."""
        return 0.0

    @abc.abstractmethod
    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "K"]:
        """Draw what the choice of an action of one stream depends on beside the outputs."""

    @abc.abstractmethod
    def _action(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Array:
        """Return the action of one stream."""

    @abc.abstractmethod
    def _objective(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return what the trace collects the gradient of: the value, and the log-probability of the action."""

    @abc.abstractmethod
    def _value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value that the temporal-difference error is of."""

    def _next_value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value of what follows a step, also at a last observation. Default: the same."""
        return self._value(output, noise)

    def _entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the entropy of the policy."""
        raise NotImplementedError

    def _cuts_trace(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Bool[Array, ""]:
        """Say whether the trace of the past ends before this action."""
        return jnp.array(False)
