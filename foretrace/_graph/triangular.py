"""Cholesky factors and triangular systems in sums and products, because a graph has no LAPACK."""

from typing import Any

import jax.numpy as jnp

from foretrace._types import Array, Float


def cholesky(a: Float[Array, "... n n"]) -> Float[Array, "... n n"]:
    """Return L with `L L^T = a`, column by column; NaN if `a` is not positive definite.

    Args:
        a: symmetric matrices.
    """
    columns, rest = [], a
    for k in range(a.shape[-1]):
        column = rest[..., 0] / jnp.sqrt(rest[..., :1, 0])
        above = jnp.zeros((*a.shape[:-2], k), a.dtype)
        columns.append(jnp.concatenate([above, column] if k else [column], -1)[..., None])
        rest = rest[..., 1:, 1:] - column[..., 1:, None] * column[..., None, 1:]
    return jnp.concatenate(columns, axis=-1)


def triangular_solve(
    a: Float[Array, "... n n"],
    b: Float[Array, "... n m"],
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    unit_diagonal: bool,
    **_: Any,
) -> Float[Array, "... n m"]:
    """Return x with `op(a) x = b`, or with `x op(a) = b` if `left_side` is False.

    Args:
        a: matrices of which one triangle is read.
        b: right-hand sides; `(..., m, n)` if `left_side` is False.
        left_side: whether the matrix is on the left.
        lower: whether the lower triangle is read.
        transpose_a: whether the matrix is transposed.
        unit_diagonal: whether the diagonal counts as ones.
    """
    if not left_side:
        b = jnp.matrix_transpose(b)
    if transpose_a == left_side:
        a, lower = jnp.matrix_transpose(a), not lower
    if not lower:
        # In reversed order, an upper triangular matrix is lower triangular.
        a, b = a[..., ::-1, ::-1], b[..., ::-1, :]
    found = []
    for k in range(a.shape[-1]):
        row = b[..., :1, :] if unit_diagonal else b[..., :1, :] / a[..., k, k, None, None]
        found.append(row)
        b = b[..., 1:, :] - a[..., k + 1 :, k, None] * row
    x = jnp.concatenate(found if lower else found[::-1], axis=-2)
    return x if left_side else jnp.matrix_transpose(x)
