"""Covariances of recursive least squares: exactly symmetric, with bounded diagonals."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._types import Array, Bool, Float

_FEW = 8
"""Number of vectors up to which their sums are one loop over the matrix, instead of a product."""


_ROUNDING = 16
"""Number of rounding errors, for each entry of a row, by which a step increases a diagonal."""

_NONE = 1e-12
"""Rounding error that needs no increase, because it adds up to less than any label's effect."""


def products(
    P: Float[Array, "... n n"], vectors: Float[Array, "R ... n"]
) -> Float[Array, "... n R"]:
    """Return `P v` for each vector, as columns."""
    return jnp.einsum("...ij,r...j->...ir", P, vectors)


def whitened(C: Float[Array, "R R"], V: Float[Array, "... R"]) -> Float[Array, "... R"]:
    """Return `V L^-T` with C = L L^T: its product with its own transpose is `V C^-1 V^T`."""
    return V @ inverse_root(C).T


def inverse_root(C: Float[Array, "R R"]) -> Float[Array, "R R"]:
    """Return `L^-1` with C = L L^T, L lower triangular."""
    size = C.shape[-1]
    if size == 1:
        return 1 / jnp.sqrt(C)
    # Directions below the rounding error of the largest entry count as equal to this error, so that
    # the root always exists, and no step is larger than C allows.
    floor = 4 * size * jnp.finfo(C.dtype).eps * jnp.diagonal(C).max()
    unit = jnp.eye(size, dtype=C.dtype)
    C = C + floor * unit
    if size > _FEW:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(C), unit, lower=True)
    # Elimination row by row, because a library call costs more than this for such a small matrix.
    left, rows = jnp.concatenate([C, unit], axis=1), []
    for k in range(size):
        rows.append(left[k] / jnp.sqrt(left[k, k]))
        left = left - rows[k][:size, None] * rows[k][None]
    return jnp.stack(rows)[:, size:]


def resolved(
    weights: Float[Array, "B"], variances: Float[Array, "B"], size: int
) -> Float[Array, "B"]:
    """Return row weights that are small enough for rounding not to hide the remaining variance.

    A row of weight w and variance g = f P f^T leaves at least 1 / (1 + w g) of each variance. If
    this were less than the rounding error of P, the difference P - Y Y^T could be negative. If
    rounding has made g itself negative, the row is not learned.

    Args:
        weights: weight of each row.
        variances: variance g of each row.
        size: size of P.
    """
    kind = jnp.finfo(weights.dtype)
    limit = 1 / (_ROUNDING * size * weights.size * float(kind.eps))
    weights = jnp.minimum(weights, limit / jnp.maximum(variances, kind.tiny))
    return jnp.where(variances < 0, 0.0, weights)


def is_lost(
    P: Float[Array, "n n"], rows: Float[Array, "B n"], V: Float[Array, "n B"]
) -> Bool[Array, ""]:
    """Return whether rounding has made a variance negative, so that P is no covariance.

    By Cauchy and Schwarz, `(P f)_i^2 <= P_ii f^T P f`. Each entry of P may be wrong by some
    rounding errors of sqrt(P_ii P_jj).

    Args:
        P: covariance.
        rows: vectors f.
        V: products `P f`, as columns.
    """
    sizes = jnp.sqrt(jnp.maximum(jnp.diagonal(P), 0.0))
    variances = jnp.maximum(jnp.sum(rows * V.T, axis=1), 0.0)
    slack = (_ROUNDING * len(P) * float(jnp.finfo(P.dtype).eps)) ** 0.5 * (jnp.abs(rows) @ sizes)
    return (jnp.abs(V) > sizes[:, None] * (jnp.sqrt(variances) + slack)[None]).any()


