"""UORO: measured is its noise (loss .18 and .082 where the paper's rule reaches 4e-5); missing: a task where it pays.

Unbiased online recurrent optimisation carries one rank-one estimate of the sensitivity of all states to all parameters.
For a stack of recurrent layers with states h (of all layers, as one vector) and parameters theta,

    dh/dtheta  is carried as  s t^T,   E[s t^T] = dh/dtheta

    s <- rho_0 J s + rho_1 nu,   t <- t / rho_0 + (nu^T F) / rho_1,   J = dh'/dh,  F = dh'/dtheta,  nu = +-1

Nothing is left out, in memory of |theta| + |h|, at the price of noise. Here F and J are those of a whole chunk, in
which derivatives are exact. rho_0 and rho_1 make both summands of s as long as those of t: the least variance.
Several independent sketches are averaged.

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
from foretrace._rule import LearningRule, Sketches
from foretrace._types import Array, Float, PRNGKeyArray, PyTree, Stack

_TINY = 1e-30


Parameters = tuple[Linear, Block]
"""The parameters of encoder and blocks."""


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


def parameters_below(network: Network) -> Parameters:
    """Return the parameters that act on states: all but those of the decoder."""
    return (network.encoder, network.blocks)


def init_sketch(network: Network, rule: LearningRule, h: Stack, own: None) -> Sketch:
    """Return the sketch before the first step, zero."""
    assert isinstance(rule.credit, Sketches)
    number = rule.credit.number

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((number, *leaf.shape), leaf.dtype)

    return Sketch(jax.tree.map(zeros, h), zeros(_vector(parameters_below(network))))


def sketch_norm(sketch: Sketch) -> Float[Array, ""]:
    """Return the norm of the estimates, each a product of two vectors."""
    return optax.tree.norm(sketch.states) * optax.tree.norm(sketch.parameters)


def run_with_sketch(
    network: Network,
    carry: Carry,
    chunk: Chunk,
    *,
    rule: LearningRule,
    starts: bool,
    return_carry: bool,
    run_layers: RunLayers,
    accepted: object = True,
) -> tuple[Float[Array, "C H"], Carry | None]:
    """Run encoder and blocks over a chunk of one stream, everything open to the derivative inside it.

    Args:
        network: the network.
        carry: states, sketch and key before the chunk.
        chunk: inputs, resets and dropout masks.
        rule: rule with sketches.
        starts: nothing came before, so no sketch is attached.
        return_carry: False spares the carry after the chunk.
        run_layers: what runs the layers.
        accepted: not used; a sketch is small and not advanced in place.

    Returns:
        The outputs of the last block, and the carry after the chunk (None if not returned).
    """
    parameters = parameters_below(network)
    h, e = lax.stop_gradient((carry.h, carry.e))
    assert isinstance(e, Sketch), rule

    def run(parameters: Parameters, h: Stack) -> tuple[Array, Carry | None]:
        return run_layers(eqx.tree_at(parameters_below, network, parameters), Carry(h, None), chunk)

    x, after = run(parameters, h if starts else attach_sketch(h, e, parameters))
    if not return_carry:
        return x, None
    assert after is not None and carry.key is not None

    def states(parameters: Parameters, h: Stack) -> Stack:
        after = run(parameters, h)[1]
        assert after is not None
        return after.h

    # The signs of every chunk are new ones: one half of the key is used up, the other goes on.
    onward, now = jax.random.split(jax.random.wrap_key_data(carry.key[0]))
    e = advance_sketch(states, lax.stop_gradient(parameters), h, e, now)
    return x, lax.stop_gradient(Carry(after.h, e, jax.random.key_data(onward)[None]))


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
        read = _vector(pull(jax.tree.map(jnp.conj, nu))[0])
        rho_0 = _balance(numbers, moved)
        rho_1 = _balance(read, nu)
        moved = jax.tree.map(lambda m, n: rho_0.astype(m.dtype) * m + rho_1.astype(m.dtype) * n, moved, nu)
        return moved, numbers / rho_0 + read / rho_1

    keys = jax.random.split(key, len(sketch.parameters))
    return Sketch(*jax.vmap(one)(keys, sketch.states, sketch.parameters))


def signs(h: Stack, key: PRNGKeyArray) -> Stack:
    """Sample +1 or -1 for every real number of the states."""
    leaves, structure = jax.tree.flatten(h)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([_signs(leaf, key) for leaf, key in zip(leaves, keys, strict=True)])


def _signs(leaf: Array, key: PRNGKeyArray) -> Array:
    if not jnp.iscomplexobj(leaf):
        return jax.random.rademacher(key, leaf.shape, leaf.dtype)
    parts = jax.random.rademacher(key, (2, *leaf.shape), leaf.real.dtype)
    return lax.complex(parts[0], parts[1])


def _balance(over: PyTree, under: PyTree) -> Array:
    """Return the square root of the ratio of two norms, kept away from zero and infinity."""
    return jnp.sqrt((optax.tree.norm(over) + _TINY) / (optax.tree.norm(under) + _TINY))


def _vector(tree: Any) -> Float[Array, "P"]:
    return ravel_pytree(tree)[0]
