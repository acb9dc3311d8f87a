"""The paper's optimiser from Optax parts; any other Optax optimiser works as well, and any can be bounded."""

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._learner.nodes import child
from foretrace._network import AbstractNetwork
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
        learning_rate: largest rate.
        steps: number of updates of the whole run, warm-up included: the rate is zero after them. A constant rate
            (after the warm-up) if not given, as for a stream without end.
        warmup_steps: number of updates over which the rate rises from zero to `learning_rate`.
        recurrent_factor: rate of the recurrence relative to that of the other parameters.
        weight_decay: AdamW's weight decay of the other parameters.
        clip: largest global norm of a gradient; None for no clipping.
        b1, b2: exponential decay rates of Adam's moments.
        eps: term added to the root of Adam's second moment.

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


def _is(group: str, params: AbstractNetwork) -> PyTree[bool]:
    return jax.tree.map(lambda label: label == group, labels(params))


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


def labels(params: AbstractNetwork) -> PyTree[str]:
    """Label every parameter of a network (or a gradient of it) with its group."""

    def label(path: tuple, _: object) -> str:
        owner: Any = params
        for entry in path[:-1]:
            owner = child(owner, entry)
        slow = getattr(owner, "slow_parameters", ())
        return RECURRENT if getattr(path[-1], "name", None) in slow else REST

    return jax.tree.map_with_path(label, params)
