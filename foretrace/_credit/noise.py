"""Noise without a key: drawn by numbers that a stream holds anyway."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._types import Array, PyTree


def _noise(shape: tuple[int, ...], seed: Array) -> Array:
    """Return 16 random bits for each number: the finaliser of MurmurHash3 (Appleby, 2011) on a count.

    JAX's generators would take longer than all else that is done to a sensitivity.
    """
    x = lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape) * np.uint32(0x9E3779B9) + seed
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return (x ^ (x >> 16)) & np.uint32(0xFFFF)


def seed_of(tree: PyTree) -> Array:
    """Return 32 bits made of numbers: noise that is drawn by them is the same where a run is resumed."""
    total = sum(jnp.sum(jnp.real(leaf)) + jnp.sum(jnp.imag(leaf)) for leaf in jax.tree.leaves(tree))
    return lax.bitcast_convert_type(jnp.asarray(total, jnp.float32), jnp.uint32)
