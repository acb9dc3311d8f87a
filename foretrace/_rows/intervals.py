"""Prediction intervals learned from errors as labels arrive (online conformal prediction).

For each tail, coverage and step ahead, with signed error e and miss rate a = (1 - coverage) / 2 of
the tail:

    margin   = sum_k w_k q_k u_k + c u            m = 1 if the error is beyond the margin, else 0
    q_k     <- q_k + rate_k (1[e > q_k u_k] - a)  quantile tracking, several rates, two scales u
    w_k     <- w_k exp(-eta pinball_k), shared    margins with a smaller quantile loss count more
    c       <- c + gamma (m - a)                  the share of misses tends to a, but c stays above
                                                  the floor, where the margin has coverage 0

No interval is narrower than the one of coverage 0. Below this floor hits would lower c without end
and without effect, so they do not. In a stretch of errors that are exactly zero, hits change
neither c nor q_k: the margin shrinks with u alone, and is there again as soon as u is. Elsewhere,
the share of misses in n rows differs from `a` by (c_n - c_0) / (gamma n), with c at both ends, also
where errors follow each other or drift.

The offset is learned for the coverage in use; other coverages take a part of c in proportion to
normal quantiles.
Sources: Gibbs and Candes, NeurIPS 2021 (adaptive conformal inference); Zaffran et al., ICML 2022
    (several rates); Angelopoulos, Candes and Tibshirani, NeurIPS 2023 (quantile tracking and error
    integration).
"""

import math
from bisect import bisect_left
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.saved import MOST, check_derived, check_size, check_within
from foretrace._runs.config_json import from_json
from foretrace._types import Float

COVERAGES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
"""Tracked coverages, the first as the median of errors; other margins are interpolated."""

_RATES, _SPANS = (0.02, 0.1), (20.0, 200.0)
_GAMMA, _ETA, _SHARE = 0.02, 0.3, 1e-3
_MAX_LOSS, _MAX_ERROR = 80.0, 20.0
_EXACT = 0.01
"""Ratio of fast to slow scale below which a stretch is exact: a hundred errors of zero."""

_ARRAYS = ("units", "quantiles", "weights", "offsets")
_SIGNS = np.array([-1.0, 1.0])[:, None, None]


def check_coverage(coverage: float) -> None:
    """Check that an interval of this coverage can be tracked.

    Raises:
        ValueError: the coverage lies outside of the tracked ones.
    """
    if not COVERAGES[0] < coverage <= COVERAGES[-1]:
        raise ValueError(
            f"coverage={coverage} must be above 0 and at most {COVERAGES[-1]}: it is the share of "
            "labels that an interval is to hold, such as 0.9"
        )


class SavedIntervals(NamedTuple):
    """Saved form of intervals: the elements of their arrays."""

    num_labels: int
    units: list[float]
    quantiles: list[float]
    weights: list[float]
    offsets: list[float]


