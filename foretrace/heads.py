"""Heads: readouts that replace the decoder of a network (`ft.heads`)."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from foretrace._cells.parts import check_numbers
from foretrace._covariance import forgotten, is_lost, products, resolved, whitened
from foretrace._types import Array, Float

_LEAST = 1e-12
"""Smallest variance that a covariance keeps when it is restarted."""


class HeadState(NamedTuple):
    """State of a least-squares head.

    Args:
        covariance: inverse of the weighted second moments of the features; the constant comes
            first.
        weights: coefficient of each feature for each output.
    """

    covariance: Float[Array, "F F"]
    weights: Float[Array, "F O"]


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """Head that fits a constant and the features f of a network by recursive least squares.

        F = [1, f],  g = F P F^T,  K = P F^T / (1 + g)
        W <- W + K e
        P <- S (P - K F P) S,  S_i = min(forget^{-1/2}, sqrt(prior / P_ii))

    e are the errors, and S is diagonal. Along a direction that the features do not contain, the
    variance never exceeds the prior, so P stays bounded for any number of labels. For classes, the
    targets are one-hot minus 1 / (number of classes), and the logits are the scores times
    `sharpness`.

    If the features of a row are huge, its weight is reduced to 1 / (16 n eps g), where n is the
    number of entries of F and eps is the precision of the numbers. No variance falls below eps^2
    times the prior. P therefore stays positive, and every coefficient can still change later.

    Args:
        forget: factor by which the weight of older labels is multiplied at every label.
        prior: variance of a coefficient before the first label, and its upper limit later.
        sharpness: factor by which scores are multiplied to get logits.

    Raises:
        ValueError: forget is outside (0, 1], or the prior or the sharpness is not positive.

    >>> import jax.numpy as jnp
    >>> head = least_squares(forget=1.0, prior=1e6)
    >>> state = head.init(1, 1)
    >>> for f, y in ((0.0, 1.0), (1.0, 3.0)):
    ...     f = jnp.array([[f]])
    ...     state = head.learn(state, f, y - head.scores(state, f), jnp.ones(1))
    >>> state.weights[:, 0].round(3).tolist()
    [1.0, 2.0]

    Source: Ljung and Soderstrom, Theory and practice of recursive identification, 1983.
    """

    forget: float = 0.9995
    prior: float = 1.0
    sharpness: float = 6.0

    def __post_init__(self) -> None:
        if not 0 < self.forget <= 1:
            raise ValueError(
                f"least_squares(forget={self.forget}) must lie in (0, 1]; 1 forgets nothing"
            )
        check_numbers("least_squares", prior=self.prior, sharpness=self.sharpness)

    def init(self, features: int, outputs: int, dtype: Any = None) -> HeadState:
        """Return the state before the first label."""
        covariance = self.prior * jnp.eye(features + 1, dtype=dtype)
        return HeadState(covariance, jnp.zeros((features + 1, outputs), dtype))

    def scores(self, state: HeadState, f: Float[Array, "*B F"]) -> Float[Array, "*B O"]:
        """Return the predictions from the features."""
        constant, W = state.weights[0], state.weights[1:]
        return jnp.inner(f, W.T) + jnp.broadcast_to(constant, (*f.shape[:-1], constant.size))

    def variance(self, state: HeadState, f: Float[Array, "B F"]) -> Float[Array, "B B"]:
        """Return `F P F^T` of the rows f of a step, relative to the variance of the noise."""
        rows = _with_constant(f)
        found = rows @ products(state.covariance, rows)
        # Rounding may make a variance negative, which no noise has.
        sane = jnp.diagonal(found) >= 0
        return jnp.where(sane[:, None] & sane[None], found, 0.0)

    def learn(
        self,
        state: HeadState,
        f: Float[Array, "B F"],
        errors: Float[Array, "B O"],
        weights: Float[Array, "B"],
    ) -> HeadState:
        """Return the state after the labels of the rows of a step.

        Rounding can make the covariance lose its positivity if features of very different sizes are
        nearly collinear. The variances are then kept, the covariances are set to zero, and the step
        is not learned.

        Args:
            state: state before the step.
            f: features of each row.
            errors: targets minus `scores`, for each row and output.
            weights: weight of each row; 0 for a row without a label.
        """
        P, rows = state.covariance, _with_constant(f)
        V = products(P, rows)
        lost = is_lost(P, rows, V)
        alone = jnp.where(np.eye(len(P), dtype=bool), jnp.clip(P, _LEAST, self.prior), 0.0)
        P = jnp.where(lost, alone, P)
        weights = jnp.where(lost, 0.0, weights)
        root = jnp.sqrt(resolved(weights, jnp.sum(rows * V.T, axis=1), len(P)))[:, None]
        rows, V = root * rows, root.T * V
        C = jnp.eye(len(rows), dtype=P.dtype) + rows @ V
        Y = whitened(C, V)
        W = state.weights + Y @ whitened(C, (root * errors).T).T
        labels = jnp.sum(weights > 0).astype(P.dtype)
        growth, known = self.forget**-labels, labels > 0
        P = forgotten(P, Y, growth=growth, largest=self.prior, known=known, more=0.0)
        return HeadState(P, W)


least_squares = LeastSquares
"""Least-squares head: `Learner(..., head=ft.heads.least_squares())`."""


def _with_constant(f: Float[Array, "B F"]) -> Float[Array, "B G"]:
    return jnp.concatenate([jnp.ones((len(f), 1), f.dtype), f], axis=1)
