"""Class frequencies after the last labels: contexts of 0 to 5 labels, with back-off.

   p_k(c) = (n_k(c) + u_k p_{k-1}(c)) / (n_k + u_k)
    n_k(c): number of times that c followed the last k labels
    u_k: number of different classes that have followed them

The counts are in a table of fixed size. An entry contains the count, and 16 bits of the hash of its
context and class. If the hash of an entry differs, its count is read as zero, and is lowered until
the entry is free.

Source of the back-off: Witten and Bell, IEEE Transactions on Information Theory 37(4), 1991 (method
C).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float, UInt32
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson, counted

ORDERS = 5
"""Length of the longest context."""

_MAX_COUNT, _TAG = np.uint32(0xFFFF), np.uint32(0xFFFF0000)


class Contexts(AbstractExpert):
    """One expert for each length of context.

    Args:
        classes: maximum number of classes.
        orders: length of the longest context.
        bits: base-2 logarithm of the number of counts for each length.
    """

    classes: int = eqx.field(static=True)
    orders: int = eqx.field(static=True, default=ORDERS)
    bits: int = eqx.field(static=True, default=18)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return tuple(f"context {k}" for k in range(self.orders + 1))

    def init(self) -> tuple[Float[Array, "O"], UInt32[Array, "K M"]]:
        """Return the initial counts of the classes, and the initial tables of the contexts."""
        return jnp.zeros(self.classes), jnp.zeros((self.orders, 2**self.bits), jnp.uint32)

    def predict(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        counts, table = state
        seen = (
            jnp.arange(self.classes, dtype=jnp.int32) < jnp.maximum(features.num_classes, 1)
        ).astype(counts.dtype)
        found = counts[None]
        if self.orders:
            hashes = self._hashes(features, jnp.arange(self.classes, dtype=jnp.uint32))
            entries = table[jnp.arange(self.orders, dtype=jnp.int32)[:, None], self._places(hashes)]
            mine = (entries >> 16) == (hashes >> 16)
            found = jnp.concatenate(
                [found, jnp.where(mine, entries & _MAX_COUNT, jnp.uint32(0)).astype(counts.dtype)]
            )
        p, out = seen / seen.sum(), []
        for n in found:
            n = n * seen
            distinct = (n > 0).astype(p.dtype).sum() + 0.1
            p = (n + distinct * p) / (n.sum() + distinct)
            out.append(p)
        return jnp.stack(out)

    def learn(self, state: tuple[Array, Array], lesson: Lesson) -> tuple[Array, Array]:
        """Return the state after a label."""
        counts, table = state
        # All reads of the table come before the writes, so that the compiler writes in place.
        known = lesson.known & jnp.isfinite(lesson.predicted).all()
        counts = counted(counts, lesson.label * known.astype(counts.dtype))
        if self.orders:
            at = jnp.argmax(lesson.label).astype(jnp.uint32)[None]
            hashes = self._hashes(lesson.features, at)[:, 0]
            orders, places = jnp.arange(self.orders, dtype=jnp.int32), self._places(hashes)
            entry = table[orders, places]
            count = entry & _MAX_COUNT
            mine = (entry >> 16) == (hashes >> 16)
            raised = (hashes & _TAG) | jnp.minimum(count + 1, _MAX_COUNT)
            new = jnp.where(mine, raised, jnp.where(count > 1, entry - 1, (hashes & _TAG) | 1))
            table = table.at[orders, places].set(jnp.where(known, new, entry).astype(jnp.uint32))
        return counts, table

    def _hashes(self, features: Features, classes: UInt32[Array, "C"]) -> UInt32[Array, "K C"]:
        """Return a hash for each length of context and each class."""
        out, context = [], jnp.uint32(0)
        for k in range(self.orders):
            label = features.labels[k].astype(jnp.int32).astype(jnp.uint32)
            context = _mixed_bits(context * jnp.uint32(0x01000193) + label + jnp.uint32(k + 2))
            out.append(_mixed_bits(context + classes * jnp.uint32(0x9E3779B1)))
        return jnp.stack(out)

    def _places(self, hashes: UInt32[Array, "..."]) -> Array:
        return (hashes & jnp.uint32(2**self.bits - 1)).astype(jnp.int32)


def _mixed_bits(x: UInt32[Array, "*C"]) -> UInt32[Array, "*C"]:
    """Return 32 bits that all depend on all bits of x: MurmurHash3's finaliser (Appleby, 2011)."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
