"""Progressive validation: scores of predictions made before their labels were known, beside those of baselines."""

import math
from typing import Any

import numpy as np

from foretrace._rows.delayed_labels import LabelledRow
from foretrace._rows.number_target import number_predictions
from foretrace._rows.target import ClassContext, NumberContext

_MIN_PROBABILITY = 1e-15
"""Probability at which the log loss is clipped."""

_BINS = 10
"""Number of bins of the probability of the predicted class, in which it is compared with its accuracy."""


class Scores:
    """Means over all rows and over those since the last report.

    Means of squares are named `…mse` inside and reported as their roots, `…rmse`. Means of right minus probability in
    each bin of the probability are named `gap …` and reported as the sum of their sizes, `calibration_error`.

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


def score_class(row: LabelledRow, output: np.ndarray) -> dict[str, float] | None:
    """Return the scores of a predicted class; None if there is no label.

    A class that appears for the first time is wrongly predicted; its log loss is that of the output it was given. The
    calibration error is the expected calibration error of Guo et al., ICML 2017, over ten bins of equal width.
    """
    index = row.targets[0]
    if index is None:
        return None
    context = row.context
    assert isinstance(context, ClassContext)
    known = context.num_classes
    shifted = np.asarray(output, np.float64) - np.max(output)
    log_sum = math.log(np.exp(shifted).sum())
    log_loss = log_sum - shifted[index] if index >= 0 else math.inf
    right = float(known > 0 and int(np.argmax(output[:known])) == index)
    sure = float(1 / np.exp(shifted[:known] - shifted[:known].max()).sum()) if known else 0.0
    return {
        "accuracy": right,
        "log_loss": min(float(log_loss), -math.log(_MIN_PROBABILITY)),
        f"gap {min(int(sure * _BINS), _BINS - 1)}": right - sure,
        "no_change_accuracy": float(context.last == index),
        "majority_accuracy": float(context.majority == index),
    }


def score_numbers(row: LabelledRow, output: np.ndarray) -> dict[str, float] | None:
    """Return the scores of predicted numbers and of their intervals, the means over the steps ahead.

    None if a label is missing.
    """
    if None in row.targets:
        return None
    context = row.context
    assert isinstance(context, NumberContext)
    truth = np.asarray(row.targets, np.float64)
    predictions: dict[str, Any] = {
        "": number_predictions(context, output),
        "no_change_": context.last or 0.0,
        "mean_": context.mean,
    }
    scores = {}
    for name, predicted in predictions.items():
        error = predicted - truth
        scores[f"{name}mae"], scores[f"{name}mse"] = float(np.abs(error).mean()), float((error**2).mean())
    if context.margins is not None:
        error, (below, above) = predictions[""] - truth, np.asarray(context.margins)
        scores["coverage"] = float(((error <= below) & (-error <= above)).mean())
        scores["width"] = float((below + above).mean())
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
