"""Running scale of an error, which ignores outliers and restarts when the scale changes.

   s <- s + rate (min(|e|, bound s) - s)
    s <- mean |e| of the last clipped errors, after `new_errors` consecutive errors were clipped

The second line is needed for a scale that has fallen to zero on exactly predicted rows. Without it,
such a scale would grow only by a small factor with each error, and the smaller the scale, the
longer this would take.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.settings import TUNED

_LEAST = 1e-12


class ErrorScale(NamedTuple):
    """Running scale of the error of each output.

    Args:
        size: mean absolute error.
        run: number of the last consecutive errors that were clipped.
        run_size: mean absolute value of these errors.
    """

    size: Float[Array, "*S O"]
    run: Float[Array, "*S O"]
    run_size: Float[Array, "*S O"]


def new_error_scale(size: Float[Array, "*S O"]) -> ErrorScale:
    """Return the scale before the first error."""
    return ErrorScale(size, jnp.zeros_like(size), jnp.zeros_like(size))


def learned_error(
    scale: ErrorScale,
    error: Float[Array, "*S O"],
    bound: float,
    rate: Float[Array, "*O"],
    settled: Bool[Array, "*O"],
    least: float = _LEAST,
) -> ErrorScale:
    """Return the scale after an error.

    Args:
        scale: scale before the error.
        error: absolute error of each output.
        bound: multiple of the scale at which an error is clipped.
        rate: weight of the error in the mean; 0 if the error is not known.
        settled: whether errors are clipped. At first, no scale is known.
        least: error that is not clipped even if the scale is zero.
    """
    limit = jnp.where(settled, bound * scale.size + least, jnp.inf)
    known, is_outlier = rate > 0, error > limit
    run = jnp.where(is_outlier, scale.run + 1, 0.0)
    run_size = jnp.where(
        is_outlier, scale.run_size + (error - scale.run_size) / jnp.maximum(run, 1.0), 0.0
    )
    is_new = run >= TUNED.new_errors
    size = jnp.where(is_new, run_size, scale.size + rate * (jnp.minimum(error, limit) - scale.size))
    after = ErrorScale(size, jnp.where(is_new, 0.0, run), jnp.where(is_new, 0.0, run_size))
    return optax.tree.where(known, after, scale)