class Intervals:
    """Margins of intervals around predictions, one for each step ahead; a state of fixed size.

    Args:
        outputs: number of steps ahead.
        coverage: share of labels that the interval in use is to hold; the others are tracked beside
            it.

    >>> intervals, draw = Intervals(1), np.random.default_rng(0)
    >>> inside = []
    >>> for error in draw.normal(size=2000):
    ...     margins = intervals.margins(scale=1.0)
    ...     inside.append(-margins[0, 0] <= error <= margins[1, 0])
    ...     intervals.learn(np.array([error]), margins, scale=1.0)
    >>> round(float(np.mean(inside)), 2)
    0.9
    """

    def __init__(self, outputs: int, coverage: float = 0.9):
        check_coverage(coverage)
        self.coverage = coverage
        self.coverages = sorted({*COVERAGES, coverage})
        self._place = self.coverages.index(coverage)
        count, tracks = len(self.coverages), len(_RATES) * len(_SPANS)
        self._normal = np.array([_normal(c) for c in self.coverages])[None, :, None]
        self._reach = self._normal / _normal(coverage)
        self._miss = ((1 - np.array(self.coverages)) / 2)[None, :, None]
        self._odds = (1 - self._miss) / self._miss
        self._rate = np.tile(_RATES, len(_SPANS))[:, None, None, None]
        self._span = np.repeat(np.arange(len(_SPANS)), len(_RATES))
        self._memory = np.array(_SPANS)[:, None]
        self.num_labels = 0
        self.units = np.zeros((len(_SPANS), outputs))
        self.quantiles = np.broadcast_to(
            1.25 * self._normal[None], (tracks, 2, count, outputs)
        ).copy()
        self.weights = np.full((tracks, 2, count, outputs), 1 / tracks)
        self.offsets = np.zeros((2, outputs))
        self._now: np.ndarray | None = None  # margins without the offset, until errors are learned

    def margins(self, scale: float, coverage: float | None = None) -> Float[np.ndarray, "2 O"]:
        """Return an interval's reach below and above a prediction; it grows with the coverage.

        Args:
            scale: standard deviation of the labels, from which the margins follow while there was
                no error.
            coverage: share of labels to hold. Default: the object's.

        Raises:
            ValueError: the coverage lies outside of the tracked ones.
        """
        found = self._nested(scale)
        if coverage is None:
            return found[:, self._place]
        check_coverage(coverage)
        at = bisect_left(self.coverages, coverage)
        if self.coverages[at] == coverage:
            return found[:, at]
        low, here, high = (
            _normal(c) for c in (self.coverages[at - 1], coverage, self.coverages[at])
        )
        part = (here - low) / (high - low)
        return (1 - part) * found[:, at - 1] + part * found[:, at]

    def learn(
        self, errors: Float[np.ndarray, "O"], margins: Float[np.ndarray, "2 O"], scale: float
    ) -> None:
        """Learn a row's errors, label minus prediction; nothing if one is not finite.

        Args:
            errors: errors at each step ahead.
            margins: margins in use when the row was predicted.
            scale: standard deviation of the labels, the unit of the first errors.
        """
        if not np.isfinite(errors).all():
            return
        if not self.num_labels:
            self.units[:] = scale
        tails = _SIGNS * errors
        units = np.maximum(self.units, 1e-12)
        each = units[self._span][:, None, None]
        beyond = tails / each - self.quantiles
        moves = (errors != 0) | (self.units[0] > _EXACT * self.units[-1])
        is_miss = tails[:, 0] > margins
        offsets = self.offsets + _GAMMA * (is_miss - (moves | is_miss) * (1 - self.coverage) / 2)
        # Quantile loss, in units of the slower scale and of the miss rate, so that all coverages
        # learn equally fast.
        loss = np.maximum(self._odds * beyond, -beyond) * (_ETA / units[-1] * each)
        weights = self.weights * np.exp(-np.minimum(loss, _ETA * _MAX_LOSS))
        # Bounded losses and the share keep the total above zero; a damaged state may not.
        total = np.maximum(weights.sum(axis=0), 1e-300)
        self.weights = weights * ((1 - _SHARE) / total) + _SHARE / len(weights)
        self.quantiles += (self._rate * moves) * ((beyond > 0) - self._miss)
        self.num_labels += 1
        size = np.minimum(np.abs(errors), np.maximum(_MAX_ERROR * self.units, scale))
        self.units += (size - self.units) / np.minimum(self.num_labels + 1, self._memory)
        self._now = None
        tracked, unit = self._tracked(), np.maximum(self.units[-1], 1e-300)
        floor = (_least(tracked) - tracked[:, self._place]) / unit
        self.offsets = np.maximum(offsets, np.minimum(self.offsets, floor))

    def _tracked(self) -> Float[np.ndarray, "2 C O"]:
        """Return the margins without the offset."""
        if self._now is None:
            each = self.units[self._span][:, None, None]
            self._now = (self.weights * self.quantiles * each).sum(axis=0)
        return self._now

    def _nested(self, scale: float) -> Float[np.ndarray, "2 C O"]:
        """Return the margins of all coverages, each at least the last one's; never empty."""
        if not self.num_labels:
            return np.broadcast_to(self._normal * scale, self.quantiles.shape[1:])
        tracked = self._tracked()
        margins = tracked + self._reach * (self.offsets * self.units[-1])[:, None]
        margins[:, 0] = _least(tracked)  # where the reach of the offset is zero
        return np.maximum.accumulate(margins, axis=1)

    def to_json(self) -> SavedIntervals:
        """Return the learned state."""
        return SavedIntervals(
            self.num_labels, *(getattr(self, name).ravel().tolist() for name in _ARRAYS)
        )

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedIntervals, state)
        check_within("num_labels", [saved.num_labels], 0, MOST)
        check_within("units", saved.units, 0, math.inf)
        check_within("weights", saved.weights, 0, 1)
        for name in _ARRAYS:
            values, like = getattr(saved, name), getattr(self, name)
            check_derived(name, values)
            check_size(name, values, like.size)
            setattr(self, name, np.array(values, np.float64).reshape(like.shape))
        self.num_labels = saved.num_labels
        self._now = None


def _least(tracked: Float[np.ndarray, "2 C O"]) -> Float[np.ndarray, "2 O"]:
    """Return the margins of coverage 0, the lower bound of all: the interval is not empty."""
    below, above = tracked[:, 0]
    return np.stack([below, np.maximum(above, -below)])


def _normal(coverage: float) -> float:
    """Return the margin of this coverage under a normal distribution, in standard deviations."""
    return NormalDist().inv_cdf((1 + coverage) / 2)
