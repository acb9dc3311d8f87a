"""Nearest neighbours of a row among the last rows, by their features.

The squared distances to all rows need only one product of a matrix with a vector: |x|^2 - 2 x q +
|q|^2.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from foretrace._types import Array, Float, Int
from foretrace.stream.experts.answer import Answer, Numbers
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson


class Neighbourhood(NamedTuple):
    """The last rows, in a ring buffer.

    Args:
        rows: features of the rows.
        squares: squared norm of each row; infinite if there is no row.
        targets: targets of the rows' labels.
        place: place of the next row.
    """

    rows: Float[Array, "N F"]
    squares: Float[Array, "N"]
    targets: Float[Array, "N W"]
    place: Int[Array, ""]


class Neighbours(AbstractExpert):
    """Expert that predicts the mean target of the nearest rows; nearer rows have more weight.

    Args:
        name: name of the expert.
        size: number of features. It is either all features of `short`, or only the first ones,
            which belong to the row itself.
        answer: kind of the targets.
        rows: number of stored rows.
        nearest: number of neighbours.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    answer: Answer
    rows: int = eqx.field(static=True, default=1000)
    nearest: int = eqx.field(static=True, default=8)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return self.answer.names(self.name)

    def init(self) -> Neighbourhood:
        """Return the state before the first row."""
        return Neighbourhood(
            rows=jnp.zeros((self.rows, self.size), jnp.float32),
            squares=jnp.full(self.rows, jnp.inf, jnp.float32),
            targets=jnp.zeros((self.rows, self.answer.width)),
            place=jnp.zeros((), jnp.int32),
        )

    def predict(self, state: Neighbourhood, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead, or the probabilities of the classes."""
        q = self._query(features)
        distances = jnp.maximum(state.squares - 2 * (state.rows @ q) + q @ q, 0.0)
        negative, places = lax.top_k(-distances, self.nearest)
        near = jnp.isfinite(negative)
        distance = jnp.where(near, -negative, 0.0).astype(state.targets.dtype)
        there = near.astype(state.targets.dtype)
        spread = (distance * there).sum() / jnp.maximum(there.sum(), 1)
        weights = there / (distance + 0.3 * spread + 1e-6)
        weights = weights / jnp.maximum(weights.max(), 1e-30)
        mean = (weights @ state.targets[places]) / jnp.maximum(weights.sum(), 1e-30)
        if isinstance(self.answer, Numbers):
            return self.answer.read(mean, features)
        places = jnp.arange(self.answer.outputs, dtype=jnp.int32)
        seen = (places < jnp.maximum(features.num_classes, 1)).astype(mean.dtype)
        total = weights.sum()
        return ((mean * total + 0.3 * seen / seen.sum()) / (mean.sum() * total + 0.3))[None]

    def learn(self, state: Neighbourhood, lesson: Lesson) -> Neighbourhood:
        """Return the state after a label, whose row replaces the oldest row."""
        # All reads of the rows come before the writes, so that the compiler writes in place.
        known = lesson.known & jnp.isfinite(lesson.predicted).all()
        q, at = self._query(lesson.features), state.place
        targets = self.answer.targets(lesson.label, lesson.features)
        return Neighbourhood(
            rows=state.rows.at[at].set(jnp.where(known, q, state.rows[at])),
            squares=state.squares.at[at].set(jnp.where(known, q @ q, state.squares[at])),
            targets=state.targets.at[at].set(jnp.where(known, targets, state.targets[at])),
            place=jnp.where(known, jnp.where(at + 1 == self.rows, 0, at + 1), at).astype(jnp.int32),
        )

    def _query(self, features: Features) -> Float[Array, "F"]:
        return features.short[: self.size].astype(jnp.float32)
