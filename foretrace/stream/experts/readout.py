"""Least-squares readout of the features of a recurrent expert, in float32, with clipped errors."""

import equinox as eqx
import jax.numpy as jnp

from foretrace._learner.error_moments import Errors, clipped, init_errors, noted
from foretrace._types import Array, Bool, Float
from foretrace.heads import HeadState, LeastSquares
from foretrace.stream.experts.answer import Answer, Classes
from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape

MAX_CLASSES, MAX_NUMBERS = 32, 8
"""Maximum numbers of classes and of steps ahead, because the time of a label grows with them."""


def fits(shape: Shape) -> bool:
    """Return whether streams of these sizes use recurrent experts."""
    most = MAX_CLASSES if shape.classes else MAX_NUMBERS
    return shape.now_size > 0 and shape.first_outputs <= most


class Readout(eqx.Module):
    """Readout from features to numbers or to probabilities of classes.

    Args:
        answer: kind of the targets. For numbers, only the difference from the mean is a target.
    """

    answer: Answer

    @property
    def head(self) -> LeastSquares:
        """The least-squares head, with its default options."""
        return LeastSquares()

    @property
    def classes(self) -> bool:
        """Whether classes are predicted."""
        return isinstance(self.answer, Classes)

    def init(self, size: int) -> tuple[HeadState, Errors]:
        """Return head and error moments before the first label, for a number of features."""
        head = self.head.init(size, self.answer.outputs, jnp.float32)
        return head, init_errors(1, self.answer.outputs, jnp.float32)

    def predict(self, scores: Float[Array, "O"], features: Features) -> Float[Array, "1 O"]:
        """Return the prediction for scores of the head: numbers, or probabilities of classes."""
        scores = scores.astype(features.row.dtype)
        if isinstance(self.answer, Classes):
            return self.answer.read(scores, features)
        return jnp.clip(scores, -TUNED.reach, TUNED.reach)[None]

    def error(
        self, errors: Errors, scores: Float[Array, "O"], lesson: Lesson
    ) -> Float[Array, "1 O"]:
        """Return the clipped errors of scores; zero without a label, and for unseen classes."""
        label = lesson.label.astype(scores.dtype)
        if not self.classes:
            found = jnp.clip(label, -TUNED.reach, TUNED.reach) - scores
            return clipped(errors, jnp.where(lesson.known, found, 0.0)[None])
        count = jnp.maximum(lesson.features.num_classes, 1)
        seen = (jnp.arange(self.answer.outputs, dtype=jnp.int32) < count) | (label > 0)
        found = label - 1 / count.astype(scores.dtype) - scores
        return clipped(errors, jnp.where(seen & lesson.known, found, 0.0)[None])

    def noted(self, errors: Errors, error: Float[Array, "1 O"], lesson: Lesson) -> Errors:
        """Return the moments of the errors after one more row, as means over the seen classes."""
        if self.classes:
            count = jnp.clip(lesson.features.num_classes, 1, self.answer.outputs).astype(
                error.dtype
            )
            error = error * jnp.sqrt(self.answer.outputs / count)
        return noted(errors, error, lesson.known[None])

    def learned(
        self,
        head: HeadState,
        f: Float[Array, "F"],
        error: Float[Array, "1 O"],
        known: Bool[Array, ""],
    ) -> HeadState:
        """Return the state of the head after the errors of a row."""
        return self.head.learn(head, f[None], error, known[None].astype(error.dtype))
