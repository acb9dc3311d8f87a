"""States after a change of parameters: the memory of the new parameters, to first order."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell
from foretrace._credit.table import own_sensitivity
from foretrace._engine.layers import each_stream
from foretrace._modules import ModuleNetwork
from foretrace._network import AbstractNetwork, Network
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.sensitivity import attach
from foretrace._types import Array, Sensitivity, Stack, State


def corrected(
    network: AbstractNetwork, change: Any, carry: Carry, limit: float, *, batched: bool
) -> Carry:
    """Return the carry with `h + clip(e * d_theta, limit)`, d_theta the change of the coefficients.

    Only the sensitivities of each layer to its own coefficients are used. Under a rule that carries
    none the states stay as they are.

    Args:
        network: network before the change.
        change: tree like the network, added to its parameters.
        carry: states and sensitivities.
        limit: largest change of a state; of real and imaginary part each.
        batched: whether the carry has an axis of streams.
    """
    if carry.e is None:
        return carry
    e, move = own_sensitivity(carry.e), partial(_moved, limit=limit, batched=batched)
    if isinstance(network, ModuleNetwork):
        h = _each_module(network, change, carry.h, e, move)
    else:
        assert isinstance(network, Network)
        h = jax.vmap(move)(network.blocks.cell, change.blocks.cell, carry.h, e)
    return carry._replace(h=h)


def _each_module(network: ModuleNetwork, change: Any, h: Any, e: Any, move: Any) -> Any:
    # Every leaf has an axis of one in front.
    h, e = jax.tree.map(lambda leaf: leaf[0], (h, e))
    layers = zip(network.layers, change.layers, h, e, strict=True)
    moved = tuple(tuple(map(move, *layer)) for layer in layers)
    return jax.tree.map(lambda leaf: leaf[None], moved)


def _moved(
    cell: AbstractCell,
    change: AbstractCell,
    h: Stack,
    e: Sensitivity,
    *,
    limit: float,
    batched: bool,
) -> Stack:
    theta, d_theta = jax.jvp(lambda cell: cell.coefficients(), (cell,), (change,))

    def move(h: State, e: Sensitivity) -> State:
        # The linearisation that stands for the past, read forwards.
        _, d = jax.jvp(lambda theta: attach(h, e, theta), (theta,), (d_theta,))
        return jax.tree.map(lambda leaf, moved: leaf + _clipped(moved, limit), h, d)

    return each_stream(move, batched)(h, e)


def _clipped(change: Array, limit: float) -> Array:
    if jnp.iscomplexobj(change):
        return lax.complex(
            jnp.clip(change.real, -limit, limit), jnp.clip(change.imag, -limit, limit)
        )
    return jnp.clip(change, -limit, limit)
