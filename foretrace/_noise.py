"""Noise without a key: drawn by numbers that a stream holds anyway."""

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._types import Array, PyTree


def seed_of(tree: PyTree) -> Array:
    """Return 32 bits made of numbers: noise that is drawn by them is the same where a run is resumed."""
    total = sum(jnp.sum(jnp.real(leaf)) + jnp.sum(jnp.imag(leaf)) for leaf in jax.tree.leaves(tree))
    return lax.bitcast_convert_type(jnp.asarray(total, jnp.float32), jnp.uint32)
