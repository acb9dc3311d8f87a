"""UORO: unbiased random estimates, of rank one, of the sensitivity of all states to all parameters.

For a stack of recurrent layers with states h (of all layers, as one vector) and parameters theta,

    dh/dtheta  is carried as  s t^T,   E[s t^T] = dh/dtheta

    s <- rho_0 J s + rho_1 nu,   t <- t / rho_0 + (nu^T F) / rho_1
    J = dh'/dh,  F = dh'/dtheta,  nu = +-1

Here F and J are the derivatives of a whole chunk, inside which the gradient is exact. rho_0 and
rho_1 make both summands of s as long as the summands of t: the least variance. Several independent
sketches are averaged.

Source: Tallec and Ollivier, Unbiased online recurrent optimization, 2018.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._network import Block, Linear, Network
from foretrace._recurrence.chunk import Carry, Chunk
from foretrace._types import Array, Float, PRNGKeyArray, PyTree, Stack

_TINY = 1e-30

Parameters = tuple[Linear, Block]
"""The parameters that act on states: those of encoder and blocks."""

RunLayers = Callable[[Network, Carry, Chunk], tuple[Float[Array, "C H"], Carry | None]]
"""Run encoder and blocks with all states open to the derivative."""


class Sketch(NamedTuple):
    """Estimates of the sensitivity of all states, side by side on the first axis.

    Args:
        states: s, with the shapes of the states behind that axis.
        parameters: t, the parameters of encoder and blocks as one vector.
    """

    states: Stack
    parameters: Float[Array, "..."]

    def norm(self) -> Float[Array, ""]:
        """Return the norm of the estimates, each a product of two vectors."""
        return optax.tree.norm(self.states) * optax.tree.norm(self.parameters)


def init_sketch(network: Network, number: int, h: Stack) -> Sketch:
    """Return a number of sketches before the first step, zero."""
    parameters = ravel_pytree(_below(network))[0]
    return jax.tree.map(
        lambda leaf: jnp.zeros((number, *leaf.shape), leaf.dtype), Sketch(h, parameters)
    )


def run_with_sketch(
    network: Network,
    carry: Carry,
    chunk: Chunk,
    *,
    starts: bool,
    return_carry: bool,
    run_layers: RunLayers,
) -> tuple[Float[Array, "C H"], Carry | None]:
    """Run encoder and blocks over a chunk of one stream, everything open to the derivative.

    Args:
        network: the network.
        carry: states, sketch and key before the chunk.
        chunk: inputs, resets and dropout masks.
        starts: nothing came before, so no sketch is attached.
        return_carry: False spares the carry after the chunk.
        run_layers: function that runs the layers.

    Returns:
        The outputs of the last block, and the carry after the chunk (None if not returned).
    """
    parameters = _below(network)
    h, e = lax.stop_gradient((carry.h, carry.e))
    assert isinstance(e, Sketch) and carry.key is not None

    def run(parameters: Parameters, h: Stack) -> tuple[Array, Any]:
        return run_layers(eqx.tree_at(_below, network, parameters), Carry(h, None), chunk)

    x, after = run(parameters, h if starts else _attach(h, e, parameters))
    if not return_carry:
        return x, None
    # The signs of every chunk are new ones: one half of the key is used up, the other goes on.
    onward, now = jax.random.split(jax.random.wrap_key_data(carry.key[0]))
    e = _advance(
        lambda parameters, h: run(parameters, h)[1].h, lax.stop_gradient(parameters), h, e, now
    )
    return x, lax.stop_gradient(Carry(after.h, e, jax.random.key_data(onward)[None]))


def _below(network: Network) -> Parameters:
    return (network.encoder, network.blocks)


def _attach(h: Stack, sketch: Sketch, parameters: Parameters) -> Stack:
    """Return states as a function of the parameters: value h, derivative the sketches' mean."""
    moved = ravel_pytree(parameters)[0]
    # Zero, with the derivative of each sketch.
    along = sketch.parameters @ (moved - lax.stop_gradient(moved)) / len(sketch.parameters)
    return jax.tree.map(
        lambda x, s: x + jnp.tensordot(along.astype(s.dtype), s, 1), h, sketch.states
    )


def _advance(
    function: Callable[[Parameters, Stack], Stack],
    parameters: Parameters,
    h: Stack,
    sketch: Sketch,
    key: PRNGKeyArray,
) -> Sketch:
    """Return the sketches after a chunk.

    Args:
        function: map from parameters and states before the chunk to the states after it.
        parameters: parameters that act on states.
        h: states before the chunk.
        sketch: sketches of these states.
        key: PRNG key of the signs.
    """
    after, pull = jax.vjp(function, parameters, h)
    # The transpose of the transpose: the linear scan knows its derivative in reverse only.
    _, push = jax.vjp(lambda cotangent: pull(cotangent)[1], jax.tree.map(jnp.zeros_like, after))

    def one(key: PRNGKeyArray, states: Stack, numbers: Array) -> tuple[Stack, Array]:
        nu = signs(after, key)
        (moved,) = push(states)  # J s
        # A cotangent c of a complex state reads Re[c dh], so this is nu^T F.
        read = ravel_pytree(pull(jax.tree.map(jnp.conj, nu))[0])[0]
        rho_0, rho_1 = _balance(numbers, moved), _balance(read, nu)
        moved = jax.tree.map(
            lambda m, n: rho_0.astype(m.dtype) * m + rho_1.astype(m.dtype) * n, moved, nu
        )
        return moved, numbers / rho_0 + read / rho_1

    keys = jax.random.split(key, len(sketch.parameters))
    return Sketch(*jax.vmap(one)(keys, sketch.states, sketch.parameters))


def signs(h: Stack, key: PRNGKeyArray) -> Stack:
    """Sample +1 or -1 for every real number of the states."""

    def sample(leaf: Array, key: PRNGKeyArray) -> Array:
        if not jnp.iscomplexobj(leaf):
            return jax.random.rademacher(key, leaf.shape, leaf.dtype)
        parts = jax.random.rademacher(key, (2, *leaf.shape), leaf.real.dtype)
        return lax.complex(parts[0], parts[1])

    leaves, structure = jax.tree.flatten(h)
    return structure.unflatten(map(sample, leaves, jax.random.split(key, len(leaves))))


def _balance(over: PyTree, under: PyTree) -> Array:
    """Return the square root of the ratio of two norms, kept away from zero and infinity."""
    return jnp.sqrt((optax.tree.norm(over) + _TINY) / (optax.tree.norm(under) + _TINY))
