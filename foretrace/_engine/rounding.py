"""Sensitivities in 16 bits between chunks: half the memory, at a bounded price in accuracy.

Rounded to the nearest, an addition to a sensitivity of long memory would be lost: it is smaller
than half the last place. So they are rounded up or down at random, in proportion, which is unbiased
(stochastic rounding).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, PyTree


def rounded(carry: Carry) -> Carry:
    """Return a carry with sensitivities in bfloat16; complex ones get a last axis of two.

    The noise is a function of the states, so that the same stream gives the same numbers. A number
    that is not finite stays so.
    """
    if carry.e is None:
        return carry
    seed = _hash_state(carry.h)
    # Each leaf has its own noise: the seed is moved by an odd constant for each.
    leaves, structure = jax.tree.flatten(carry.e)
    closed = [
        _rounded(leaf, seed + np.uint32(number * 0x632BE5AB % 2**32))
        for number, leaf in enumerate(leaves)
    ]
    return carry._replace(e=structure.unflatten(closed))


def widened(carry: Carry, like: PyTree) -> Carry:
    """Return a carry whose sensitivities have the dtypes of the sensitivities `like`."""
    if carry.e is None:
        return carry

    def wide(leaf: Array, want: jax.ShapeDtypeStruct) -> Array:
        if not jnp.issubdtype(want.dtype, jnp.complexfloating):
            return leaf.astype(want.dtype)
        part = leaf.astype(jnp.finfo(want.dtype).dtype)
        return lax.complex(part[..., 0], part[..., 1])

    return carry._replace(e=jax.tree.map(wide, carry.e, like))


def _rounded(leaf: Array, seed: Array) -> Array:
    if jnp.iscomplexobj(leaf):
        # There are no complex numbers of 16 bits.
        leaf = jnp.stack([leaf.real, leaf.imag], axis=-1)
    leaf = leaf.astype(jnp.float32)
    bits = lax.bitcast_convert_type(leaf, jnp.uint32)
    # bfloat16 is the upper half of float32: noise as large as the lower half carries over as often
    # as it should.
    up = lax.bitcast_convert_type(
        (bits + _noise(leaf.shape, seed)) & np.uint32(0xFFFF0000), jnp.float32
    )
    return jnp.where(jnp.isfinite(leaf), up, leaf).astype(jnp.bfloat16)


def _noise(shape: tuple[int, ...], seed: Array) -> Array:
    """Return 16 random bits for each number: MurmurHash3's finaliser (Appleby, 2011) on a count.

    JAX's generators would take longer than all else that is done to a sensitivity.
    """
    x = lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape) * np.uint32(0x9E3779B9) + seed
    return mixed_bits(x) & np.uint32(0xFFFF)


def mixed_bits(x: Array) -> Array:
    """Return 32 bits that all depend on all bits of x: MurmurHash3's finaliser."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _hash_state(h: PyTree) -> Array:
    """Return a 32-bit seed made of states, so that a run that is resumed rounds as the one before.

    Rounding needs no key: its noise is independent of a rule's own samples, and plain rules carry
    no key.
    """
    total = sum(jnp.sum(jnp.real(leaf)) + jnp.sum(jnp.imag(leaf)) for leaf in jax.tree.leaves(h))
    return lax.bitcast_convert_type(jnp.asarray(total, jnp.float32), jnp.uint32)
