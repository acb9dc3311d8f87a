"""Predictions without a model: the last number, the mean, a number a season ago, the last class.

    season_k <- season_k + (|y_t - y_{t-k}| - season_k) / n         mean absolute error at lag k

The best seasonal lag has the smallest error, which is increased if few labels were compared. The
predicted numbers are the numbers that were seen, and they are not clipped. At a new level, the last
number is therefore correct at once.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson, counted
from foretrace.stream.experts.settings import TUNED

_MAX_ERROR, _ROUNDING = 1e6, 1e-12


class SeasonState(NamedTuple):
    """Mean errors of all seasonal lags.

    Args:
        errors: mean absolute error of each lag, for each step ahead.
        counts: number of labels that were compared at each lag.
    """

    errors: Float[Array, "K O"]
    counts: Float[Array, "K"]


class NumberBaselines(AbstractExpert):
    """The last known number, the running mean, and the number at the best seasonal lag.

    Args:
        outputs: number of steps ahead.
        lags: number of earlier labels, one of which is chosen as the seasonal lag.
    """

    outputs: int = eqx.field(static=True)
    lags: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return ("last", "mean", "season")

    def init(self) -> SeasonState:
        """Return the state before the first row."""
        return SeasonState(jnp.zeros((self.lags, self.outputs)), jnp.zeros(self.lags))

    def predict(self, state: SeasonState, features: Features) -> Float[Array, "E O"]:
        """Return the three numbers for each step ahead."""
        last = jnp.nan_to_num(features.labels[0])
        # The error of a lag is trusted after several labels. A lag that was never compared is not
        # chosen.
        doubt = jnp.where(state.counts > 0, 1 + 3 / jnp.sqrt(state.counts + 1), jnp.inf)
        usable = jnp.where(jnp.isnan(features.labels), jnp.inf, doubt)
        doubted = (state.errors + 1e-9) * usable[:, None]
        # The first of the smallest errors is found by two plain minima, because `argmin` compares
        # pair by pair, which is slow.
        # Up to rounding, because a compiler may compute the errors separately for each of the two.
        lags = jnp.arange(self.lags, dtype=jnp.int32)[:, None]
        smallest = doubted <= (1 + _ROUNDING) * doubted.min(axis=0, keepdims=True)
        best = jnp.where(smallest, lags, jnp.int32(self.lags - 1)).min(axis=0)
        season = jnp.nan_to_num(features.labels)[best]
        season = jnp.where(jnp.isfinite(usable[best]), season, last)
        return jnp.stack([jnp.full(self.outputs, last), jnp.zeros(self.outputs), season])

    def learn(self, state: SeasonState, lesson: Lesson) -> SeasonState:
        """Return the state after a label: the updated error of every lag."""
        labels = lesson.features.labels
        there = (~jnp.isnan(labels) & lesson.known).astype(state.counts.dtype)
        counts = state.counts + there
        errors = jnp.abs(lesson.label[None] - jnp.nan_to_num(labels)[:, None])
        errors = jnp.minimum(errors, _MAX_ERROR)
        rate = there / jnp.clip(counts, 1.0, TUNED.season_memory)
        return SeasonState(state.errors + rate[:, None] * (errors - state.errors), counts)


class ClassBaselines(AbstractExpert):
    """The most frequent class and the last class, each with its probability of being right.

    Args:
        classes: maximum number of classes.
    """

    classes: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return ("majority", "last")

    def init(self) -> tuple[Float[Array, "O"], Float[Array, "2"]]:
        """Return initial counts: of each class, and of the cases in which the last class was right.

        The second array also counts the cases in which it was wrong.
        """
        return jnp.zeros(self.classes), jnp.ones(2)

    def predict(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E O"]:
        """Return the class frequencies, and the last class with its probability of being right."""
        counts, right = state
        seen = (jnp.arange(self.classes, dtype=jnp.int32) < features.num_classes).astype(
            counts.dtype
        )
        frequency = (counts + 0.5 * seen) / jnp.maximum((counts + 0.5 * seen).sum(), 1e-30)
        last = (jnp.arange(self.classes, dtype=jnp.int32) == features.labels[0]).astype(
            counts.dtype
        )
        share = right[0] / right.sum()
        repeated = jnp.where(last.sum() > 0, share * last + (1 - share) * frequency, frequency)
        return jnp.stack([frequency, repeated])

    def learn(self, state: tuple[Array, Array], lesson: Lesson) -> tuple[Array, Array]:
        """Return the state after a label."""
        counts, right = state
        places = jnp.arange(self.classes, dtype=jnp.int32)
        last = (places == lesson.features.labels[0]).astype(counts.dtype)
        hit, known = (last * lesson.label).sum(), lesson.known.astype(counts.dtype)
        now = jnp.stack([hit, 1 - hit]) * jnp.where(last.sum() > 0, known, 0.0)
        return counted(counts, lesson.label * known), counted(right, now)
