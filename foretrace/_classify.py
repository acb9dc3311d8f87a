"""The prediction of a network that has logits at every step: the class with the largest mean over the valid steps."""

from typing import NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int


class Hits(NamedTuple):
    """Which sequences of a batch are classified rightly; the hits of several batches may be concatenated or summed.

    Args:
        right: whether the prediction is the class, False where nothing counts.
        counts: whether the sequence has a valid step.
    """

    right: Bool[Array, "B"]
    counts: Bool[Array, "B"]


def mean_logits(outputs: Float[Array, "B T O"], mask: Float[Array, "B T"]) -> Float[Array, "B O"]:
    """Return the mean of the logits over the steps whose mask is not zero; zero if there is none.

    Outputs at other steps do not matter, NaN included.
    """
    valid = (mask > 0)[..., None]
    total = jnp.where(valid, outputs, jnp.zeros_like(outputs)).sum(axis=1)
    return total / jnp.maximum(valid.sum(axis=1), 1).astype(outputs.dtype)


def mean_logit_hits(outputs: Float[Array, "B T O"], ys: Int[Array, "B T"], mask: Float[Array, "B T"]) -> Hits:
    """Return which sequences are classified rightly by the mean of their logits.

    Args:
        outputs: logits of every step.
        ys: class of the sequence at every valid step.
        mask: zero at steps that do not count; a sequence without any other does not count.
    """
    valid = mask > 0
    counts = valid.any(axis=1)
    label = jnp.take_along_axis(ys, jnp.argmax(valid, axis=1, keepdims=True), axis=1)[:, 0]
    predicted = jnp.argmax(mean_logits(outputs, mask), axis=1).astype(label.dtype)
    return Hits((predicted == label) & counts, counts)


def mean_logit_accuracy(
    outputs: Float[Array, "B T O"], ys: Int[Array, "B T"], mask: Float[Array, "B T"]
) -> Float[Array, ""]:
    """Return the share of sequences classified rightly by the mean of their logits; NaN if none counts.

    The mean of this over batches that are not equally full is not the share over all of their sequences: for that,
    add up `mean_logit_hits`.

    >>> import jax.numpy as jnp
    >>> outputs = jnp.array([[[2.0, 0.0], [0.0, 1.0], [0.0, 9.0]]])
    >>> float(mean_logit_accuracy(outputs, jnp.zeros((1, 3), int), jnp.array([[0.5, 0.5, 0.0]])))
    1.0
    """
    hits = mean_logit_hits(outputs, ys, mask)
    return hits.right.sum().astype(outputs.dtype) / hits.counts.sum().astype(outputs.dtype)
