"""Recursive least squares with Huber weights, numerically safe over any number of rows.

    e     = y - f W,   w = min(1, c sigma / |e|)                    weight of an outlier (Huber)
    v     = P f,       u = v / sqrt(1 / w + f v)
    W     <- W + v e / (1 / w + f v)
    P     <- S (P - u u^T) S,   S_i = min(forget^{-1/2}, sqrt(prior / P_ii))

`P` is exactly symmetric, because every entry and its mirror image are the same products. It never
grows beyond its first trace, because no diagonal entry exceeds the prior: a direction that is not
excited forgets no further. Float64 is needed: `P` spans the squared condition number of the
features. K members share a recursion and forget by their own rows: the factor of a label is then
forget^{1/K}.

Outputs share `P`, and with it the mean of their weights. Sources: Ljung and Soderstrom, Theory and
practice of recursive identification, 1983; Huber, Robust statistics, 1981.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from foretrace._covariance import forgotten, products
from foretrace._experts.changes import RANGE, changes_of, numbers_of
from foretrace._experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace._experts.expert import AbstractExpert, Features, probabilities_of_seen
from foretrace._types import Array, Bool, Float

_HUBER = 1.5
_SHARPNESS = 6.0
"""Factor of the scores of classes in their logits.

The mixture can sharpen or soften logits; probabilities cut off at zero would not rank two unlikely
classes. Factors of 3, 10 and 20 were about equally good.
"""


class SquaresState(NamedTuple):
    """State of one recursion.

    Args:
        covariance: inverse of the weighted second moments of the features.
        weights: coefficients of each output.
        scale: scale of the error of each output.
        num_labels: number of labels.
    """

    covariance: Float[Array, "F F"]
    weights: Float[Array, "F O"]
    scale: ErrorScale
    num_labels: Float[Array, ""]


class Recursion(eqx.Module):
    """The recursion of the head of this module.

    Args:
        size: number of features.
        outputs: number of outputs.
        forget: factor by which old rows lose weight with every label.
        prior: variance of a coefficient before the first row.
        robust: whether outliers have smaller weights.
    """

    size: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    forget: float = eqx.field(static=True, default=0.9995)
    prior: float = eqx.field(static=True, default=1.0)
    robust: bool = eqx.field(static=True, default=True)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        shape, scale = (self.size, self.outputs), new_error_scale(jnp.zeros(self.outputs))
        return SquaresState(self.prior * jnp.eye(self.size), jnp.zeros(shape), scale, jnp.zeros(()))

    def learn(
        self,
        state: SquaresState,
        f: Float[Array, "F"],
        y: Float[Array, "O"],
        known: Bool[Array, ""],
        members: Float[Array, ""] | None = None,
    ) -> SquaresState:
        """Return the state after the targets of a row; as it was if they are not known."""
        P, W = state.covariance, state.weights
        error = y - f @ W
        size = jnp.abs(error)
        taken = known.astype(P.dtype)
        count = state.num_labels + taken
        is_settled = state.num_labels >= 10
        limit = jnp.where(is_settled, _HUBER * state.scale.size, jnp.inf)
        inverse = (
            jnp.maximum(size / jnp.maximum(limit, 1e-12), 1.0)
            if self.robust
            else jnp.ones_like(size)
        )
        v = products(P, f[None])
        power = jnp.maximum(f @ v[:, 0], 0.0)
        W = W + v * (taken * error / (inverse + power))[None]
        Y = v / jnp.sqrt(inverse.mean() + power)
        growth = 1 / self.forget if members is None else (1 / self.forget) ** (1 / members)
        P = forgotten(P, Y, growth=growth, largest=self.prior, known=known)
        scale = learned_error(
            state.scale, size, 5.0, taken / jnp.clip(count, 1.0, 300.0), is_settled
        )
        return SquaresState(P, W, scale, count)


class NumberSquares(AbstractExpert):
    """Least squares on one set of features, from the running mean and from the last number.

    Args:
        name: set of features, a field of `Features`.
        size: number of features.
        outputs: number of steps ahead.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        name = self.name.replace("_", " ")
        return (f"{name} from mean", f"{name} from last")

    @property
    def recursion(self) -> Recursion:
        """The recursion of both experts."""
        return Recursion(self.size, 2 * self.outputs, prior=0.1)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return self.recursion.init()

    def predict(self, state: SquaresState, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        return numbers_of(
            jnp.clip(getattr(features, self.name) @ state.weights, -RANGE, RANGE), features
        )

    def learn(
        self,
        state: SquaresState,
        features: Features,
        predicted: Float[Array, "E O"],
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> SquaresState:
        """Return the state after a label."""
        return self.recursion.learn(
            state,
            getattr(features, self.name),
            changes_of(label, features),
            known,
            features.members,
        )


class ClassSquares(AbstractExpert):
    """Least squares on one set of features for each class, as one-hot targets.

    Args:
        name: set of features, a field of `Features`.
        size: number of features.
        classes: maximum number of classes.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return (self.name.replace("_", " "),)

    @property
    def recursion(self) -> Recursion:
        """The recursion of the expert."""
        return Recursion(self.size, self.classes, robust=False)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return self.recursion.init()

    def predict(self, state: SquaresState, features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        scores = jnp.clip(getattr(features, self.name) @ state.weights, -1.0, 2.0)
        return probabilities_of_seen(_SHARPNESS * scores, features.num_classes)[None]

    def learn(
        self,
        state: SquaresState,
        features: Features,
        predicted: Float[Array, "E O"],
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> SquaresState:
        """Return the state after a label."""
        inputs = getattr(features, self.name)
        return self.recursion.learn(state, inputs, label, known, features.members)
