"""Scores of predictions and baselines when a label arrives, and sums of these scores."""

import math

import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float
from foretrace.stream.read.scores import compared

_MIN_PROBABILITY = 1e-15
"""Probability at which the log loss is clipped."""

OF_CLASSES = ("accuracy", "log_loss", "confidence", "no_change_accuracy", "majority_accuracy")
_EACH = tuple(name + error for name in ("", "no_change_", "mean_") for error in ("mae", "mse"))
OF_NUMBERS = (*_EACH, "coverage", "width")
"""Names of the scores. The confidence is the probability of the predicted class."""

_BINS = 10
"""Number of bins for the probability of the predicted class, as in the calibration error."""


def sums_of(scores: tuple[str, ...], experts: tuple[str, ...]) -> list[str]:
    """Return the names of the sums over all rows that have a label and a prediction.

    The order is: the number of rows; each score; for each bin of the predicted class's probability,
    the sum of hits (1 or 0) minus this probability; for each baseline, the lead of the main score
    and the square of this lead; the square of the log loss or of the absolute error; the error of
    each expert.

    Args:
        scores: names of the scores.
        experts: names of the experts.
    """
    gaps = [f"gap {k}" for k in range(_BINS if "confidence" in scores else 0)]
    gains = [f"{square}gain {name}" for square in ("", "squared ") for name in compared(scores)]
    return ["rows", *scores, *gaps, *gains, "squared", *experts]


def of_row(
    names: tuple[str, ...],
    scores: Float[Array, "S"],
    errors: Float[Array, "E"],
) -> Float[Array, "T"]:
    """Return a row's contribution to the sums of `sums_of`; zeros if its scores are NaN.

    Args:
        names: names of the scores.
        scores: scores of the row.
        errors: errors of the experts for the row.
    """
    others = np.array([names.index(name + names[0]) for name in compared(names)], int)
    gaps, gain, watched = jnp.zeros(0), scores[others] - scores[0], scores[0]
    if "confidence" in names:
        sure, watched, gain = scores[names.index("confidence")], scores[1], -gain
        mine = jnp.arange(_BINS, dtype=jnp.int32) == jnp.minimum(
            (sure * _BINS).astype(jnp.int32), _BINS - 1
        )
        gaps = jnp.where(mine, scores[0] - sure, 0.0)
    parts = [jnp.ones(1), scores, gaps, gain, gain * gain, watched[None] ** 2, errors]
    return jnp.where(jnp.isnan(scores[0]), 0.0, jnp.concatenate(parts))


def score_class(
    index: Float[Array, ""],
    output: Float[Array, "O"],
    num_classes: Float[Array, ""],
    baselines: Float[Array, "2"],
) -> Float[Array, "5"]:
    """Return the scores `OF_CLASSES`; NaN if there is no prediction, before the first class.

    Args:
        index: index of the class. If it exceeds the maximum number of classes, it is -1, and the
            prediction is wrong. A class that appears for the first time has the log loss of its
            output.
        output: predicted logits of the row.
        num_classes: number of classes that were known when the row was predicted.
        baselines: last and most frequent class at that time.
    """
    places = jnp.arange(len(output), dtype=output.dtype)
    logs = output - _log_sum(output)
    known = jnp.where(places < num_classes, output, -jnp.inf)
    loss = jnp.where(index >= 0, -jnp.where(places == index, logs, 0.0).sum(), jnp.inf)
    sure = jnp.exp(known.max() - _log_sum(known))
    right = jnp.argmax(known).astype(index.dtype) == index
    found = [right, jnp.minimum(loss, -math.log(_MIN_PROBABILITY)), sure]
    found += [*((baselines == index) & (index >= 0))]
    return jnp.where(
        num_classes > 0, jnp.stack([value.astype(output.dtype) for value in found]), jnp.nan
    )


def score_numbers(
    label: Float[Array, "O"],
    output: Float[Array, "O"],
    baselines: Float[Array, "2"],
    margins: Float[Array, "2 O"],
) -> Float[Array, "8"]:
    """Return the scores `OF_NUMBERS`, averaged over the steps ahead.

    Args:
        label: the numbers.
        output: predictions.
        baselines: last known number and mean when the row was predicted.
        margins: margins of the intervals below and above each number.
    """
    errors = jnp.concatenate([output[None], jnp.broadcast_to(baselines[:, None], (2, len(label)))])
    errors = errors - label[None]
    each = jnp.stack([jnp.abs(errors), errors * errors], axis=1).mean(axis=-1).ravel()
    inside = (errors[0] <= margins[0]) & (-errors[0] <= margins[1])
    return jnp.concatenate(
        [each, inside.astype(each.dtype).mean()[None], margins.sum(axis=0).mean()[None]]
    )


def _log_sum(logits: Float[Array, "O"]) -> Float[Array, ""]:
    most = logits.max()
    return most + jnp.log(jnp.exp(logits - most).sum())
