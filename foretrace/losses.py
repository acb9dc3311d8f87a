"""Losses of one step, `loss(output, y)`: `ft.losses`. Each is a mean over the outputs."""

import jax
import jax.numpy as jnp
import optax

from foretrace._types import Array, Float, Int


def softmax_cross_entropy(output: Float[Array, "O"], y: Int[Array, "..."]) -> Float[Array, ""]:
    """Return `-log softmax(output)[y]`, averaged over the outputs if there are several.

    Args:
        output: logits. For k outputs of c classes each, k * c logits, output by output.
        y: class, or k classes.

    Raises:
        TypeError: y does not hold integers.
        ValueError: the number of logits is not a multiple of the number of labels.

    >>> import jax.numpy as jnp
    >>> float(softmax_cross_entropy(jnp.zeros(14), jnp.zeros(7, int))).__round__(4)
    0.6931
    """
    logits = _by_output(output, y)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def squared_error(output: Float[Array, "O"], y: Float[Array, "O"]) -> Float[Array, ""]:
    """Return half the squared difference, averaged over the outputs.

    Raises:
        ValueError: y does not have the shape of the output.
    """
    if output.shape != jnp.shape(y):
        raise ValueError(f"squared_error: y has shape {jnp.shape(y)}, expected that of the output, {output.shape}")
    return 0.5 * jnp.mean((output - y) ** 2)


def accuracy(output: Float[Array, "O"], y: Int[Array, "..."]) -> Float[Array, ""]:
    """Return the share of outputs whose most probable class is y. This is a metric and not a loss."""
    return jnp.mean((jnp.argmax(_by_output(output, y), -1) == y).astype(output.dtype))


def _by_output(output: Array, y: Array) -> Array:
    y = jnp.asarray(y)
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise TypeError(f"y must hold integer classes, got {y.dtype}; use squared_error for real targets")
    classes, rest = divmod(output.size, max(y.size, 1))
    if rest or classes < 2:
        raise ValueError(
            f"{output.size} logits cannot be {y.size} outputs (y has shape {y.shape}) of at least two classes each"
        )
    return jax.numpy.reshape(output, (*y.shape, classes))
