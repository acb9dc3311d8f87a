"""The paper's optimiser, built from Optax, with packed moments."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._cells.abstract import AbstractCell, marked
from foretrace._cells.parts import check_numbers
from foretrace._learner.packing import Packing
from foretrace._network import AbstractNetwork
from foretrace._types import Array, Float, PyTree

_SMALL = 8192
"""Largest size of a leaf that is packed with others: 32 KiB, the size of a first-level cache."""


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
    """Return AdamW with a lower rate and no decay for the recurrence, and a learning-rate schedule.

    The rate rises linearly during the warm-up, then falls to zero along a cosine. The parameters
    that a cell names in `slow_parameters` (LRU: nu_log, theta_log, gamma_log) learn at
    `learning_rate * recurrent_factor`, without weight decay. All other parameters learn at
    `learning_rate`, with weight decay.

    Args:
        learning_rate: largest learning rate.
        steps: number of updates in the whole run, including the warm-up. The rate is zero after
            them. Default: a constant rate after the warm-up, as for a stream without end.
        warmup_steps: number of updates over which the rate rises from zero to `learning_rate`.
        recurrent_factor: learning rate of the slow parameters, relative to the others.
        weight_decay: AdamW's weight decay of the other parameters.
        clip: largest global norm of a gradient; larger gradients are scaled down. None for no
            clipping.
        b1, b2: exponential decay rates of Adam's moments.
        eps: term added to the root of Adam's second moment.

    Raises:
        ValueError: a rate, factor or decay is negative, eps or clip is not positive, or the warm-up
            is not shorter than the run.

    Source: Loshchilov and Hutter, ICLR 2019; the two groups of parameters are the paper's (appendix
        B).

    >>> import foretrace as ft
    >>> optimizer = ft.adamw(1e-3, steps=1000, warmup_steps=100)
    """
    rates = {"learning_rate": learning_rate, "recurrent_factor": recurrent_factor}
    check_numbers("adamw", allow_zero=True, **rates, weight_decay=weight_decay)
    check_numbers("adamw", eps=eps)
    if clip is not None and not clip > 0:
        raise ValueError(f"adamw(clip={clip}) must be positive, or None for no clipping")

    moments = optax.scale_by_adam(b1=b1, b2=b2, eps=eps)
    rate = schedule(learning_rate, steps=steps, warmup_steps=warmup_steps)
    return optax.chain(
        _packed(moments if clip is None else optax.chain(_clipped(clip), moments)),
        optax.masked(optax.add_decayed_weights(weight_decay), partial(is_slow, wanted=False)),
        optax.masked(optax.scale(recurrent_factor), is_slow),
        optax.scale_by_learning_rate(rate),
    )


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Return Optax's Adam with packed moments, faster in compiled steps of small networks."""
    return optax.chain(_packed(optax.scale_by_adam()), optax.scale_by_learning_rate(learning_rate))


def norm(tree: PyTree[Array]) -> Float[Array, ""]:
    """Return the global norm of a tree."""
    return optax.tree.norm(packing_of(tree).pack(tree))


def updated(
    optimizer: optax.GradientTransformation,
    network: Any,
    opt_state: optax.OptState,
    grads: Any,
    **known: Array,
) -> tuple[Any, optax.OptState, Float[Array, ""]]:
    """Return network and optimiser state after an update, and the norm of the update.

    Args:
        optimizer: any Optax optimiser.
        network: network before the update.
        opt_state: state of the optimiser before the update.
        grads: gradient.
        known: further arguments that the optimiser may read, such as `value`, the loss.
    """
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        grads, opt_state, network, **known
    )
    return optax.apply_updates(network, updates), opt_state, norm(updates)


def packing_of(params: Any) -> Packing:
    """Return the packing of parameters, which the moments of the optimiser use."""
    return Packing(params, _SMALL)


def _packed(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Apply a transformation to packed updates; it must not read the parameters."""

    def init(params: Any) -> Any:
        return inner.init(packing_of(params).pack(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        packing = packing_of(updates)
        changed, state = inner.update(packing.pack(updates), state)
        return packing.unpack(changed), state

    return optax.GradientTransformation(init, update)


def _clipped(most: float) -> optax.GradientTransformation:
    """Return Optax's `clip_by_global_norm` as one factor, without another pass over memory."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        factor = jnp.minimum(1, most / optax.tree.norm(updates))
        return jax.tree.map(lambda u: factor.astype(u.dtype) * u, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def schedule(learning_rate: float, *, steps: int | None, warmup_steps: int = 0) -> optax.Schedule:
    """Return the learning rate as a function of the update: warm-up, then cosine to zero.

    Raises:
        ValueError: the warm-up is negative, or not shorter than the run.

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


def is_slow(params: AbstractNetwork, wanted: bool = True) -> PyTree[bool]:
    """Return, for each parameter, whether its cell lists it in `slow_parameters`.

    Args:
        params: network, or a gradient of it.
        wanted: value for slow parameters; the other parameters get the opposite value.
    """

    def of_cell(cell: Any) -> PyTree[bool]:
        slow, name = marked(cell, "slow_parameters"), jax.tree_util.keystr

        def one(path: Any, _: Any) -> bool:
            # A name may stand for all parameters below it.
            return slow.isdisjoint({name(path[: i + 1]) for i in range(len(path))}) != wanted

        return jax.tree.map_with_path(one, cell)

    return jax.tree.map(of_cell, params, is_leaf=lambda node: isinstance(node, AbstractCell))
