"""Targets of linear experts for numbers and classes, and predictions from their scores.

numbers    two targets for each step ahead: differences from the mean and from the last number
classes    a one-hot vector; scores become logits of the classes that have been seen
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._types import Array, Float, Int
from foretrace.stream.experts.expert import Features
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape


class Numbers(eqx.Module):
    """Targets and predictions for a number at each step ahead.

    Args:
        outputs: number of steps ahead.
    """

    outputs: int = eqx.field(static=True)

    @property
    def width(self) -> int:
        """Number of targets of a label."""
        return 2 * self.outputs

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of the experts that learn these targets from one set of features."""
        return f"{name} from mean", f"{name} from last"

    def targets(self, label: Float[Array, "O"], features: Features) -> Float[Array, "W"]:
        """Return the two targets of each number, clipped at `reach`."""
        change = label - last_number(features)
        return jnp.clip(jnp.concatenate([label, change]), -TUNED.reach, TUNED.reach)

    def read(self, scores: Float[Array, "*S W"], features: Features) -> Float[Array, "E O"]:
        """Return the predicted numbers that follow from the scores of each feature set."""
        base = jnp.stack([jnp.zeros(()), last_number(features)])[None, :, None]
        scores = jnp.clip(scores, -TUNED.reach, TUNED.reach).reshape(-1, 2, self.outputs)
        return (scores + base).reshape(-1, self.outputs)


class Classes(eqx.Module):
    """Targets and predictions for a class.

    Args:
        outputs: maximum number of classes.
    """

    outputs: int = eqx.field(static=True)

    @property
    def width(self) -> int:
        """Number of targets of a label."""
        return self.outputs

    def names(self, name: str) -> tuple[str, ...]:
        """Return the name of the expert that learns these targets from one set of features."""
        return (name,)

    def targets(self, label: Float[Array, "O"], features: Features) -> Float[Array, "W"]:
        """Return the one-hot vector of a class."""
        return label

    def read(self, scores: Float[Array, "*S W"], features: Features) -> Float[Array, "E O"]:
        """Return the class probabilities for the scores of each feature set."""
        logits = TUNED.sharpness * jnp.clip(scores, -1.0, 2.0)
        return probabilities_of_seen(logits.reshape(-1, self.outputs), features.num_classes)


Answer = Numbers | Classes


def answer_of(shape: Shape) -> Answer:
    """Return the kind of targets for a stream: `Numbers` or `Classes`."""
    return Classes(shape.outputs) if shape.classes else Numbers(shape.outputs)


def last_number(features: Features) -> Float[Array, ""]:
    """Return the last known number in standard deviations, clipped at `far_change`, or the mean."""
    return jnp.clip(jnp.nan_to_num(features.labels[0]), -TUNED.far_change, TUNED.far_change)


def probabilities_of_seen(
    logits: Float[Array, "*E O"], num_classes: Int[Array, ""]
) -> Float[Array, "*E O"]:
    """Return the softmax over the classes seen so far; before any label, all on the first class."""
    seen = jnp.arange(logits.shape[-1], dtype=jnp.int32) < jnp.maximum(num_classes, 1)
    return jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), axis=-1)
