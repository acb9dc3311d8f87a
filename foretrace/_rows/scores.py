"""Progressive validation: scores of predictions before their labels, beside baselines."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace._types import Float

_BINS = 10
"""Number of bins of the predicted class's probability, for comparison with its accuracy."""


class Score(NamedTuple):
    """How a score is shown and compared.

    Args:
        title: title in tables and figures.
        sign: 1 where a smaller score is better, -1 where a larger one is, 0 where neither is.
        share: whether it is shown as a percentage.
        curve: whether its course over the rows is drawn.
    """

    title: str
    sign: int
    share: bool = False
    curve: bool = True

    def text(self, value: float) -> str:
        """Return a value as it is shown."""
        return f"{value:.2%}" if self.share else f"{value:.4g}"


SCORES = {
    "accuracy": Score("accuracy", -1, share=True),
    "log_loss": Score("log loss", 1),
    "calibration_error": Score("calibration error", 1, share=True),
    "mae": Score("mean absolute error", 1),
    "rmse": Score("root mean square", 1),
    "coverage": Score("in the interval", 0, share=True),
    "width": Score("its width", 0, curve=False),
}
"""The scores of a stream by the names under which `Scores` reports them."""

BASELINES = {
    "no_change_": "predicting the last one known",
    "majority_": "the most frequent class",
    "mean_": "the mean",
}
"""Title of each baseline, by the beginning of the names of its scores."""

COMPARED = ("no_change_", "majority_")
"""Beginnings of the names of the scores of baselines that predictions are to be better than."""


class Scores:
    """Means over all rows and over those since the last report.

    Means of squares are named `…mse` inside and reported as their roots, `…rmse`. Means of right
    minus probability in each bin of the probability are named `gap …` and reported as the sum of
    their sizes, `calibration_error`.

    >>> scores = Scores()
    >>> scores.add({"mae": 1.0, "mse": 1.0}), scores.add({"mae": 3.0, "mse": 49.0})
    (None, None)
    >>> scores.total()
    {'mae': 2.0, 'rmse': 5.0}
    """

    def __init__(self) -> None:
        self.rows = self.window_rows = 0
        self._total: dict[str, float] = {}
        self._window: dict[str, float] = {}

    def add(self, values: dict[str, float]) -> None:
        """Count the scores of a row."""
        self.rows, self.window_rows = self.rows + 1, self.window_rows + 1
        for name, value in values.items():
            self._total[name] = self._total.get(name, 0.0) + value
            self._window[name] = self._window.get(name, 0.0) + value

    def total(self) -> dict[str, float]:
        """Return the means over all rows."""
        return _means(self._total, self.rows)

    def window(self) -> dict[str, float]:
        """Return the means since the last call, and begin again."""
        means = _means(self._window, self.window_rows)
        self.window_rows, self._window = 0, {}
        return means

    def to_json(self) -> list[Any]:
        """Return the state."""
        return [self.rows, self.window_rows, self._total, self._window]

    def restore(self, state: list[Any]) -> None:
        """Restore what `to_json` returned."""
        self.rows, self.window_rows, self._total, self._window = state


class Gains:
    """By how much predictions were better than baselines, and whether that may be chance.

    >>> gains = Gains()
    >>> for right in (1.0, 0.0, 1.0, 1.0):
    ...     gains.add({"accuracy": right, "majority_accuracy": 1.0, "no_change_accuracy": 0.0})
    >>> gains.not_better()
    ['majority_']
    """

    def __init__(self) -> None:
        self._sums: dict[
            str, list[float]
        ] = {}  # number of rows, sum of the gains, sum of their squares

    def add(self, scores: dict[str, float]) -> None:
        """Count the scores of a row."""
        score, sign = ("accuracy", 1.0) if "accuracy" in scores else ("mae", -1.0)
        for name in COMPARED:
            if name + score in scores:
                gain = sign * (scores[score] - scores[name + score])
                rows, total, squares = self._sums.get(name, (0, 0.0, 0.0))
                self._sums[name] = [rows + 1, total + gain, squares + gain * gain]

    def not_better(self) -> list[str]:
        """Return the baselines that the mean score does not beat by two standard errors."""
        found = []
        for name, (rows, total, squares) in self._sums.items():
            error = math.sqrt(max(squares - total * total / rows, 0.0))  # standard error of the sum
            if total <= 2 * error:
                found.append(name)
        return found

    def to_json(self) -> dict[str, list[float]]:
        """Return the state."""
        return self._sums

    def restore(self, state: dict[str, list[float]]) -> None:
        """Restore what `to_json` returned."""
        self._sums = {name: list(sums) for name, sums in state.items()}


class ArrayScores:
    """Means over all rows of the scores of several models, which come as one array.

    >>> scores = ArrayScores(("a", "b"))
    >>> scores.add(np.array([1.0, 2.0])), scores.add(np.array([3.0, 2.0]))
    (None, None)
    >>> scores.total()
    {'a': 2.0, 'b': 2.0}
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.rows = 0
        self._total = np.zeros(len(names))

    def add(self, values: Float[np.ndarray, "E"]) -> None:
        """Count the scores of a row."""
        self.rows += 1
        self._total += values

    def total(self) -> dict[str, float]:
        """Return the means over all rows; nothing before the first."""
        if not self.rows:
            return {}
        return dict(zip(self.names, (self._total / self.rows).tolist(), strict=True))

    def to_json(self) -> list[Any]:
        """Return the state."""
        return [self.rows, self._total.tolist()]

    def restore(self, state: list[Any]) -> None:
        """Restore what `to_json` returned."""
        self.rows, total = state
        self._total = np.array(total, np.float64)


def of_row(scores: dict[str, float]) -> dict[str, float]:
    """Return the scores of a row, its confidence as the gap of its bin.

    The calibration error is the expected calibration error of Guo et al., ICML 2017, over ten bins
    of equal width.
    """
    if (sure := scores.pop("confidence", None)) is not None:
        scores[f"gap {min(int(sure * _BINS), _BINS - 1)}"] = scores["accuracy"] - sure
    return scores


def _means(sums: dict[str, float], rows: int) -> dict[str, float]:
    means: dict[str, float] = {}
    for name, value in sums.items():
        mean = value / rows
        if name.startswith("gap "):
            means["calibration_error"] = means.get("calibration_error", 0.0) + abs(mean)
            continue
        if name.endswith("mse"):
            name, mean = name.removesuffix("mse") + "rmse", math.sqrt(mean)
        means[name] = mean
    return means
