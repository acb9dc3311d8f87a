"""Policies that a network's outputs describe: categorical, or Gaussian for continuous actions.

The action is a function of the outputs and of noise that was sampled before. In the derivative of
the log-probability, the action is a constant.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._types import Array, Float, Int, PRNGKeyArray

LEAST_DEVIATION = 1e-3
"""Smallest standard deviation of a continuous action."""


@dataclasses.dataclass(frozen=True)
class Categorical:
    """Categorical policy, with one logit for each of `count` actions."""

    count: int

    def noise(self, key: PRNGKeyArray, dtype: jnp.dtype) -> Float[Array, "A"]:
        """Sample Gumbel noise."""
        return jax.random.gumbel(key, (self.count,), dtype)

    def action(self, output: Float[Array, "A"], noise: Float[Array, "A"]) -> Int[Array, ""]:
        """Return the largest of the logits plus Gumbel noise, which is a sample of the softmax."""
        return jnp.argmax(output + noise).astype(jnp.int32)

    def log_probability(
        self, output: Float[Array, "A"], action: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Return the logarithm of the softmax at an action."""
        return jax.nn.log_softmax(output)[action]

    def entropy(self, output: Float[Array, "A"]) -> Float[Array, ""]:
        """Return the entropy of the softmax."""
        log_probabilities = jax.nn.log_softmax(output)
        return -(jnp.exp(log_probabilities) * log_probabilities).sum()


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions. Half of the outputs are means, and half deviations.

    The deviations are the softplus of their outputs, plus a small constant.
    """

    size: int

    def noise(self, key: PRNGKeyArray, dtype: jnp.dtype) -> Float[Array, "K"]:
        """Sample standard normal noise."""
        return jax.random.normal(key, (self.size,), dtype)

    def action(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, "K"]:
        """Return the mean plus the deviation times the noise."""
        mean, deviation = self._parts(output)
        return lax.stop_gradient(mean + deviation * noise)

    def log_probability(
        self, output: Float[Array, "O"], action: Float[Array, "K"]
    ) -> Float[Array, ""]:
        """Return the logarithm of the density at an action."""
        mean, deviation = self._parts(output)
        return jax.scipy.stats.norm.logpdf(action, mean, deviation).sum()

    def entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the differential entropy."""
        return (jnp.log(self._parts(output)[1]) + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum()

    def _parts(self, output: Float[Array, "O"]) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
        mean, raw = jnp.split(output, 2)
        return mean, jax.nn.softplus(raw) + LEAST_DEVIATION
