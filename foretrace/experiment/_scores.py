"""The class of a sequence: the largest mean of its logits over the valid steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int
from foretrace.losses import accuracy
from foretrace.tasks import Batch, Task


class Scores(NamedTuple):
    """Results on sequences.

    Args:
        loss: the task's loss.
        accuracy: share of outputs that are right where something is asked, mean over sequences; for
            a task that classifies sequences, share of these classified rightly by the mean of their
            logits.
        sequences: share of sequences in which all outputs are right, or the class is.
    """

    loss: Float[Array, ""] | float
    accuracy: Float[Array, ""] | float
    sequences: Float[Array, ""] | float


class StepMetrics(NamedTuple):
    """Measurements of a training step, which leave the device as one array.

    Args:
        loss: loss of the batch.
        accuracy: its accuracy, as in `Scores`.
        gradient_norm: norm of the gradient; in chunks, the largest of any chunk's gradient.
        accepted: 1 if the step was accepted, 0 if it was refused because loss or gradient was not
            finite.
    """

    loss: float
    accuracy: float
    gradient_norm: float
    accepted: float


def selected_by(task: Task, scores: Scores) -> float:
    """Return the validation score that selects networks; larger is better.

    Only the class of a sequence counts; recalled bits saturate, their loss does not.
    """
    return float(scores.accuracy if task.labels == "sequence" else -scores.loss)


class _Tally(NamedTuple):
    """Sums over sequences, for batches of different sizes."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    sequences: Float[Array, ""]
    rows: Float[Array, ""]

    def scores(self) -> Scores:
        """Return the means."""
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
    # All of one type: between devices, these sums then travel together, with the gradient.
    each = losses, right, whole, jnp.ones_like(losses)
    return _Tally(*(jnp.where(counts, values, 0).sum() for values in each))


def _mean_logit_hits(
    outputs: Float[Array, "B T O"], ys: Int[Array, "B T"], mask: Float[Array, "B T"]
) -> Bool[Array, "B"]:
    """Return which sequences are classified correctly by their mean logits over masked steps.

    Args:
        outputs: logits of every step; at steps without a mask they do not matter, NaN included.
        ys: class of the sequence at every valid step.
        mask: zero at steps that do not count.
    """
    valid = mask > 0
    label = jnp.take_along_axis(ys, jnp.argmax(valid, axis=1, keepdims=True), axis=1)[:, 0]
    # The largest mean is that of the largest sum.
    total = jnp.where(valid[..., None], outputs, jnp.zeros_like(outputs)).sum(axis=1)
    return jnp.argmax(total, axis=1).astype(label.dtype) == label
