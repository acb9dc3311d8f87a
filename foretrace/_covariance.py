"""Covariances of recursive least squares: exactly symmetric, with bounded diagonals."""

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float

_FEW = 8
"""Number of vectors up to which sums over them are one loop over the matrix, without a product."""


_ROUNDING = 16
"""Number of rounding errors, for each entry of a row, by which a step raises a diagonal."""


def products(P: Float[Array, "... n n"], vectors: Float[Array, "R ... n"]) -> Float[Array, "... n R"]:
    """Return `P v` for each vector, as columns."""
    if len(vectors) > _FEW:
        return jnp.einsum("...ij,r...j->...ir", P, vectors)
    return jnp.stack([jnp.sum(P * v[..., None, :], axis=-1) for v in vectors], axis=-1)


def whitened(C: Float[Array, "R R"], V: Float[Array, "... R"]) -> Float[Array, "... R"]:
    """Return `V L^-T` with C = L L^T: its product with its own transpose is `V C^-1 V^T`."""
    if C.shape[-1] == 1:
        return V / jnp.sqrt(C[0, 0])
    size = C.shape[-1]
    # Directions below the rounding of the largest entry count as that large: the root always
    # exists, and no step is larger than C allows.
    floor = 4 * size * jnp.finfo(C.dtype).eps * jnp.diagonal(C).max()
    root = jnp.linalg.cholesky(C + floor * jnp.eye(size, dtype=C.dtype))
    rows = jnp.reshape(V, (-1, size))
    found = jax.scipy.linalg.solve_triangular(root, rows.T, lower=True)
    return found.T.reshape(V.shape)


def reduced(P: Float[Array, "... n n"], Y: Float[Array, "... n R"]) -> Float[Array, "... n n"]:
    """Return `P - Y Y^T`, exactly symmetric, with a diagonal raised by what rounding may take from it.

    Rounding changes an entry by a share of sqrt(P_ii P_jj). Without the raise it adds up over the
    labels, and a direction that is well known ends with a negative variance.
    """
    size = P.shape[-1]
    raised = _ROUNDING * size * jnp.finfo(P.dtype).eps * jnp.eye(size, dtype=P.dtype)
    floor = P * jnp.broadcast_to(raised, P.shape)
    if Y.shape[-1] > _FEW:
        found = P - Y @ jnp.matrix_transpose(Y)
        return 0.5 * (found + jnp.matrix_transpose(found)) + floor
    for r in range(Y.shape[-1]):
        y = Y[..., r]
        P = P - y[..., :, None] * y[..., None, :]
    return P + floor


def bounded(
    P: Float[Array, "... n n"], largest: float, growth: Float[Array, ""] | float = 1.0
) -> Float[Array, "... n n"]:
    """Return `S P S`, S diagonal, with no diagonal entry above the largest.

    Args:
        P: covariance.
        largest: largest variance; a direction that is not excited grows no further.
        growth: factor by which variances grow where they may.
    """
    diagonal = jnp.maximum(jnp.diagonal(P, axis1=-2, axis2=-1), jnp.finfo(P.dtype).tiny)
    scale = jnp.sqrt(jnp.minimum(growth, largest / diagonal))
    return P * (scale[..., :, None] * scale[..., None, :])
