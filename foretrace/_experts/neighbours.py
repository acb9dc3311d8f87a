"""Nearest neighbours among the last rows: what followed when the past looked like this.

The squared distances to all rows are one product of a matrix with a vector: |x|^2 - 2 x q + |q|^2.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from foretrace._experts.changes import changes_of, numbers_of
from foretrace._experts.expert import AbstractExpert, Features
from foretrace._types import Array, Bool, Float, Int


class Neighbourhood(NamedTuple):
    """The last rows, in a ring.

    Args:
        rows: features of the rows.
        squares: squared norm of each row; infinite where there is none.
        labels: labels of the rows.
        place: place of the next row.
    """

    rows: Float[Array, "N F"]
    squares: Float[Array, "N"]
    labels: Float[Array, "N O"]
    place: Int[Array, ""]


class AbstractNeighbours(AbstractExpert):
    """The mean label of the nearest rows, the nearer ones with more weight.

    Args:
        name: name of the expert.
        size: number of features: the first ones of `short`, which belong to the row alone, or all
            of them.
        outputs: number of steps ahead, or of classes.
        rows: number of rows that are kept.
        nearest: number of neighbours.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    rows: int = eqx.field(static=True, default=1000)
    nearest: int = eqx.field(static=True, default=8)

    def _init(self, labels: int) -> Neighbourhood:
        return Neighbourhood(
            jnp.zeros((self.rows, self.size), jnp.float32),
            jnp.full(self.rows, jnp.inf, jnp.float32),
            jnp.zeros((self.rows, labels)),
            jnp.zeros((), jnp.int32),
        )

    def _mean(
        self, state: Neighbourhood, features: Features
    ) -> tuple[Float[Array, "O"], Float[Array, ""]]:
        """Return the weighted mean of the nearest labels, and the sum of weights, or 0."""
        q = features.short[: self.size].astype(jnp.float32)
        distances = jnp.maximum(state.squares - 2 * (state.rows @ q) + q @ q, 0.0)
        negative, places = lax.top_k(-distances, self.nearest)
        near = jnp.isfinite(negative)
        distance = jnp.where(near, -negative, 0.0).astype(state.labels.dtype)
        there = near.astype(state.labels.dtype)
        spread = (distance * there).sum() / jnp.maximum(there.sum(), 1)
        weights = there / (distance + 0.3 * spread + 1e-6)
        weights = weights / jnp.maximum(weights.max(), 1e-30)
        return (weights @ state.labels[places]) / jnp.maximum(weights.sum(), 1e-30), weights.sum()

    def learn(
        self,
        state: Neighbourhood,
        features: Features,
        predicted: Float[Array, "E O"],
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> Neighbourhood:
        """Return the state after a label: the row takes the place of the oldest one."""
        # All reads of the rows stand before the writes: the compiler then writes in place.
        known = known & jnp.isfinite(predicted).all()
        q, at = features.short[: self.size].astype(jnp.float32), state.place
        return Neighbourhood(
            state.rows.at[at].set(jnp.where(known, q, state.rows[at])),
            state.squares.at[at].set(jnp.where(known, q @ q, state.squares[at])),
            state.labels.at[at].set(jnp.where(known, label, state.labels[at])),
            jnp.where(known, jnp.where(at + 1 == self.rows, 0, at + 1), at).astype(jnp.int32),
        )


class NumberNeighbours(AbstractNeighbours):
    """Nearest neighbours of numbers, from the mean and from the last number."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return (f"{self.name} from mean", f"{self.name} from last")

    def init(self) -> Neighbourhood:
        """Return the state before the first row."""
        return self._init(2 * self.outputs)

    def predict(self, state: Neighbourhood, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        mean, _ = self._mean(state, features)
        return numbers_of(mean, features)

    def learn(
        self,
        state: Neighbourhood,
        features: Features,
        predicted: Float[Array, "E O"],
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> Neighbourhood:
        """Return the state after a label."""
        return super().learn(state, features, predicted, changes_of(label, features), known)


class ClassNeighbours(AbstractNeighbours):
    """Nearest neighbours of classes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return (self.name,)

    def init(self) -> Neighbourhood:
        """Return the state before the first row."""
        return self._init(self.outputs)

    def predict(self, state: Neighbourhood, features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        mean, total = self._mean(state, features)
        seen = (
            jnp.arange(self.outputs, dtype=jnp.int32) < jnp.maximum(features.num_classes, 1)
        ).astype(mean.dtype)
        even = seen / seen.sum()
        return ((mean * total + 0.3 * even) / (mean.sum() * total + 0.3))[None]
