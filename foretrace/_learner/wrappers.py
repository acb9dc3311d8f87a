"""Optimisers that wrap another optimiser: bounded updates, frozen parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._cells.parts import check_numbers
from foretrace._network import AbstractNetwork
from foretrace._types import Array, PyTree


def bounded(
    optimizer: optax.GradientTransformation, overshoot: float = 1.0
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser with bounded updates, for a loss that is never negative.

       predicted_decrease = -<gradient, update>    decrease of the loss, to first order
        update <- update * min(1, overshoot * loss / predicted_decrease)

    A loss that is never negative cannot decrease by more than its value, so an update with a larger
    predicted decrease goes past the minimum. The state is the state of the wrapped optimiser.
    `Learner` passes the loss of the chunk, `sum_t mask_t * loss_t`, to which the gradient belongs.

    Args:
        optimizer: optimiser to bound. A learner with `accumulate=True` raises an error, because the
            loss of the whole sequence is not known.
        overshoot: largest predicted decrease, as a fraction of the loss.

    Raises:
        ValueError: overshoot is not positive.
        TypeError: the loss was not passed to the update.

    >>> import jax.numpy as jnp, optax
    >>> optimizer = bounded(optax.sgd(100.0))
    >>> update, _ = optimizer.update(
    ...     jnp.array(2.0), optimizer.init(jnp.array(1.0)), value=jnp.array(1.0)
    ... )
    >>> float(update)  # loss x^2 at x = 1
    -0.5
    """
    check_numbers("bounded", overshoot=overshoot)
    inner = optax.with_extra_args_support(optimizer)

    def update(
        grads: Any, state: Any, params: Any = None, *, value: Array | None = None, **extra: Any
    ) -> tuple[Any, Any]:
        if value is None:
            raise TypeError(
                "a bounded optimiser needs the loss whose gradient it gets: update(..., "
                "value=loss). A Learner gives it, but not with accumulate=True, where the loss of "
                "the whole sequence is not known"
            )
        updates, state = inner.update(grads, state, params, value=value, **extra)
        decrease = -optax.tree.vdot(grads, updates)
        most = overshoot * value
        # The inner condition prevents a division by zero in the branch that is not taken.
        factor = jnp.where(decrease > most, most / jnp.where(decrease > 0, decrease, 1), 1).astype(
            decrease.dtype
        )
        return optax.tree.scale(factor, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def holding(
    optimizer: optax.GradientTransformation, held: Callable[[Any], PyTree[bool]]
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser that freezes some parameters: their gradients and updates are zero.

    Args:
        optimizer: optimiser of the other parameters. The frozen parameters do not count if it clips
            by the global norm.
        held: function from parameters (or gradients) to a tree that is True for frozen parameters,
            such as `partial(under, network.in_front_of_cells)`.

    >>> import jax.numpy as jnp, optax
    >>> optimizer = holding(optax.sgd(1.0), lambda tree: [True, False])
    >>> parameters = [jnp.array(1.0), jnp.array(1.0)]
    >>> updates, _ = optimizer.update(parameters, optimizer.init(parameters), parameters)
    >>> [float(update) for update in updates]
    [0.0, -1.0]
    """
    inner = optax.with_extra_args_support(optimizer)

    def closed(tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf, hold: jnp.zeros_like(leaf) if hold else leaf, tree, held(tree)
        )

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        updates, state = inner.update(closed(grads), state, params, **extra)
        return closed(updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def under(front: tuple[str, ...], params: AbstractNetwork) -> PyTree[bool]:
    """Return a tree that is True for parameters whose path begins with one of `front`."""
    return jax.tree.map_with_path(
        lambda path, _: jax.tree_util.keystr(path).startswith(front), params
    )
