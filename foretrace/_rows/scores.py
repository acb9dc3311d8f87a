"""Progressive validation: scores of predictions made before their labels were known, beside what needs no learning."""

import math
from typing import Any

import numpy as np

from foretrace._rows.feed import Due
from foretrace._rows.number_target import number_predictions

_SMALLEST = 1e-15
"""The probability below which a log loss does not look."""


class Scores:
    """Means over all rows and over those since the last report.

    Means of squares are named `…mse` inside and reported as their roots, `…rmse`.

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
        """Take up what `to_json` returned."""
        self.rows, self.window_rows, self._total, self._window = state


def score_class(due: Due, output: np.ndarray) -> dict[str, float] | None:
    """Return the scores of a predicted class; None if there is no label.

    A class that appears for the first time is wrongly predicted; its log loss is that of the place it was given.
    """
    place = due.taken[0]
    if place is None:
        return None
    known, last, majority = due.context
    shifted = np.asarray(output, np.float64) - np.max(output)
    log_sum = math.log(np.exp(shifted).sum())
    log_loss = log_sum - shifted[place] if place >= 0 else math.inf
    return {
        "accuracy": float(known > 0 and int(np.argmax(output[:known])) == place),
        "log_loss": min(float(log_loss), -math.log(_SMALLEST)),
        "no_change_accuracy": float(last == place),
        "majority_accuracy": float(majority == place),
    }


def score_numbers(due: Due, output: np.ndarray) -> dict[str, float] | None:
    """Return the scores of predicted numbers, the means over the steps ahead; None if there is no label."""
    if None in due.taken:
        return None
    mean, last, *_ = due.context
    truth = np.asarray(due.taken, np.float64)
    predictions = {"": number_predictions(due.context, output), "no_change_": last or 0.0, "mean_": mean}
    found = {}
    for name, predicted in predictions.items():
        error = predicted - truth
        found[f"{name}mae"], found[f"{name}mse"] = float(np.abs(error).mean()), float((error**2).mean())
    return found


def _means(sums: dict[str, float], rows: int) -> dict[str, float]:
    means = {}
    for name, value in sums.items():
        mean = value / rows
        if name.endswith("mse"):
            name, mean = name.removesuffix("mse") + "rmse", math.sqrt(mean)
        means[name] = mean
    return means
