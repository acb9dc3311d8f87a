"""Moments of prediction errors: their mean square, and their correlation from row to row."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float

WINDOW = 300
"""Number of labels over which the mean square is averaged."""

LARGEST = 3.0
"""Limit at which errors are clipped, in root mean squares of earlier errors."""

FIRST = 10
"""Number of labels that must have arrived before errors are clipped."""

_SMALLEST = 1e-6
"""Lower limit of the mean square, so that errors can grow again after perfect predictions."""

_MOST_REPEATED = 0.99


class Errors(NamedTuple):
    """Running moments of the errors.

    Args:
        mean_square: running mean square of the errors, R.
        lagged: running mean of the product of an error and the previous error.
        last: last error of each output.
        num_labels: number of labels so far.
    """

    mean_square: Float[Array, ""]
    lagged: Float[Array, ""]
    last: Float[Array, "B O"]
    num_labels: Float[Array, ""]


def init_errors(streams: int, outputs: int, dtype: Any = None) -> Errors:
    """Return the moments before the first label."""
    zero = jnp.zeros((), dtype)
    return Errors(zero, zero, jnp.zeros((streams, outputs), dtype), zero)


def clipped(errors: Errors, found: Float[Array, "B O"]) -> Float[Array, "B O"]:
    """Return errors, clipped at three times the root mean square (RMS) of earlier errors."""
    limit = jnp.where(errors.num_labels < FIRST, jnp.inf, LARGEST * jnp.sqrt(variance(errors)))
    return jnp.clip(found, -limit, limit)


def noted(errors: Errors, found: Float[Array, "B O"], known: Bool[Array, "B"]) -> Errors:
    """Return the moments after the errors of a step.

    Args:
        errors: moments before the step.
        found: errors of each stream.
        known: whether each stream has a label. Streams without a label do not change the moments.
    """
    taken = known.astype(found.dtype)
    labels = taken.sum()
    count = errors.num_labels + labels
    rate = jnp.minimum(labels / jnp.clip(count, 1.0, WINDOW), 1.0)
    each = taken / jnp.maximum(labels, 1.0)
    square = jnp.dot(each, jnp.mean(found * found, axis=-1))
    lagged = jnp.dot(each, jnp.mean(found * errors.last, axis=-1))
    return Errors(
        errors.mean_square + rate * (square - errors.mean_square),
        errors.lagged + rate * (lagged - errors.lagged),
        jnp.where(known[:, None], found, errors.last),
        count,
    )


def variance(errors: Errors) -> Float[Array, ""]:
    """Return R, the mean square of the errors, which is at least `_SMALLEST`."""
    return jnp.maximum(errors.mean_square, _SMALLEST)


def repetition(mean_square: Float[Array, "*O"], lagged: Float[Array, "*O"]) -> Float[Array, "*O"]:
    """Return `(1 + rho) / (1 - rho)`, the number of labels that count as one independent label.

    rho is the correlation of an error with the previous error, in [0, 0.99].

    Args:
        mean_square: mean square of the errors.
        lagged: mean product of an error and the previous error.
    """
    rho = jnp.clip(lagged / jnp.maximum(mean_square, _SMALLEST), 0.0, _MOST_REPEATED)
    return (1 + rho) / (1 - rho)
