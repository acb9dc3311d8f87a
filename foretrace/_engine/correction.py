"""First-order correction of the states after the parameters change."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell
from foretrace._credit.table import moved_from_below, own_sensitivity
from foretrace._engine.layers import each_stream
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.sensitivity import attach
from foretrace._types import Array, Sensitivity, Stack, State


def corrected(
    network: AbstractNetwork, change: Any, carry: Carry, limit: float, *, batched: bool
) -> Carry:
    """Return the carry with states `h + clip(e * d_theta, limit)` for a change d_theta.

    d_theta is the change of the parameters. All sensitivities of the carry are used: to a layer's
    own coefficients and, under a rule with a credit depth, to the layers below. If the rule carries
    no sensitivities, the states are unchanged.

    Args:
        network: network before the change.
        change: change of the parameters, a tree like the network.
        carry: states and sensitivities.
        limit: largest change of a state; for a complex state, of each of its two parts.
        batched: whether the carry has an axis of streams.
    """
    if carry.e is None:
        return carry
    e, move = own_sensitivity(carry.e), partial(_moved, batched=batched)
    found = network.each_cell(move, change.cells, carry.h, e)
    add = partial(moved_from_below, change=change)
    return _added(carry, each_stream(add, batched, in_axes=1, out_axes=1)(found, carry.e), limit)


class Kept(NamedTuple):
    """A carry that is stored, and learned from after the parameters have changed.

    Args:
        carry: states and sensitivities of one stream.
        linear: e * theta in float64, which equals the states to first order up to a constant. None
            under a rule that carries no sensitivities.
    """

    carry: Carry
    linear: Stack | None

    @classmethod
    def of(cls, network: AbstractNetwork, carry: Carry) -> "Kept":
        """Return a carry to store, together with the present parameters of the network."""
        return cls(carry, None if carry.e is None else _linear(network, carry))

    def now(self, network: AbstractNetwork, limit: float) -> Carry:
        """Return the carry, to first order, as if these parameters had computed it.

        The change of the coefficients is exact. Each state changes by at most `limit`.
        """
        if self.linear is None:
            return self.carry
        change = jax.tree.map(jnp.subtract, _linear(network, self.carry), self.linear)
        return _added(self.carry, change, limit)


def _added(carry: Carry, change: Stack, limit: float) -> Carry:
    def add(h: Array, d: Array) -> Array:
        return h + _clipped(d, limit).astype(h.dtype)

    return carry._replace(h=jax.tree.map(add, carry.h, change))


def _linear(network: AbstractNetwork, carry: Carry) -> Stack:
    network, carry = jax.tree.map(_widened, (network, carry))
    own = network.each_cell(_of_coefficients, carry.h, own_sensitivity(carry.e))
    return moved_from_below(own, carry.e, network)


def _of_coefficients(cell: AbstractCell, h: Stack, e: Sensitivity) -> Stack:
    theta = cell.coefficients()
    return jax.jvp(lambda theta: attach(h, e, theta), (theta,), (theta,))[1]


def _widened(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return leaf.astype(jnp.complex128 if jnp.iscomplexobj(leaf) else jnp.float64)


def _moved(
    cell: AbstractCell, change: AbstractCell, h: Stack, e: Sensitivity, *, batched: bool
) -> Stack:
    """Return the change of a layer's states that a change of its own coefficients causes."""
    theta, d_theta = jax.jvp(lambda cell: cell.coefficients(), (cell,), (change,))

    def move(h: State, e: Sensitivity) -> State:
        # The linearisation that stands for the past, applied in the forward direction.
        return jax.jvp(lambda theta: attach(h, e, theta), (theta,), (d_theta,))[1]

    return each_stream(move, batched)(h, e)


def _clipped(change: Array, limit: float) -> Array:
    if jnp.iscomplexobj(change):
        return lax.complex(
            jnp.clip(change.real, -limit, limit), jnp.clip(change.imag, -limit, limit)
        )
    return jnp.clip(change, -limit, limit)
