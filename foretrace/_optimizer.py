"""The paper's optimiser from Optax parts; any other Optax optimiser works as well, and any can be bounded."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._network import Network
from foretrace._types import Array, Float, PyTree

RECURRENT, REST = "recurrent", "rest"
_SMALL = 8192
"""Numbers of a leaf that goes with others: 32 KiB, what a first-level cache holds."""


def adamw(
    learning_rate: float = 1e-3,
    *,
    steps: int | None = None,
    warmup_steps: int = 0,
    recurrent_factor: float = 0.5,
    weight_decay: float = 0.0,
    clip: float | None = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """AdamW with a slow, undecayed group for the recurrence; linear warm-up, then cosine to zero.

    The group is what a cell names in `slow_parameters` (LRU: nu_log, theta_log, gamma_log): it learns at
    `learning_rate * recurrent_factor` and is not decayed. Everything else learns at `learning_rate` with decay. All
    parameters have to be of one dtype, as those of a `Network` are.

    Args:
        learning_rate: the largest rate.
        steps: number of updates of the whole run, warm-up included: the rate is zero after them. A constant rate
            (after the warm-up) if not given, as for a stream without end.
        warmup_steps: updates over which the rate rises from zero to `learning_rate`.
        recurrent_factor: rate of the recurrence relative to the rest.
        weight_decay: AdamW's, of the rest.
        clip: largest global norm of a gradient; None does not clip.
        b1, b2: decays of Adam's moments.
        eps: added to the root of Adam's second moment.

    Raises:
        ValueError: a negative rate, factor or decay, eps or clip not positive, or a warm-up that is not shorter
            than the run.

    Source: Loshchilov and Hutter, ICLR 2019; the grouping is the paper's (appendix B).

    >>> import foretrace as ft
    >>> optimizer = ft.adamw(1e-3, steps=1000, warmup_steps=100)
    """
    numbers = {"learning_rate": learning_rate, "recurrent_factor": recurrent_factor, "weight_decay": weight_decay}
    for name, value in numbers.items():
        if not value >= 0:
            raise ValueError(f"adamw({name}={value}) must not be negative")
    if not eps > 0:
        raise ValueError(f"adamw(eps={eps}) must be positive")
    if clip is not None and not clip > 0:
        raise ValueError(f"adamw(clip={clip}) must be positive, or None for no clipping")

    moments = optax.scale_by_adam(b1=b1, b2=b2, eps=eps)
    rate = schedule(learning_rate, steps=steps, warmup_steps=warmup_steps)
    return optax.chain(
        _on_parts(moments if clip is None else optax.chain(_clipped(clip), moments)),
        optax.masked(optax.add_decayed_weights(weight_decay), partial(_is, REST)),
        optax.masked(optax.scale(recurrent_factor), partial(_is, RECURRENT)),
        optax.scale_by_learning_rate(rate),
    )


def parts(tree: PyTree[Array]) -> list[Array]:
    """Return the large leaves as they are, and all small ones as one vector behind them.

    For a small network this spares dozens of small operations at each step; a copy of what is large would cost more.
    """
    large, small = _by_size(jax.tree.leaves(tree))
    return large + ([jnp.concatenate([jnp.ravel(leaf) for leaf in small])] if small else [])


def norm(tree: PyTree[Array]) -> Float[Array, ""]:
    """Return the norm of all leaves."""
    leaves = jax.tree.leaves(tree)
    return optax.tree.norm(parts(leaves) if len({leaf.dtype for leaf in leaves}) == 1 else leaves)


def _by_size(leaves: list[Array]) -> tuple[list[Array], list[Array]]:
    return [leaf for leaf in leaves if leaf.size > _SMALL], [leaf for leaf in leaves if leaf.size <= _SMALL]


def _whole(parts: list[Array], like: PyTree[Array]) -> PyTree[Array]:
    """Undo `parts`."""
    leaves, structure = jax.tree.flatten(like)
    small = _by_size(leaves)[1]
    ends = list(itertools.accumulate(leaf.size for leaf in small))
    pieces = iter(jnp.split(parts[-1], ends[:-1]) if small else [])
    large = iter(parts)
    return structure.unflatten(
        [next(large) if leaf.size > _SMALL else next(pieces).reshape(leaf.shape) for leaf in leaves]
    )


def _on_parts(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Apply a transformation that does not look at the parameters, to `parts`."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        changed, state = inner.update(parts(updates), state)
        return _whole(changed, updates), state

    return optax.GradientTransformation(lambda params: inner.init(parts(params)), update)


def _clipped(most: float) -> optax.GradientTransformation:
    """Return Optax's `clip_by_global_norm` as one factor, which needs no pass over memory of its own."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return optax.tree.scale(jnp.minimum(1, most / optax.tree.norm(updates)), updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def _is(group: str, params: Network) -> PyTree[bool]:
    return jax.tree.map(lambda label: label == group, labels(params))


