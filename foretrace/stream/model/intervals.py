"""Prediction intervals learned from errors as labels arrive (online conformal prediction).

The following is learned for each tail, coverage and step ahead, from the signed error e. The miss
rate of a tail is a = (1 - coverage) / 2.

    margin   = sum_k w_k q_k u_k + c u            m = 1 if the error is beyond the margin, else 0
    q_k     <- q_k + rate_k (1[e > q_k u_k] - a)  quantile tracking, several rates, two scales u
    w_k     <- w_k exp(-eta pinball_k), shared    margins with a smaller quantile loss count more
    c       <- c + gamma (m - a)                  the share of misses tends to a, but c stays above
                                                  the floor, where the margin has coverage 0

No interval is narrower than the interval of coverage 0. Below this floor, hits would lower c
without end and without effect, so they do not change c. In a stretch of errors that are exactly
zero, hits change neither c nor q_k: the margin shrinks only with u, and returns as soon as u does.
Elsewhere, the fraction of misses in n rows differs from `a` by (c_n - c_0) / (gamma n), where c_0
and c_n are the offsets before and after these rows. This also holds if errors depend on each other
or drift.

All members share these values. Only the size of the errors is learned for each member:

   factor   = (s / S)^(n / (n_0 + n))            s, S: mean |e| of the member's n, and of all labels

Errors are divided by the factor before they are learned, and margins are multiplied by it. The
factor is a power, because sizes may differ by factors of a thousand: a mean of 1 and s / S would
stay far above a small s / S.

The offset is learned for the coverage in use. Other coverages use a part of c, in proportion to the
quantiles of the normal distribution.

A late label judges the margin that its row had, and the u of that time: the present u follows
errors of the rows in between, which the margin could not. Errors of `late` consecutive rows
resemble each other. So with f = 1 + late / 5, rates of q are divided by f, spans of u are
multiplied by f, and gamma is multiplied by f, at most by 3: a miss is known late, and less time is
left to correct it. Rows that were predicted before any label was known teach nothing.

Sources: Gibbs and Candes, NeurIPS 2021 (adaptive conformal inference); Zaffran et al., ICML 2022
    (several rates); Angelopoulos, Candes and Tibshirani, NeurIPS 2023 (quantile tracking and error
    integration).
"""

from bisect import bisect_left
from math import isfinite
from statistics import NormalDist
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._types import Array, Float
from foretrace.stream.experts.settings import TUNED

COVERAGES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
"""Tracked coverages, of which 0 tracks the median of the errors; others are interpolated."""

_MAX_LOSS, _MAX_ERROR = 80.0, 20.0
_LEAST_RATIO = 1e-6
"""Lower limit of s / S: a member may have no errors, and errors are divided by the factor."""

_SIGNS = np.array([-1.0, 1.0])[:, None, None]


def check_coverage(coverage: float) -> None:
    """Check that intervals with this coverage can be tracked.

    Raises:
        ValueError: the coverage is outside of the range of tracked coverages.
    """
    is_number = isinstance(coverage, int | float | np.number)
    if not is_number or not COVERAGES[0] < coverage <= COVERAGES[-1]:
        raise ValueError(
            f"coverage={coverage!r} must be above 0 and at most {COVERAGES[-1]}: it is the share "
            "of labels that an interval is to hold, such as 0.9"
        )


def check_at_least(bound: float | None) -> None:
    """Check a lower bound of predictions.

    Raises:
        ValueError: the bound is not finite.
    """
    if bound is not None and not (isinstance(bound, int | float | np.number) and isfinite(bound)):
        raise ValueError(f"at_least={bound!r}, expected a number, such as 0, or None for no bound")


def bounded(
    predicted: Any, margins: Any, at_least: float | None, maximum: Any = np.maximum
) -> tuple[Any, Any, Any]:
    """Return predictions and the lower and upper ends of their intervals, none below a bound."""
    if at_least is None:
        return predicted, predicted - margins[0], predicted + margins[1]
    predicted = maximum(predicted, at_least)
    return predicted, maximum(predicted - margins[0], at_least), predicted + margins[1]


class Tracked(NamedTuple):
    """Statistics of the errors.

    Args:
        num_labels: number of labels so far.
        size: mean absolute error over all members.
        units: mean absolute error over each span, divided by the members' factors.
        quantiles: quantiles of the errors of each tail, in units, for each pair of rate and span.
        weights: weight of each pair.
        offsets: offset of each tail.
    """

    num_labels: Float[Array, ""]
    size: Float[Array, ""]
    units: Float[Array, "U O"]
    quantiles: Float[Array, "K 2 C O"]
    weights: Float[Array, "K 2 C O"]
    offsets: Float[Array, "2 O"]


