"""Predictions of second-order steps and heads by least squares: numbers, or coded classes."""

from typing import Any

import jax

from foretrace._types import Array, Float
from foretrace.losses import SoftmaxCrossEntropy, squared_error


class Numbers:
    """Outputs that are the predictions, for `squared_error`."""

    def targets(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return the targets of a decoder."""
        return y.astype(like.dtype)

    def centred(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return the targets of least squares."""
        return self.targets(y, like)

    def predictions(self, outputs: Float[Array, "O"], y: Array) -> Float[Array, "O"]:
        """Return the predictions of a decoder's outputs."""
        return outputs

    def outputs(self, scores: Float[Array, "*B O"], sharpness: float) -> Float[Array, "*B O"]:
        """Return the outputs from the scores of least squares."""
        return scores


class Classes:
    """Outputs that are logits, for `softmax_cross_entropy`: the targets are one-hot."""

    def targets(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return one-hot targets, a class for each output of the network."""
        return jax.nn.one_hot(y, _classes(y, like), dtype=like.dtype).reshape(like.shape)

    def centred(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return one-hot targets, whose mean over the classes is zero."""
        return self.targets(y, like) - 1 / _classes(y, like)

    def predictions(self, outputs: Float[Array, "O"], y: Array) -> Float[Array, "O"]:
        """Return the probabilities that a decoder's logits stand for."""
        return jax.nn.softmax(outputs.reshape(-1, _classes(y, outputs))).reshape(outputs.shape)

    def outputs(self, scores: Float[Array, "*B O"], sharpness: float) -> Float[Array, "*B O"]:
        """Return the logits from the scores of least squares."""
        return sharpness * scores


def measurement_of(loss: Any) -> Numbers | Classes:
    """Return what a loss predicts: numbers or classes.

    Raises:
        ValueError: neither `ft.kalman` nor a head by least squares works with this loss.
    """
    if loss is squared_error:
        return Numbers()
    if isinstance(loss, SoftmaxCrossEntropy) and loss.ignore_label is None:
        return Classes()
    raise ValueError(
        f"loss={loss!r:.80} does not go with ft.kalman or a head by least squares: use "
        "ft.losses.squared_error for numbers, or ft.losses.softmax_cross_entropy (without a label "
        "to ignore) for classes"
    )


def _classes(y: Array, outputs: Array) -> int:
    """Return the number of classes of an output; the loss has checked the targets."""
    return outputs.size // y.size
