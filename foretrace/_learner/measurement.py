"""Predictions and targets in second-order steps and least-squares heads, for either loss."""

from typing import Any

import jax

from foretrace._types import Array, Float
from foretrace.losses import SoftmaxCrossEntropy, squared_error


class Numbers:
    """Outputs for `squared_error`: numbers, which are the predictions themselves."""

    def targets(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return the targets of the decoder's predictions."""
        return y.astype(like.dtype)

    def centred(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return the targets of a least-squares head."""
        return self.targets(y, like)

    def predictions(self, outputs: Float[Array, "O"], y: Array) -> Float[Array, "O"]:
        """Return the predictions that a decoder's outputs mean."""
        return outputs

    def outputs(self, scores: Float[Array, "*B O"], sharpness: float) -> Float[Array, "*B O"]:
        """Return the outputs for the scores of a least-squares head."""
        return scores


class Classes:
    """Outputs for `softmax_cross_entropy`: logits, whose targets are one-hot."""

    def targets(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return one-hot targets, in the shape of the network's outputs."""
        return jax.nn.one_hot(y, _classes(y, like), dtype=like.dtype).reshape(like.shape)

    def centred(self, y: Array, like: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return one-hot targets, shifted so that their mean over the classes is zero."""
        return self.targets(y, like) - 1 / _classes(y, like)

    def predictions(self, outputs: Float[Array, "O"], y: Array) -> Float[Array, "O"]:
        """Return the probabilities that a decoder's logits mean."""
        return jax.nn.softmax(outputs.reshape(-1, _classes(y, outputs))).reshape(outputs.shape)

    def outputs(self, scores: Float[Array, "*B O"], sharpness: float) -> Float[Array, "*B O"]:
        """Return the logits for the scores of a least-squares head."""
        return sharpness * scores


def measurement_of(loss: Any) -> Numbers | Classes:
    """Return how a loss is measured: `Numbers` or `Classes`.

    Raises:
        ValueError: neither `ft.kalman` nor a least-squares head works with this loss.
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
    """Return the number of classes of an output; the loss has already checked the targets."""
    return outputs.size // y.size