class MemberErrors(NamedTuple):
    """Statistics of the errors of one member.

    Args:
        size: mean absolute error.
        num_labels: number of labels so far.
        held: number of labels that were inside their intervals.
    """

    size: Float[Array, "*P"]
    num_labels: Float[Array, "*P"]
    held: Float[Array, "*P"]

    def factor(self, tracked: Tracked) -> Float[Array, "*P"]:
        """Return this member's factor for the margins, which all members share otherwise."""
        ratio = self.size / jnp.where(tracked.size > 0, tracked.size, 1.0)
        ratio = jnp.where(tracked.size > 0, jnp.maximum(ratio, _LEAST_RATIO), 1.0)
        return ratio ** (self.num_labels / (TUNED.member_prior + self.num_labels))

    def learn(
        self, errors: Float[Array, "O"], held: Float[Array, ""], known: Array
    ) -> "MemberErrors":
        """Return the statistics after a row's errors; `held`: fraction inside the intervals."""
        count = self.num_labels + 1
        size = _averaged(self.size, errors, jnp.minimum(count, TUNED.member_span))
        new = MemberErrors(size, count, self.held + held)
        known = known & jnp.isfinite(errors).all()
        return optax.tree.where(known, new, self)


class Intervals(eqx.Module):
    """Margins of intervals around predictions, for each step ahead, with a state of fixed size.

    Args:
        outputs: number of steps ahead.
        coverage: fraction of the labels that the interval in use should contain. Other coverages
            are tracked as well.
    """

    outputs: int = eqx.field(static=True)
    coverage: float = eqx.field(static=True, default=0.9)

    @property
    def coverages(self) -> list[float]:
        """Tracked coverages, in increasing order."""
        return sorted({*COVERAGES, self.coverage})

    def units(self, state: Tracked, scale: Float[Array, ""]) -> Float[Array, "U O"]:
        """Return the units of a row's margins; the standard deviation of labels before an error."""
        return jnp.where(state.num_labels > 0, state.units, scale)

    @property
    def _normal(self) -> Float[np.ndarray, "1 C 1"]:
        return np.array([_normal(c) for c in self.coverages])[None, :, None]

    @property
    def _span(self) -> np.ndarray:
        """Index of the span of each pair of rate and span."""
        return np.repeat(np.arange(len(TUNED.quantile_spans)), len(TUNED.quantile_rates))

    def init(self) -> Tracked:
        """Return the state before the first label."""
        tracks = len(TUNED.quantile_rates) * len(TUNED.quantile_spans)
        shape = (tracks, 2, len(self.coverages), self.outputs)
        return Tracked(
            num_labels=jnp.zeros(()),
            size=jnp.zeros(()),
            units=jnp.zeros((len(TUNED.quantile_spans), self.outputs)),
            quantiles=jnp.asarray(np.broadcast_to(1.25 * self._normal[None], shape)),
            weights=jnp.full(shape, 1 / tracks),
            offsets=jnp.zeros((2, self.outputs)),
        )

    def margins(self, state: Tracked, scale: Float[Array, ""]) -> Float[Array, "2 C O"]:
        """Return the margins below and above a prediction for each tracked coverage.

        The margins grow with the coverage, and no interval is empty.

        Args:
            state: present state.
            scale: standard deviation of the labels, which determines the margins before the first
                error.
        """
        tracked = self._tracked(state)
        reach = self._normal / _normal(self.coverage)
        margins = tracked + reach * (state.offsets * state.units[-1:])[:, None]
        margins = margins.at[:, 0].set(_least(tracked))  # where the reach of the offset is zero
        at_first = jnp.broadcast_to(self._normal * scale, margins.shape)
        nested = [margins[:, 0]]
        for at in range(1, margins.shape[1]):
            nested.append(jnp.maximum(nested[-1], margins[:, at]))
        return jnp.where(state.num_labels > 0, jnp.stack(nested, axis=1), at_first)

    def in_use(self, state: Tracked, scale: Float[Array, ""]) -> Float[Array, "2 O"]:
        """Return the margins of the coverage in use."""
        return self.margins(state, scale)[:, self.coverages.index(self.coverage)]

    def between(
        self, margins: Float[np.ndarray, "2 C O"], coverage: float
    ) -> Float[np.ndarray, "2 O"]:
        """Return the margins for any coverage from the margins for the tracked coverages.

        Raises:
            ValueError: the coverage is outside of the range of tracked coverages.
        """
        check_coverage(coverage)
        at = bisect_left(self.coverages, coverage)
        if self.coverages[at] == coverage:
            return margins[:, at]
        low, here, high = (
            _normal(c) for c in (self.coverages[at - 1], coverage, self.coverages[at])
        )
        part = (here - low) / (high - low)
        return (1 - part) * margins[:, at - 1] + part * margins[:, at]

    def learn(
        self,
        state: Tracked,
        errors: Float[Array, "O"],
        margins: Float[Array, "2 O"],
        scale: Float[Array, ""],
        known: Array,
        factor: Float[Array, ""] | float = 1.0,
        units: Float[Array, "U O"] | None = None,
        late: Any = 0,
    ) -> Tracked:
        """Return the state after a row's errors; unchanged if an error is unknown or not finite.

        Args:
            state: state before the errors.
            errors: errors at each step ahead, label minus prediction.
            margins: margins in use when the row was predicted.
            scale: standard deviation of the labels, the unit of the first errors.
            known: whether the label is known.
            factor: factor of the member's margins.
            units: units from which these margins were made. Default: the present units.
            late: number of rows of the stream that were predicted since the row.
        """
        known = known & jnp.isfinite(errors).all()
        errors = jnp.where(known, errors, 0.0)
        size_of_all = _averaged(
            state.size, errors, jnp.minimum(state.num_labels + 1, TUNED.member_span)
        )
        errors, margins = errors / factor, margins / factor
        miss = ((1 - np.array(self.coverages)) / 2)[None, None, :, None]
        overlap = 1 + jnp.asarray(late, float) / TUNED.interval_late
        rate = np.tile(TUNED.quantile_rates, len(TUNED.quantile_spans))[:, None, None, None]
        place, memory = self.coverages.index(self.coverage), np.array(TUNED.quantile_spans)[:, None]
        before = self.units(state, scale)
        tails = _SIGNS * errors[None, None]
        units = jnp.maximum(before if units is None else units, 1e-12)
        each, slow = units[self._span][:, None, None], units[-1][None, None, None]
        beyond = tails[None] / each - state.quantiles
        moves = (errors != 0) | (before[0] > TUNED.exact * before[-1])
        is_miss = tails[:, 0] > margins
        share = jnp.where(moves[None] | is_miss, (1 - self.coverage) / 2, 0.0)
        faster = TUNED.offset_rate * jnp.minimum(overlap, TUNED.offset_late)
        offsets = state.offsets + faster * (jnp.where(is_miss, 1.0, 0.0) - share)
        # Quantile loss, divided by the slower scale and by the miss rate, so that all coverages
        # learn equally fast.
        odds = (1 - miss) / miss
        loss = jnp.maximum(odds * beyond, -beyond) * (TUNED.loss_rate / slow * each)
        weights = state.weights * jnp.exp(-jnp.minimum(loss, TUNED.loss_rate * _MAX_LOSS))
        # Bounded losses and the share keep the total above zero, except in a damaged state.
        total = jnp.maximum(weights.sum(axis=0, keepdims=True), 1e-300)
        weights = weights * ((1 - TUNED.loss_share) / total) + TUNED.loss_share / len(weights)
        steps = jnp.where(beyond > 0, 1.0, 0.0) - miss
        quantiles = state.quantiles + jnp.where(
            moves[None, None, None], rate / overlap * steps, 0.0
        )
        count = state.num_labels + 1
        size = jnp.minimum(jnp.abs(errors)[None], jnp.maximum(_MAX_ERROR * before, scale))
        units = before + (size - before) / jnp.minimum(count + 1, memory * overlap)
        parts = {"quantiles": quantiles, "weights": weights, "offsets": offsets}
        new = Tracked(num_labels=count, size=size_of_all, units=units, **parts)
        tracked, unit = self._tracked(new), jnp.maximum(units[-1:], 1e-300)
        floor = (_least(tracked) - tracked[:, place]) / unit
        offsets = jnp.maximum(offsets, jnp.minimum(state.offsets, floor))
        new = new._replace(offsets=offsets)
        return optax.tree.where(known, new, state)

    def _tracked(self, state: Tracked) -> Float[Array, "2 C O"]:
        """Return the margins without the offset."""
        each = state.units[self._span][:, None, None]
        return (state.weights * state.quantiles * each).sum(axis=0)


def _averaged(size: Float[Array, ""], errors: Float[Array, "O"], span: Array) -> Float[Array, ""]:
    """Return a mean absolute error after further errors, each of which is bounded."""
    found = jnp.abs(errors).mean()
    found = jnp.where(size > 0, jnp.minimum(found, _MAX_ERROR * size), found)
    return size + (found - size) / span


def _least(tracked: Float[Array, "2 C O"]) -> Float[Array, "2 O"]:
    """Return the margins of coverage 0, the lower bound of all margins."""
    below, above = tracked[:, 0]
    return jnp.stack([below, jnp.maximum(above, -below)])


def _normal(coverage: float) -> float:
    """Return the margin of this coverage under a normal distribution, in standard deviations."""
    return NormalDist().inv_cdf((1 + coverage) / 2)
