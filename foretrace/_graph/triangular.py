"""Cholesky roots and triangular systems in products and sums: a plain graph calls no LAPACK."""

from typing import Any

import jax.numpy as jnp

from foretrace._types import Array, Float


def cholesky(a: Float[Array, "... n n"]) -> Float[Array, "... n n"]:
    """Return L with `L L^T = a`, column by column; NaN where `a` is not positive definite.

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
    """Return x with `op(a) x = b`, or `x op(a) = b` for `left_side=False`, as `jax.lax` defines it.

    Args:
        a: matrices of which one triangle counts.
        b: right sides; `(..., m, n)` for `left_side=False`.
        left_side: whether the matrix stands on the left.
        lower: whether the lower triangle counts.
        transpose_a: whether the matrix is transposed.
        unit_diagonal: whether the diagonal counts as ones.
    """
    if not left_side:
        b = jnp.matrix_transpose(b)
    if transpose_a == left_side:
        a, lower = jnp.matrix_transpose(a), not lower
    if not lower:
        # Read backwards, an upper triangle is a lower one.
        a, b = a[..., ::-1, ::-1], b[..., ::-1, :]
    found = []
    for k in range(a.shape[-1]):
        row = b[..., :1, :] if unit_diagonal else b[..., :1, :] / a[..., k, k, None, None]
        found.append(row)
        b = b[..., 1:, :] - a[..., k + 1 :, k, None] * row
    x = jnp.concatenate(found if lower else found[::-1], axis=-2)
    return x if left_side else jnp.matrix_transpose(x)
