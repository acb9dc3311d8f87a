"""A random order of a data set, of which single positions can be computed."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._types import Array, Int, PRNGKeyArray

_ROUNDS = 6


def shuffled_at(key: PRNGKeyArray, positions: Int[Array, "K"], count: int) -> Int[Array, "K"]:
    """Return the elements at some positions of a random order of `range(count)`, in O(K).

    A Feistel network over pairs of digits is a bijection of a range that is slightly larger than
    `count`. It is applied again to any result outside of `range(count)` until the result lies
    inside. Sorting 20,000 keys for each batch of 50 would take a sixth of a training step.

    Args:
        key: PRNG key that determines the order.
        positions: positions in `range(count)`.
        count: length of the order.

    >>> import jax, jax.numpy as jnp
    >>> sorted(shuffled_at(jax.random.key(0), jnp.arange(10), 10).tolist()) == list(range(10))
    True

    Source: Black and Rogaway, Ciphers with arbitrary finite domains, 2002 (cycle walking).
    """
    base = max(math.isqrt(count - 1) + 1, 2)
    side, many = jnp.uint32(base), jnp.uint32(count)
    salts = jax.random.bits(key, (_ROUNDS,), jnp.uint32)

    def permute(x: Array) -> Array:
        high, low = x // side, x % side
        for salt in salts:
            high, low = low, (high + _mixed(low ^ salt) % side) % side
        return high * side + low

    def again(x: Array) -> Array:
        return jnp.where(x < many, x, permute(x))

    start = permute(positions.astype(jnp.uint32))
    return lax.while_loop(lambda x: (x >= many).any(), again, start).astype(positions.dtype)


def _mixed(x: Array) -> Array:
    """Mix the bits of each number, so that every bit depends on all 32 bits."""
    for factor in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(factor)
    return x ^ (x >> jnp.uint32(16))
