"""How unusual an error is: its rank among the past errors of its own stream, at two widths.

For the error of a label, and for the mean of the last ten errors, with N past ones of each:

    s        = log10 (1 + N) / (1 + number of past ones that are as large or larger)
    beyond the largest past one, s is multiplied by the ratio to it: an exponential tail
    surprise = s_1 + s_10 - log10(1 + (s_1 + s_10) ln 10)

So stationary errors have a surprise above 2 with a probability of about .01. The past errors are
counts in bins of equal width in log |e| / u, with u their running mean; an error counts less by
1 / 4,000 with each later one.

Source: Fisher, Statistical Methods for Research Workers, 1932 (combination of two probabilities,
as if they were independent).
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from foretrace._types import Array, Float
from foretrace.stream.experts.settings import TUNED

BINS, _PER_OCTAVE, _BELOW = 80, 8, 4
"""Bins of a count, of which eight are an octave; the first is 4 octaves below the mean error."""


class PastErrors(NamedTuple):
    """Past errors of one stream.

    Args:
        unit: mean error, in which each error is bounded.
        recent: last errors, the newest last.
        counts: how many errors, and means of the recent ones, were in each bin.
    """

    unit: Float[Array, "*P"]
    recent: Float[Array, "*P W"]
    counts: Float[Array, "*P 2 B"]

    def learn(self, error: Float[Array, ""]) -> tuple[Float[Array, ""], "PastErrors"]:
        """Return the surprise of an error, and the past errors after it.

        The surprise is NaN if the error is not finite, which is not learned, and before
        `TUNED.past_errors` errors are known.
        """
        known = jnp.isfinite(error)
        size = jnp.where(known, error, 0.0)
        recent = jnp.concatenate([self.recent[1:], size[None]])
        unit = jnp.where(self.unit > 0, self.unit, size)
        ratios = jnp.stack([size, recent.mean()]) / jnp.where(unit > 0, unit, 1.0)
        octaves = jnp.log2(jnp.maximum(ratios, 2.0**-_BELOW)) + _BELOW
        places = jnp.minimum(octaves * _PER_OCTAVE, BINS - 1e-6)[:, None]
        bins = np.arange(BINS, dtype=float)[None]
        number = self.counts[0].sum()
        # Its own bin counts as larger: an error like many others is not unusual.
        larger = jnp.where(bins >= jnp.floor(places), self.counts, 0.0).sum(axis=1)
        largest = jnp.where(self.counts >= 0.5, bins + 1, 0.0).max(axis=1)
        beyond = 2 ** (jnp.maximum(places[:, 0] - largest, 0.0) / _PER_OCTAVE)
        scores = jnp.log10((1 + number) / (1 + larger)) * jnp.minimum(beyond, TUNED.beyond_past)
        total = scores.sum()
        surprise = total - jnp.log10(1 + math.log(10) * total)
        is_known = known & (number > TUNED.past_errors)
        mine = (bins == jnp.floor(places)).astype(self.counts.dtype)
        new = PastErrors(
            unit=unit + (jnp.minimum(size, 20 * unit) - unit) / (number + 1),
            recent=recent,
            counts=self.counts * (1 - 1 / TUNED.past_span) + mine,
        )
        return jnp.where(is_known, surprise, jnp.nan), optax.tree.where(known, new, self)


def new_past_errors() -> PastErrors:
    """Return the past errors before the first one."""
    return PastErrors(jnp.zeros(()), jnp.zeros(TUNED.recent_errors), jnp.zeros((2, BINS)))
