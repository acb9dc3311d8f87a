"""Least squares on the features of a recurrent expert, in float32, with errors clipped."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from foretrace._learner.error_moments import Errors, clipped, init_errors, noted
from foretrace._types import Array, Bool, Float
from foretrace.heads import HeadState, LeastSquares
from foretrace.stream.experts.answer import RANGE, Answer, Classes
from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.shape import Shape

MAX_CLASSES, MAX_NUMBERS = 32, 8
"""Largest number of classes and of steps ahead, with which the time of a label grows."""


def fits(shape: Shape) -> bool:
    """Return whether streams of a shape use recurrent experts."""
    most = MAX_CLASSES if shape.classes else MAX_NUMBERS
    return shape.now_size > 0 and shape.first_outputs <= most


class ReadoutState(NamedTuple):
    """Learned state.

    Args:
        head: state of the least squares.
        errors: moments of the errors.
    """

    head: HeadState
    errors: Errors


class Readout(eqx.Module):
    """From features to numbers, or to probabilities of classes.

    Args:
        answer: what is predicted; numbers only from the mean.
    """

    answer: Answer

    @property
    def head(self) -> LeastSquares:
        """The least squares."""
        return LeastSquares()

    @property
    def classes(self) -> bool:
        """Whether classes are predicted."""
        return isinstance(self.answer, Classes)

    def init(self, size: int) -> ReadoutState:
        """Return the state before the first label, for a number of features."""
        head = self.head.init(size, self.answer.outputs, jnp.float32)
        return ReadoutState(head, init_errors(1, self.answer.outputs, jnp.float32))

    def predict(
        self, state: ReadoutState, f: Float[Array, "F"], features: Features
    ) -> Float[Array, "1 O"]:
        """Return the prediction of a row: numbers in standard deviations, or probabilities."""
        scores = self.head.scores(state.head, f).astype(features.row.dtype)
        if isinstance(self.answer, Classes):
            return self.answer.read(scores, features)
        return jnp.clip(scores, -RANGE, RANGE)[None]

    def error(
        self, state: ReadoutState, scores: Float[Array, "O"], lesson: Lesson
    ) -> Float[Array, "1 O"]:
        """Return the clipped errors of scores; zero without a label, and for unseen classes."""
        label = lesson.label.astype(scores.dtype)
        if not self.classes:
            found = jnp.clip(label, -RANGE, RANGE) - scores
            return clipped(state.errors, jnp.where(lesson.known, found, 0.0)[None])
        count = jnp.maximum(lesson.features.num_classes, 1)
        seen = (jnp.arange(self.answer.outputs, dtype=jnp.int32) < count) | (label > 0)
        found = label - 1 / count.astype(scores.dtype) - scores
        return clipped(state.errors, jnp.where(seen & lesson.known, found, 0.0)[None])

    def noted(self, state: ReadoutState, error: Float[Array, "1 O"], lesson: Lesson) -> Errors:
        """Return the moments of the errors after one more row: means over the seen classes."""
        if self.classes:
            count = jnp.clip(lesson.features.num_classes, 1, self.answer.outputs).astype(
                error.dtype
            )
            error = error * jnp.sqrt(self.answer.outputs / count)
        return noted(state.errors, error, lesson.known[None])

    def learn(
        self,
        state: ReadoutState,
        f: Float[Array, "F"],
        error: Float[Array, "1 O"],
        errors: Errors,
        known: Bool[Array, ""],
    ) -> ReadoutState:
        """Return the state after the errors of a row; their moments are already updated."""
        weights = known[None].astype(error.dtype)
        return ReadoutState(self.head.learn(state.head, f[None], error, weights), errors)