def reduced(
    P: Float[Array, "... n n"],
    Y: Float[Array, "... n R"],
    *,
    more: Float[Array, ""] | float | None = None,
    largest: Float[Array, "... n"] | float = float("inf"),
    least: Float[Array, "... n"] | float | None = None,
    known: Bool[Array, ""] | bool = True,
) -> Float[Array, "... n n"]:
    """Return `P - Y Y^T`, exactly symmetric, with a diagonal that is increased to absorb rounding.

    Rounding changes an entry by a fraction of sqrt(P_ii P_jj). These errors add up over the labels
    and could make a small variance negative, so a small number is added to the diagonal.

    Args:
        P: covariance.
        Y: factor of the subtracted matrix; zero if nothing is known.
        more: further variance that is added to the diagonal. Default: none. In float64 the diagonal
            is then not increased, which suffices while vectors are bounded.
        largest: upper limit to which variances are increased: one number, or one for each
            coefficient.
        least: smallest variance: one number, or one for each coefficient. Only the diagonal is
            increased, because a factor for row and column would also multiply entries that are
            correct.
        known: whether there is a label. If not, P is returned bit for bit.
    """
    if Y.shape[-1] > _FEW:
        after = P - Y @ jnp.matrix_transpose(Y)
        after = 0.5 * (after + jnp.matrix_transpose(after))
    else:
        # A zero that is read from an entry of P. The compiler may then not write over P while it
        # reads P, and only such a loop uses the vector units of a CPU.
        after = P + jnp.where(P.ravel()[0] > 0, 0.0, -0.0).astype(P.dtype)
        for r in range(Y.shape[-1]):
            y = Y[..., r]
            after = after - y[..., :, None] * y[..., None, :]
    eps = jnp.finfo(P.dtype).eps
    on_diagonal = np.broadcast_to(np.eye(P.shape[-1], dtype=bool), P.shape)
    if least is not None:
        floor = jnp.broadcast_to(least, P.shape[:-1])[..., None]
        after = jnp.where(on_diagonal & known, jnp.maximum(after, floor), after)
    if eps < _NONE and more is None:
        return after
    # Entry by entry, so that all of it is one loop over P.
    added = jnp.clip(
        jnp.broadcast_to(largest, P.shape[:-1])[..., None] - P,
        0.0,
        (0.0 if more is None else more) + _ROUNDING * P.shape[-1] * eps * P,
    )
    return after + jnp.where(on_diagonal & known, added, 0.0)


def forgotten(
    P: Float[Array, "... n n"],
    Y: Float[Array, "... n R"],
    *,
    growth: Float[Array, ""] | float,
    largest: Float[Array, "... n"] | float,
    known: Bool[Array, ""],
    more: float | None = None,
) -> Float[Array, "... n n"]:
    """Return the covariance after a label, with forgetting: `S (P - Y Y^T) S`.

    S is the diagonal matrix that multiplies each variance by `growth`, up to `largest`. No variance
    falls below `largest * eps**2`, because a smaller one would round to zero and could not grow
    again.

    Args:
        P: covariance.
        Y: factor of the subtracted matrix.
        growth: factor by which variances grow.
        largest: upper limit of the variances: one number, or one for each coefficient.
        known: whether there is a label. If not, P is returned bit for bit.
        more: variance that is added to the diagonal, as in `reduced`.
    """
    kind = jnp.finfo(P.dtype)

    def factors() -> tuple[Array, Array]:
        left = jnp.diagonal(P, axis1=-2, axis2=-1) - jnp.sum(Y * Y, axis=-1)
        scale = jnp.sqrt(jnp.minimum(growth, largest / jnp.maximum(left, kind.tiny)))
        return scale, Y * scale[..., None]

    # A branch, because the compiler would otherwise compute these vectors, and everything on which
    # they depend, again for each entry of P.
    scale, Y = lax.cond(known, factors, lambda: (jnp.ones_like(Y[..., 0]), jnp.zeros_like(Y)))
    P = P * (scale[..., :, None] * scale[..., None, :])
    least = largest * float(kind.eps) ** 2
    return reduced(P, Y, more=more, largest=largest, least=least, known=known)
