"""Losses of one step, `loss(output, y)` (`ft.losses`). Each is a mean over the outputs."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._types import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """The loss `-log softmax(output)[y]`, averaged over the outputs if there are several.

    If a label is not one of the classes, `gradient`, `alignment` and `Learner.step` raise an error.
    In a compiled program, such a label makes loss and gradient NaN, so that a learner refuses the
    step and counts it in `skipped`.

    Args:
        ignore_label: label that marks an output as not counting, such as -1. The loss and gradient
            of this output are zero, and the mean is over the other outputs. Default: no such label.

    >>> import jax.numpy as jnp
    >>> loss = SoftmaxCrossEntropy(ignore_label=-1)
    >>> [round(float(loss(jnp.zeros(4), jnp.array(y))), 4) for y in ([0, 1], [0, -1], [-1, -1])]
    [0.6931, 0.6931, 0.0]
    """

    ignore_label: int | None = None

    def __call__(self, output: Float[Array, "O"], y: Int[Array, "..."]) -> Float[Array, ""]:
        """Return the loss of a step.

        Args:
            output: logits. For k outputs of c classes each, k * c logits, ordered output by output.
            y: class, or k classes.

        Raises:
            TypeError: y does not hold integers.
            ValueError: the number of logits is not a multiple of the number of labels.
        """
        logits = _by_output(output, y)
        y = jnp.asarray(y)
        is_class = (y >= 0) & (y < logits.shape[-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(is_class, y, 0))
        counts = jnp.ones_like(is_class) if self.ignore_label is None else y != self.ignore_label
        # A product, because it also makes the gradient NaN. Optax counts a negative label from the
        # end.
        losses = losses * jnp.where(is_class | ~counts, 1.0, jnp.nan).astype(losses.dtype)
        if self.ignore_label is None:
            return losses.mean()
        return jnp.where(counts, losses, 0.0).sum() / jnp.maximum(counts.sum(), 1).astype(
            losses.dtype
        )

    def check(self, output_size: int, ys: Any) -> None:
        """Check labels before they are used.

        Args:
            output_size: number of outputs of the network.
            ys: labels of the steps that count, with these steps on the first axis.

        Raises:
            ValueError: a label is neither a class nor the label to ignore.
        """
        ys = np.asarray(ys)
        outputs = int(np.prod(ys.shape[1:]))
        if not np.issubdtype(ys.dtype, np.integer) or not outputs or output_size % outputs:
            return  # the loss itself raises the error
        classes = output_size // outputs
        wrong = ys[((ys < 0) | (ys >= classes)) & (ys != self.ignore_label)]
        if wrong.size:
            raise ValueError(
                f"ys holds the label {wrong[0]} ({wrong.size} labels are no class), expected 0 to "
                f"{classes - 1} for {classes} classes; leave such steps out with mask, or name a "
                "label that does not count: ft.losses.SoftmaxCrossEntropy(ignore_label=-1)"
            )


softmax_cross_entropy: SoftmaxCrossEntropy = SoftmaxCrossEntropy()
"""The loss `-log softmax(output)[y]`, averaged over the outputs; every label counts."""


def squared_error(output: Float[Array, "O"], y: Float[Array, "O"]) -> Float[Array, ""]:
    """Return half the squared difference, averaged over the outputs.

    Raises:
        ValueError: y does not have the shape of the output.
    """
    _check_shape("squared_error", output, y)
    return 0.5 * jnp.mean((output - y) ** 2)


def binary_cross_entropy(output: Float[Array, "O"], y: Array) -> Float[Array, ""]:
    """Return `-y log p - (1 - y) log(1 - p)` with p = sigmoid(output), averaged over the outputs.

    Args:
        output: logits.
        y: 0 or 1, a boolean, or a probability, for each output. If there is one output, the axis
            may be left out.

    Raises:
        ValueError: y does not have as many elements as there are outputs.

    >>> import jax.numpy as jnp
    >>> float(binary_cross_entropy(jnp.zeros(2), jnp.array([True, False]))).__round__(4)
    0.6931
    """
    y = jnp.asarray(y, output.dtype)
    y = y[None] if y.shape == () and output.shape == (1,) else y
    _check_shape("binary_cross_entropy", output, y)
    return optax.sigmoid_binary_cross_entropy(output, y).mean()


def huber(output: Float[Array, "O"], y: Float[Array, "O"]) -> Float[Array, ""]:
    """Return Huber's loss with threshold 1, averaged over the outputs.

    Up to an error of one it equals `squared_error`, and beyond it is linear, so that the derivative
    for an outlier is at most one. For another threshold, scale the targets, or use
    `optax.losses.huber_loss`.

    Raises:
        ValueError: y does not have the shape of the output.

    >>> import jax.numpy as jnp
    >>> float(huber(jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0])))
    1.5
    """
    _check_shape("huber", output, y)
    return optax.losses.huber_loss(output, y).mean()


def accuracy(output: Float[Array, "O"], y: Int[Array, "..."]) -> Float[Array, ""]:
    """Return the fraction of outputs whose most probable class is y: a metric, not a loss."""
    return jnp.mean((jnp.argmax(_by_output(output, y), -1) == y).astype(output.dtype))


def _check_shape(loss: str, output: Array, y: Any) -> None:
    if output.shape != jnp.shape(y):
        raise ValueError(
            f"{loss}: y has shape {jnp.shape(y)}, expected that of the output, {output.shape}"
        )


def _by_output(output: Array, y: Array) -> Array:
    y = jnp.asarray(y)
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise TypeError(
            f"y must hold integer classes, got {y.dtype}; use squared_error for real targets"
        )
    classes, rest = divmod(output.size, max(y.size, 1))
    if rest or classes < 2:
        raise ValueError(
            f"{output.size} logits cannot be {y.size} outputs (y has shape {y.shape}) of at least "
            "two classes each"
        )
    return jax.numpy.reshape(output, (*y.shape, classes))
