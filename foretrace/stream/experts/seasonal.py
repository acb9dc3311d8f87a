"""Numbers of earlier seasons, smoothed: level and season of exponential smoothing, from the labels.

    s_t     <- sum_k g (1-g)^k y_{t-p(k+1)} / sum_k g (1-g)^k     season: the same row of its cycles
    level_t <- sum_j a (1-a)^j (y_{t-j} - s_{t-j}) / sum_j ...    what is left, of the last rows
    e_p     <- e_p + (|d_t - mean_m d_{t-mp}| - e_p) / n          mean absolute error at period p

A prediction is the season of its row plus the level, at several rates g and a; a trend is a part of
the level. As the sums are finite, all is read from the remembered labels, and each member has its
own. The period p is found among differences d between a label and the mean of the labels just
before it, which have no level. It is the shortest one whose error is close to the smallest.
After Holt (1957) and Winters (1960), with additive seasons and without a state for each season.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float, Int
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED

CYCLES, RECENT = 8, 24
"""Number of cycles in a season, and of the last rows in a level."""

BEFORE, COMPARED = 4, 4
"""Number of labels whose mean is the level of a difference, and of cycles that are compared."""


class PeriodState(NamedTuple):
    """Mean errors of all periods.

    Args:
        errors: mean absolute error of each period.
        counts: number of labels that were compared at each period.
    """

    errors: Float[Array, "P"]
    counts: Float[Array, "P"]


class Seasonal(AbstractExpert):
    """Smoothed season and level, at several pairs of rates.

    Args:
        ahead: number of rows between the last known label and each predicted number.
        labels: number of remembered labels.
    """

    ahead: tuple[int, ...] = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert for each pair of rates."""
        return tuple(f"seasonal {season:g} {level:g}" for season, level in TUNED.seasonal_rates)

    def init(self) -> PeriodState:
        """Return the state before the first row."""
        periods = self.labels - BEFORE
        return PeriodState(jnp.zeros(periods), jnp.zeros(periods))

    def predict(self, state: PeriodState, features: Features) -> Float[Array, "E O"]:
        """Return season and level for each pair of rates; the last number before a whole cycle."""
        labels, period = features.labels, self._period(state)
        by_cycle, by_row = _weights()
        recent = jnp.arange(RECENT, dtype=jnp.int32)
        left = labels[None, :RECENT] - self._season(labels, recent + period, period, by_cycle)
        level = jnp.nan_to_num(_mean_of_known(left, by_row))
        ahead = np.array(self.ahead, np.int32)
        season = self._season(labels, (period - 1 - ahead) % period, period, by_cycle)
        return jnp.where(jnp.isnan(season), jnp.nan_to_num(labels[0]), season + level[:, None])

    def learn(self, state: PeriodState, lesson: Lesson) -> PeriodState:
        """Return the state after a label: the updated error of every period."""
        labels, between = lesson.features.labels, self.ahead[0]
        count = self.labels - BEFORE + 1
        mean = jnp.stack([labels[i : i + count] for i in range(BEFORE)]).mean(axis=0)
        differences = labels[: len(mean) - 1 - between] - mean[1 + between :]
        differences = jnp.concatenate([jnp.full(between, jnp.nan, labels.dtype), differences])
        cycles = []
        for cycle in range(1, COMPARED + 1):
            found = differences[cycle - 1 :: cycle]
            more = len(differences) - len(found)
            cycles.append(jnp.pad(found, (0, more), constant_values=jnp.nan))
        season = _mean_of_known(jnp.stack(cycles, axis=1), np.ones((1, COMPARED)))
        errors = jnp.abs(lesson.label[0] - mean[0] - season)
        there = (~jnp.isnan(errors) & lesson.known).astype(state.counts.dtype)
        counts = state.counts + there
        errors = jnp.minimum(jnp.nan_to_num(errors), TUNED.reach)
        rate = there / jnp.clip(counts, 1.0, TUNED.season_memory)
        return PeriodState(state.errors + rate * (errors - state.errors), counts)

    def _period(self, state: PeriodState) -> Int[Array, ""]:
        """Return the shortest period whose error is close to the smallest."""
        # As in the baselines: the error is trusted after several labels.
        doubt = jnp.where(state.counts > 0, 1 + 3 / jnp.sqrt(state.counts + 1), jnp.inf)
        doubted = (state.errors + 1e-9) * doubt
        periods = jnp.arange(1, len(doubted) + 1, dtype=jnp.int32)
        close = doubted <= TUNED.season_close * doubted.min()
        return jnp.where(close, periods, jnp.int32(len(doubted))).min()

    def _season(
        self,
        labels: Float[Array, "K"],
        first: Int[Array, "N"],
        period: Int[Array, ""],
        weights: Float[np.ndarray, "E C"],
    ) -> Float[Array, "E N"]:
        """Return the seasons of rows, whose last cycles are at the places `first`."""
        at = first[:, None] + period * jnp.arange(CYCLES, dtype=jnp.int32)[None]
        found = jnp.where(at < self.labels, labels[jnp.minimum(at, self.labels - 1)], jnp.nan)
        return _mean_of_known(found[None], weights[:, None])


def _weights() -> tuple[Float[np.ndarray, "E C"], Float[np.ndarray, "E J"]]:
    """Return the weights of cycles and of rows for each pair of rates."""
    rates, counts = np.array(TUNED.seasonal_rates).T[:, :, None], (CYCLES, RECENT)
    seasons, levels = (
        rate * (1 - rate) ** np.arange(count) for rate, count in zip(rates, counts, strict=True)
    )
    return seasons, levels


def _mean_of_known(
    values: Float[Array, "*M C"], weights: Float[np.ndarray, "*W C"]
) -> Float[Array, "*R"]:
    """Return the weighted means of the known values; NaN where none is known."""
    known = jnp.where(jnp.isnan(values), 0.0, jnp.asarray(weights, values.dtype))
    total, sums = known.sum(axis=-1), (known * jnp.nan_to_num(values)).sum(axis=-1)
    return jnp.where(total > 0, sums / jnp.maximum(total, 1e-30), jnp.nan)
