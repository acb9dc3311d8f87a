"""Progressive validation: scores of predictions made before their labels, and of baselines."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float  # `_types` imports JAX

MANY = 10
"""Maximum number of classes with scores in the report: the rarest classes."""

COMPARED = ("no_change_", "majority_")
"""Prefixes of the scores of those baselines that predictions should beat."""

BINS = 1000
"""Number of bins for log odds, half of which are below the threshold of an alarm."""


class Score(NamedTuple):
    """How a score is shown and compared.

    Args:
        title: title in tables and figures.
        sign: 1 if a smaller score is better, -1 if a larger score is better, 0 if neither is.
        share: whether the score is shown as a percentage.
    """

    title: str
    sign: int
    share: bool = False

    def text(self, value: float) -> str:
        """Return a score as text."""
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
"""The scores of a stream, by the names under which they are reported."""

BASELINES = {
    "no_change_": "the last one known",
    "majority_": "the most frequent class",
    "mean_": "the mean",
}
"""Title of each baseline, by the prefix of its scores."""


class Tallies(NamedTuple):
    """Counts of the rows that had a prediction when their label arrived.

    Args:
        of_classes: for each class, the number of its labels, of its predictions, and of its correct
            predictions.
        by_odds: for each class with an alarm, the number of rows in each bin of log odds: rows with
            another label, and rows with this label.
    """

    of_classes: Float[Any, "3 O"]
    by_odds: Float[Any, "K 2 B"]


def means(scores: tuple[str, ...], sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean scores by name; an empty dictionary if there were no rows.

    Means of squares are reported as their roots, with the name `…rmse`. The calibration error is
    the expected calibration error of Guo et al., ICML 2017, with bins of equal width.

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
    """Return the prefixes of the baselines to compare with, which have the main score."""
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

    The average precision of a class with an alarm is the mean precision over the labels of the
    class, where the probability of each label is the threshold. All labels in a bin count at the
    middle of the bin. With ten labels or more, the result was within 0.005 of the exact value.

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
    """Return part / whole; None if the whole is zero."""
    return float(part / whole) if whole else None
