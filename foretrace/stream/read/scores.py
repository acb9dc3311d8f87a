"""Progressive validation: scores of predictions before their labels, and of baselines."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float  # `_types` imports JAX

MANY = 10
"""Maximum number of classes whose scores are reported: the rarest ones."""

COMPARED = ("no_change_", "majority_")
"""Beginnings of the names of the scores of baselines that predictions are to be better than."""

BINS = 1000
"""Number of bins of log odds, half of them below the threshold of an alarm."""


class Score(NamedTuple):
    """How a score is shown and compared.

    Args:
        title: title in tables and figures.
        sign: 1 where a smaller score is better, -1 where a larger one is, 0 where neither is.
        share: whether it is shown as a percentage.
    """

    title: str
    sign: int
    share: bool = False

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
    "width": Score("its width", 0),
}
"""The scores of a stream by the names under which they are reported."""

BASELINES = {
    "no_change_": "the last one known",
    "majority_": "the most frequent class",
    "mean_": "the mean",
}
"""Title of each baseline, by the beginning of the names of its scores."""


class Tallies(NamedTuple):
    """Counts of the rows that had an answer when their label came.

    Args:
        of_classes: number of labels of each class, of answers with it, and of right ones.
        by_odds: number of rows by the log odds of each class with an alarm: of rows with another
            label, and of those with this one.
    """

    of_classes: Float[Any, "3 O"]
    by_odds: Float[Any, "K 2 B"]


def means(scores: tuple[str, ...], sums: Mapping[str, float]) -> dict[str, float]:
    """Return mean scores by their names; none if no row had any.

    Means of squares are reported as their roots, `…rmse`. The calibration error is the expected
    calibration error of Guo et al., ICML 2017, over bins of equal width.

    >>> means(("mae", "mse"), {"rows": 2.0, "mae": 4.0, "mse": 50.0})
    {'mae': 2.0, 'rmse': 5.0}
    """
    found: dict[str, float] = {}
    for name in scores if sums["rows"] else ():
        mean = sums[name] / sums["rows"]
        if name == "confidence":
            gaps = (abs(gap) for one, gap in sums.items() if one.startswith("gap "))
            found["calibration_error"] = sum(gaps) / sums["rows"]
        elif name.endswith("mse"):
            found[name.removesuffix("mse") + "rmse"] = math.sqrt(mean)
        else:
            found[name] = mean
    return found


def compared(scores: tuple[str, ...]) -> list[str]:
    """Return the beginnings of the names of the baselines that are compared, by the main score."""
    return [name for name in COMPARED if name + scores[0] in scores]


def not_better(scores: tuple[str, ...], sums: Mapping[str, float]) -> list[str]:
    """Return the baselines that the mean main score does not beat by two standard errors."""
    found = []
    for name in compared(scores) if sums["rows"] else ():
        total, squares = sums[f"gain {name}"], sums[f"squared gain {name}"]
        # Standard error of the sum.
        error = math.sqrt(max(squares - total * total / sums["rows"], 0.0))
        if total <= 2 * error:
            found.append(name)
    return found


def of_classes(
    classes: Sequence[Any], alarms: Mapping[str, float], tallies: Tallies
) -> list[dict[str, Any]]:
    """Return labels, predictions, recall and precision of the rarest classes, then of the alarms.

    The average precision of a class with an alarm is the mean precision over its labels, each with
    its own probability as the threshold. Labels in one bin count at its middle: with ten labels or
    more, this was within 0.005 of the exact value.

    Args:
        classes: known classes.
        alarms: threshold of each class with an alarm.
        tallies: counts of all rows.
    """
    labels = tallies.of_classes[0]
    rarest = sorted((at for at in range(len(classes)) if labels[at]), key=lambda at: labels[at])
    found = [_line(classes[at], *tallies.of_classes[:, at]) for at in rarest[:MANY]]
    downwards = tallies.by_odds[:, :, ::-1]
    for (name, least), (others, hits) in zip(alarms.items(), downwards, strict=True):
        rows, right, marked = others + hits, hits.cumsum(), (others + hits).cumsum()
        precisions = (right - (hits - 1) / 2) / (marked - (rows - 1) / 2)
        line = _line(name, right[-1], marked[BINS // 2 - 1], right[BINS // 2 - 1])
        average = _share(hits @ precisions, right[-1])
        found.append(line | {"average_precision": average, "alarm": least})
    return found


def _line(name: Any, labels: float, predicted: float, right: float) -> dict[str, Any]:
    shares = {"recall": _share(right, labels), "precision": _share(right, predicted)}
    return {"class": name, "labels": int(labels), "predicted": int(predicted), **shares}


def _share(part: float, whole: float) -> float | None:
    """Return a share; None of nothing."""
    return float(part / whole) if whole else None