def bounded(optimizer: optax.GradientTransformation, overshoot: float = 1.0) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser that promises no more than the loss can fall.

        promise = -<gradient, update>        by how much the update lowers the loss, to first order
        update <- update * min(1, overshoot * loss / promise)

    A loss that is never negative cannot fall by more than itself: a larger promise goes past the minimum. The state is
    that of the optimiser. `Learner` gives the loss of the chunk, `sum_t mask_t * loss_t`, whose gradient it is.

    Args:
        optimizer: any; for `accumulate=True` there is no loss of the whole sequence, and the bound is an error.
        overshoot: largest promise, as a share of the loss.

    Raises:
        ValueError: overshoot is not positive.
        TypeError: an update without the loss.

    >>> import jax.numpy as jnp, optax
    >>> optimizer = bounded(optax.sgd(100.0))
    >>> update, _ = optimizer.update(jnp.array(2.0), optimizer.init(jnp.array(1.0)), value=jnp.array(1.0))
    >>> float(update)  # loss x^2 at x = 1
    -0.5
    """
    if not overshoot > 0:
        raise ValueError(f"bounded(overshoot={overshoot}) must be positive; leave the bound out for none")
    inner = optax.with_extra_args_support(optimizer)

    def update(
        grads: Any, state: Any, params: Any = None, *, value: Array | None = None, **extra: Any
    ) -> tuple[Any, Any]:
        if value is None:
            raise TypeError(
                "a bounded optimiser needs the loss whose gradient it gets: update(..., value=loss). A Learner gives "
                "it, but not with accumulate=True, where the loss of the whole sequence is not known"
            )
        updates, state = inner.update(grads, state, params, value=value, **extra)
        promise = -optax.tree.vdot(grads, updates)
        most = overshoot * value
        factor = jnp.where(promise > most, most / jnp.where(promise > 0, promise, 1), 1).astype(promise.dtype)
        return optax.tree.scale(factor, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def holding(
    optimizer: optax.GradientTransformation, held: Callable[[Any], PyTree[bool]]
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser that leaves some parameters as they are: their gradients and updates are zero.

    Args:
        optimizer: of the rest; held parameters count for nothing in a clip by the global norm.
        held: a function from parameters (or gradients) to a tree that is True for those to be held, such as
            `in_front_of_recurrences`.

    >>> import jax.numpy as jnp, optax
    >>> optimizer = holding(optax.sgd(1.0), lambda tree: [True, False])
    >>> parameters = [jnp.array(1.0), jnp.array(1.0)]
    >>> updates, _ = optimizer.update(parameters, optimizer.init(parameters), parameters)
    >>> [float(update) for update in updates]
    [0.0, -1.0]
    """
    inner = optax.with_extra_args_support(optimizer)

    def closed(tree: Any) -> Any:
        return jax.tree.map(lambda leaf, hold: jnp.zeros_like(leaf) if hold else leaf, tree, held(tree))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        updates, state = inner.update(closed(grads), state, params, **extra)
        return closed(updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def in_front_of_recurrences(params: Network) -> PyTree[bool]:
    """Return True for the encoder and the norms in front of the cells.

    What they do acts on the outputs through the memory of the recurrence behind them alone. A rule that is not open
    through time for inputs knows only the part of it that passes at the present step.
    """
    pre = params.blocks.norm_place == "pre"

    def front(path: tuple, _: object) -> bool:
        names = [getattr(entry, "name", None) for entry in path]
        return names[0] == "encoder" or (pre and names[:2] == ["blocks", "norm"])

    return jax.tree.map_with_path(front, params)


def schedule(learning_rate: float, *, steps: int | None, warmup_steps: int = 0) -> optax.Schedule:
    """Return the rate as a function of the number of updates done: warm-up, then cosine, zero at `steps`.

    Raises:
        ValueError: negative warm-up, or one that is not shorter than the run.

    >>> rate = schedule(1.0, steps=10, warmup_steps=2)
    >>> [round(float(rate(i)), 2) for i in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if warmup_steps < 0 or (steps is not None and warmup_steps >= steps):
        raise ValueError(f"warmup_steps={warmup_steps} must lie in [0, steps) with steps={steps}")
    if steps is None:
        if not warmup_steps:
            return optax.constant_schedule(learning_rate)
        return optax.linear_schedule(0.0, learning_rate, warmup_steps)
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0 if warmup_steps else learning_rate,
        peak_value=learning_rate,
        warmup_steps=warmup_steps,
        decay_steps=steps,
    )


def labels(params: Network) -> PyTree[str]:
    """Label every parameter of a network (or a gradient of it) with its group."""
    slow = params.blocks.cell.slow_parameters

    def label(path: tuple, _: object) -> str:
        name = getattr(path[-1], "name", None)
        in_cell = any(getattr(entry, "name", None) == "cell" for entry in path[:-1])
        return RECURRENT if in_cell and name in slow else REST

    return jax.tree.map_with_path(label, params)
