"""Sensitivities in 16 bits between chunks: half the memory of a stream, at a price in accuracy that is bounded.

Rounded to the nearest, what is added to a sensitivity of long memory would be lost: it is smaller than half the last
place. So they are rounded up or down at random, in proportion, which is right on average (stochastic rounding).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._credit.noise import _noise, seed_of
from foretrace._engine.carry import Carry
from foretrace._types import Array, PyTree


def rounded(carry: Carry) -> Carry:
    """Return a carry with sensitivities in bfloat16; complex ones have an axis of real and imaginary part behind.

    The noise is a function of the states, so that the same stream gives the same numbers. A number that is not finite
    stays so.
    """
    if carry.e is None:
        return carry
    seed = seed_of(carry.h)
    leaves, structure = jax.tree.flatten(carry.e)
    closed = [_rounded(leaf, seed + np.uint32(number * 0x632BE5AB % 2**32)) for number, leaf in enumerate(leaves)]
    return Carry(carry.h, structure.unflatten(closed))


def widened(carry: Carry, like: PyTree) -> Carry:
    """Return a carry with sensitivities of the dtypes of `like`, which has the structure of its sensitivities."""
    if carry.e is None:
        return carry

    def wide(leaf: Array, want: jax.ShapeDtypeStruct) -> Array:
        if not jnp.issubdtype(want.dtype, jnp.complexfloating):
            # A seed is no number to be rounded, and has kept its type.
            return leaf.astype(want.dtype)
        part = leaf.astype(jnp.finfo(want.dtype).dtype)
        return lax.complex(part[..., 0], part[..., 1])

    return Carry(carry.h, jax.tree.map(wide, carry.e, like))


def _rounded(leaf: Array, seed: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    if jnp.iscomplexobj(leaf):
        leaf = jnp.stack([leaf.real, leaf.imag], axis=-1)
    leaf = leaf.astype(jnp.float32)
    bits = lax.bitcast_convert_type(leaf, jnp.uint32)
    # bfloat16 is the upper half of float32: noise as large as the lower half carries over as often as it should.
    up = lax.bitcast_convert_type((bits + _noise(leaf.shape, seed)) & np.uint32(0xFFFF0000), jnp.float32)
    return jnp.where(jnp.isfinite(leaf), up, leaf).astype(jnp.bfloat16)
