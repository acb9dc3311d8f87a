"""Ordinary labels: statistics that determine whether a label may be broken.

The last label is a feature of nearly every expert, and a broken label is often a sentinel such as
-9999. A label that is far from the ordinary labels is therefore not used as a feature. There are
two exceptions: labels as far away were predicted right before, or it is one of many consecutive far
labels. Experts learn the label in any case.

If a far label exactly equals the far label before it, it is a sentinel, because measured numbers
hardly ever repeat. From then on, this value counts as missing, until many of them follow each
other, or another label is close to it. A machine that is switched off sends 24.25, 24.26 and 24.26,
or 0, and neither is a sentinel.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.model.moments import Moments, new_moments


class Ordinary(NamedTuple):
    """Statistics of the labels that are not outliers.

    Args:
        moments: mean and variance of these labels.
        reach: largest distance from the mean of a label that was predicted right.
        outside: last label that was far from the others, as a sentinel is; NaN if there was none.
        varies: whether another label was close to it.
        sentinel: value that counts as missing; NaN if there is none.
    """

    moments: Moments
    reach: Float[Array, ""]
    outside: Float[Array, ""]
    varies: Bool[Array, ""]
    sentinel: Float[Array, ""]

    @property
    def units(self) -> Float[Array, "2"]:
        """Mean and standard deviation of the labels."""
        return jnp.stack([self.moments.all.mean[0], self.moments.scale[0]])

    def is_far(self, y: Float[Array, ""]) -> Bool[Array, ""]:
        """Return whether a label may be broken; False while few labels are known."""
        beyond = jnp.abs(y - self.moments.all.mean[0]) > TUNED.beyond * self.reach
        return beyond & (self.moments.within(y[None], TUNED.far)[0] != y)

    def is_outside(self, y: Float[Array, ""]) -> Bool[Array, ""]:
        """Return whether a label is far from the others; False while few labels are known."""
        beyond = jnp.abs(y - self.moments.all.mean[0]) > self.reach
        return beyond & (self.moments.within(y[None], TUNED.outside)[0] != y)

    def is_sentinel(self, y: Float[Array, ""]) -> Bool[Array, ""]:
        """Return whether a label is a sentinel."""
        repeats = self.is_outside(y) & (y == self.outside) & ~self.varies & (y != 0)
        return repeats | (y == self.sentinel)

    def learn(self, y: Float[Array, ""], known: Bool[Array, ""]) -> "Ordinary":
        """Return the statistics after a label."""
        moments = self.moments.learn(y[None], known[None])[1]
        near = TUNED.close * jnp.abs(y - self.moments.all.mean[0])
        is_other = known & self.is_outside(y) & (y != self.outside)
        is_real = known & (jnp.abs(y - self.sentinel) <= near)
        return self._replace(
            moments=moments,
            outside=jnp.where(is_other, y, self.outside),
            varies=jnp.where(is_other, jnp.abs(y - self.outside) <= near, self.varies),
            sentinel=jnp.where(is_real, jnp.nan, self.sentinel),
        )

    def mark(
        self, y: Float[Array, ""], known: Bool[Array, ""], many: Bool[Array, ""]
    ) -> "Ordinary":
        """Return the statistics after a known sentinel; after many sentinels, as after a label."""
        apart = jnp.abs(y - self.moments.all.mean[0])
        return self._replace(
            reach=jnp.where(known & many, jnp.maximum(self.reach, apart), self.reach),
            sentinel=jnp.where(known, jnp.where(many, jnp.nan, y), self.sentinel),
        )

    def cleaned(self, moments: Moments) -> Moments:
        """Return moments of the labels without broken first labels, which would hide the scale."""
        is_due = moments.all.num_samples == TUNED.settled
        is_broken = is_due & (moments.scale > TUNED.far * self.moments.scale)
        ordinary = self.moments.all._replace(num_samples=moments.all.num_samples)
        return moments._replace(all=optax.tree.where(is_broken, ordinary, moments.all))

    def judge(
        self,
        label: Float[Array, "O"],
        predicted: Float[Array, "O"],
        size: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> "Ordinary":
        """Return the statistics after predictions of labels with mean errors `size`."""
        right = known & (jnp.abs(label - predicted) <= TUNED.right * size)
        reach = jnp.where(right, jnp.abs(label - self.moments.all.mean[0]), 0.0).max()
        return self._replace(reach=jnp.maximum(self.reach, reach))


def new_ordinary(*, one_stream: bool) -> Ordinary:
    """Return the statistics before the first label.

    Args:
        one_stream: whether all labels are of one stream. A member with larger labels than the
            others has no broken labels.
    """
    zero = jnp.zeros(())
    none = zero + jnp.nan
    return Ordinary(
        moments=new_moments(1, ordinary=one_stream),
        reach=zero,
        outside=none,
        varies=zero > 0,
        sentinel=none,
    )
