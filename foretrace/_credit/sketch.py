"""Sketched credit: one rank-one estimate of the sensitivity of all states to all parameters, right on average (UORO).

For a stack of recurrences with states h (of all layers, as one vector) and parameters theta,

    dh/dtheta  is carried as  s t^T,   E[s t^T] = dh/dtheta

    s <- rho_0 J s + rho_1 nu,   t <- t / rho_0 + (nu^T F) / rho_1,   J = dh'/dh,  F = dh'/dtheta,  nu = +-1

so that nothing is left out, in memory of |theta| + |h|, at the price of noise. Here F and J are those of a whole chunk,
in which derivatives are exact; rho_0 and rho_1 make both summands of s as long as those of t. Several independent
sketches are averaged.

Source: Tallec and Ollivier, Unbiased online recurrent optimization, 2018.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._credit.noise import seed_of
from foretrace._network import Network
from foretrace._types import Array, Float, PyTree

_TINY = 1e-30


Parameters = Any
"""A tree of real arrays."""


Stack = Any
"""The states of all layers: one leaf for each state dimension of a module."""


class Sketch(NamedTuple):
    """Estimates of the sensitivity of a stack, side by side on the first axis.

    Args:
        states: s, the shapes of the states behind that axis.
        parameters: t, the parameters of encoder and blocks as one vector.
    """

    states: Stack
    parameters: Float[Array, "..."]


def parameters_below(network: Network) -> Parameters:
    """Return the parameters that act on states: all but those of the decoder."""
    return (network.encoder, network.blocks)


def init_sketch(network: Network, h: Stack, number: int) -> Sketch:
    """Return the sketch before the first step, zero."""

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((number, *leaf.shape), leaf.dtype)

    return Sketch(jax.tree.map(zeros, h), zeros(_vector(parameters_below(network))))


def attach_sketch(h: Stack, sketch: Sketch, parameters: Parameters) -> Stack:
    """Make states a function of the parameters, with value h and the mean of the sketches as derivative."""
    moved = _vector(parameters)
    # Zero, with the derivative of each sketch.
    along = sketch.parameters @ (moved - lax.stop_gradient(moved)) / len(sketch.parameters)
    return jax.tree.map(lambda x, s: x + jnp.tensordot(along.astype(s.dtype), s, 1), h, sketch.states)


def advance_sketch(
    function: Callable[[Parameters, Stack], Stack],
    parameters: Parameters,
    h: Stack,
    sketch: Sketch,
) -> Sketch:
    """Return the sketches after a chunk.

    Args:
        function: the states after the chunk, from parameters and states before it.
        parameters: those that act on states.
        h: the states before the chunk.
        sketch: of these.
    """
    after, pull = jax.vjp(function, parameters, h)
    # The transpose of the transpose: the linear scan knows its derivative in reverse only.
    _, push = jax.vjp(lambda cotangent: pull(cotangent)[1], jax.tree.map(jnp.zeros_like, after))

    def one(number: Array, states: Stack, numbers: Array) -> tuple[Stack, Array]:
        nu = signs(after, Sketch(states, numbers), number)
        (moved,) = push(states)
        # A cotangent c of a complex state reads Re[c dh].
        conjugate = jax.tree.map(jnp.conj, nu)
        read = _vector(pull(conjugate)[0])
        rho_0 = _balance(numbers, moved)
        rho_1 = _balance(read, nu)
        moved = jax.tree.map(lambda m, n: rho_0.astype(m.dtype) * m + rho_1.astype(m.dtype) * n, moved, nu)
        return moved, numbers / rho_0 + read / rho_1

    number = jnp.arange(len(sketch.parameters), dtype=jnp.uint32)
    return Sketch(*jax.vmap(one)(number, sketch.states, sketch.parameters))


def signs(h: Stack, old: Sketch, number: Array) -> Stack:
    """Return +1 or -1 for every real number of the states, drawn by a key made of them and of the sketch before.

    So each stream has noise of its own, and a run that is resumed has the same. States alone would not do: where they
    stand still, every step would draw the same signs, whose products do not cancel.
    """
    key = jax.random.fold_in(jax.random.key(0), number)
    for numbers in (h, old.states, old.parameters):
        key = jax.random.fold_in(key, seed_of(numbers))
    leaves, structure = jax.tree.flatten(h)
    drawn = [_signs(leaf, jax.random.fold_in(key, np.uint32(i))) for i, leaf in enumerate(leaves)]
    return structure.unflatten(drawn)


def _signs(leaf: Array, key: Any) -> Array:
    if not jnp.iscomplexobj(leaf):
        return jax.random.rademacher(key, leaf.shape, leaf.dtype)
    parts = jax.random.rademacher(key, (2, *leaf.shape), leaf.real.dtype)
    return lax.complex(parts[0], parts[1])


def _balance(over: PyTree, under: PyTree) -> Array:
    """Return the square root of the ratio of two norms, kept away from zero and infinity."""
    return jnp.sqrt((optax.tree.norm(over) + _TINY) / (optax.tree.norm(under) + _TINY))


def _vector(tree: PyTree) -> Float[Array, "P"]:
    return ravel_pytree(tree)[0]
