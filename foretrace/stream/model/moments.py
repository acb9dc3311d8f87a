"""Running mean and variance of the numbers of an endless stream, which resist outliers.

    n      = min(n + 1, MEMORY)
    mean_n = mean + (x - mean) / n
    var_n  = var + ((x - mean) (x - mean_n) - var) / n

A number beyond a bound is clipped. A run is a sequence of numbers that do not fit the scale: mostly
outliers, or numbers closer to each other than a small part of the scale. The numbers of a run are
also averaged separately, and a run that is long enough replaces mean and variance. The time until a
new level is accepted therefore does not depend on the number of earlier numbers.

Source: Welford, Technometrics 4(3), 1962; with the bound on n, the weight of old numbers decays
    exponentially.

Moments of ordinary labels exclude outliers. Among the first labels, those far from their median do
not count. Later outliers do not count unless they are part of a new level. If outliers were only
clipped, they would still increase the scale: with one outlier in a hundred, it would grow without
limit.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.settings import TUNED

FIRST = 10
"""Number of first labels that are examined together."""


class Average(NamedTuple):
    """Running mean and variance of some numbers."""

    num_samples: Float[Array, "*N"]
    mean: Float[Array, "*N"]
    variance: Float[Array, "*N"]

    def update(self, x: Float[Array, "*N"]) -> "Average":
        """Return the averages after one more number each."""
        count = jnp.minimum(self.num_samples + 1, TUNED.unit_memory)
        mean = self.mean + (x - self.mean) / count
        found = (x - self.mean) * (x - mean)
        return Average(count, mean, self.variance + (found - self.variance) / count)


class Moments(NamedTuple):
    """Running mean and variance of some numbers.

    Args:
        all: mean and variance of the numbers.
        run: mean and variance of the present run.
        excess: number of outliers in the present run minus the number of other values.
        first: first labels; None if outliers are not excluded.
    """

    all: Average
    run: Average
    excess: Float[Array, "*N"]
    first: Float[Array, "K *N"] | None

    @property
    def scale(self) -> Float[Array, "*N"]:
        """The standard deviation; 1 while all numbers are equal."""
        return jnp.where(self.all.variance > 0, jnp.sqrt(self.all.variance), 1.0)

    def score(self, x: Float[Array, "*N"]) -> Float[Array, "*N"]:
        """Return a number's distance from the mean in standard deviations, clipped."""
        return jnp.clip((x - self.all.mean) / self.scale, -TUNED.outlier, TUNED.outlier)

    def within(self, x: Float[Array, "*N"], bound: float = TUNED.outlier) -> Float[Array, "*N"]:
        """Return a number, clipped at some standard deviations if the mean is reliable."""
        z = (x - self.all.mean) / self.scale
        settled = TUNED.settled if self.first is None else FIRST
        beyond = (jnp.abs(z) > bound) & (self.all.num_samples >= settled) & (self.all.variance > 0)
        return jnp.where(beyond, self.all.mean + jnp.sign(z) * bound * self.scale, x)

    def learn(
        self, x: Float[Array, "*N"], known: Bool[Array, "*N"]
    ) -> tuple[Float[Array, "*N"], "Moments"]:
        """Return the number that was counted, and the moments after it; unchanged if unknown."""
        inside, zero = self.within(x), jnp.zeros_like(x)
        none = Average(zero, zero, zero)
        less = 1.0 if self.first is None else TUNED.forgiven
        excess = jnp.where(inside != x, self.excess + 1, jnp.maximum(self.excess - less, 0))
        is_far = (excess == 0) & (jnp.abs(x - self.run.mean) > TUNED.narrow * self.scale)
        begins = is_far | ((excess > 0) != (self.excess > 0))
        run = optax.tree.where(begins, none, self.run).update(x)
        # A constant run gives no scale: a stream that rests at one value, as rain at zero, keeps
        # its scale.
        is_new_scale = (excess == 0) & (run.num_samples >= TUNED.new_scale) & (run.variance > 0)
        replaced = (excess >= TUNED.new_level) | is_new_scale
        counted, first = self.all.update(inside), self.first
        if first is not None:
            place = self.all.num_samples
            first = jnp.where(np.arange(1.0 * FIRST)[:, None] == place[None], x[None], first)
            counted = optax.tree.where(inside == x, counted, self.all)
            is_last = (known & (place == FIRST - 1)).any()
            counted = lax.cond(is_last, lambda: _without_far_ones(first), lambda: counted)
        after = Moments(
            all=optax.tree.where(replaced, run, counted),
            run=optax.tree.where(replaced, none, run),
            excess=jnp.where(replaced, zero, excess),
            first=first,
        )
        return jnp.where(replaced, x, inside), optax.tree.where(known, after, self)


def _without_far_ones(first: Float[Array, "K N"]) -> Average:
    """Return mean and variance of the first labels, without values far from their median."""

    def median(values: Float[Array, "K N"]) -> Float[Array, "1 N"]:
        largest = lax.top_k(values.T, FIRST // 2 + 1)[0]
        return largest[:, -2:].mean(axis=1)[None]

    apart = jnp.abs(first - median(first))
    spread = median(apart)
    near = jnp.where((apart > TUNED.first_far * spread) & (spread > 0), 0.0, 1.0)
    total = near.sum(axis=0)
    mean = (near * first).sum(axis=0) / total
    variance = (near * (first - mean[None]) ** 2).sum(axis=0) / total
    return Average(jnp.full_like(mean, FIRST), mean, variance)


def new_moments(size: int, *, ordinary: bool = False) -> Moments:
    """Return the moments of some numbers before the first number.

    Args:
        size: number of numbers.
        ordinary: whether outliers are excluded.
    """
    zeros = jnp.zeros(size)
    none = Average(zeros, zeros, zeros)
    return Moments(
        all=none, run=none, excess=zeros, first=jnp.zeros((FIRST, size)) if ordinary else None
    )


def settled_scale(moments: Moments) -> Float[Array, "N"]:
    """Return the standard deviation of some numbers; 0 until it is reliable."""
    return jnp.where(moments.all.num_samples >= TUNED.settled, jnp.sqrt(moments.all.variance), 0.0)
