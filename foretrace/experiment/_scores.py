"""Scores of sequences. The class of a sequence has the largest mean logit over the valid steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int
from foretrace.losses import accuracy
from foretrace.tasks import Batch, Task


class Scores(NamedTuple):
    """Results on sequences.

    Args:
        loss: loss of the task.
        accuracy: fraction of correct outputs among the steps that count, averaged over sequences.
            In a task that classifies sequences, it is the fraction of sequences that are classified
            correctly by their mean logits.
        sequences: fraction of sequences in which all outputs, or the class, are correct.
    """

    loss: Float[Array, ""] | float
    accuracy: Float[Array, ""] | float
    sequences: Float[Array, ""] | float


class StepMetrics(NamedTuple):
    """Measurements of a training step, which are read from the device as one array.

    Args:
        loss: loss of the batch.
        accuracy: accuracy of the batch, as in `Scores`.
        gradient_norm: norm of the gradient; if a sequence is learned in chunks, the largest norm of
            a chunk.
        accepted: 1 if the step was accepted, 0 if it was refused because loss or gradient was not
            finite.
    """

    loss: float
    accuracy: float
    gradient_norm: float
    accepted: float


def selected_by(task: Task, scores: Scores) -> float:
    """Return the validation score that selects networks; larger is better.

    This is the accuracy if sequences are classified. If steps are recalled, it is the negative
    loss, because the accuracy saturates.
    """
    return float(scores.accuracy if task.labels == "sequence" else -scores.loss)


class _Tally(NamedTuple):
    """Sums over sequences, from which means over batches of different sizes are computed."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    sequences: Float[Array, ""]
    rows: Float[Array, ""]

    def scores(self) -> Scores:
        """Return the means over the sequences."""
        return Scores(self.loss / self.rows, self.accuracy / self.rows, self.sequences / self.rows)


def _tally(task: Task, outputs: Float[Array, "B T O"], batch: Batch) -> _Tally:
    asked = batch.mask > 0
    counts = asked.any(axis=1)
    losses = jax.vmap(jax.vmap(task.loss))(outputs, batch.ys)
    losses = jnp.where(asked, losses * batch.mask, 0).sum(axis=1)
    if task.labels == "sequence":
        right = whole = _mean_logit_hits(outputs, batch.ys, batch.mask).astype(losses.dtype)
    else:
        score = getattr(task, "score", None)
        ys = batch.ys.astype(int) if score is None else batch.ys
        hits = jax.vmap(jax.vmap(accuracy if score is None else score))(outputs, ys)
        steps = jnp.maximum(asked.sum(axis=1), 1).astype(hits.dtype)
        right = jnp.where(asked, hits, 0).sum(axis=1) / steps
        whole = jnp.where(asked, hits == 1, True).all(axis=1).astype(losses.dtype)
    # All have one type, so that devices exchange these sums together with the gradient.
    each = losses, right, whole, jnp.ones_like(losses)
    return _Tally(*(jnp.where(counts, values, 0).sum() for values in each))


def _mean_logit_hits(
    outputs: Float[Array, "B T O"], ys: Int[Array, "B T"], mask: Float[Array, "B T"]
) -> Bool[Array, "B"]:
    """Return which sequences are classified correctly by their mean logits over masked steps.

    Args:
        outputs: logits of every step. Logits of steps outside of the mask are ignored, also NaN.
        ys: class of the sequence, at every valid step.
        mask: zero at steps that do not count.
    """
    valid = mask > 0
    label = jnp.take_along_axis(ys, jnp.argmax(valid, axis=1, keepdims=True), axis=1)[:, 0]
    # The class with the largest sum also has the largest mean.
    total = jnp.where(valid[..., None], outputs, jnp.zeros_like(outputs)).sum(axis=1)
    return jnp.argmax(total, axis=1).astype(label.dtype) == label
