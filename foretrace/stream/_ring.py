"""The ring of steps whose labels have not come: fixed memory, however many rows go by."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Float, Int


class PendingSteps(NamedTuple):
    """Steps whose labels have not come: the carry before each, its inputs, and what was predicted.

    The shapes are those of a single stream; members have an axis of slots in front.
    """

    carry: Carry
    xs: Float[Array, "W C I"]
    outputs: Float[Array, "W C O"]


class Ring:
    """A ring buffer for `delay` pending steps, in one compiled program or many rings side by side.

    It has one place more than steps wait: the new step is written before the oldest one is read, at another place, so
    that the compiler need not copy the ring to keep what is still to be read.

    A turn says where the next step is written; behind it lies the oldest step, whose labels come with the new one.

    Args:
        delay: number of steps until the labels of a step come; 0 for no ring.
    """

    def __init__(self, delay: int):
        self.delay = delay
        self.places = delay + 1 if delay else 0

    def empty(self, step: PendingSteps) -> PendingSteps:
        """Return a ring of zeros for steps like `step`."""
        return jax.tree.map(lambda leaf: jnp.zeros((self.places, *leaf.shape), leaf.dtype), step)

    def write(self, ring: PendingSteps, place: Any, step: PendingSteps) -> PendingSteps:
        """Return the ring with a step at a place, or with steps at places (slots, place)."""
        return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), ring, step)

    def read(self, ring: PendingSteps, place: Any) -> PendingSteps:
        """Return the step at a place, or the steps at places (slots, place)."""
        return jax.tree.map(lambda leaf: leaf[place], ring)

    def next_turn(self, turn: Int[Array, "*P"], laps: int = 1) -> Int[Array, "*P"]:
        """Return the turn after this one.

        Args:
            turn: present turn.
            laps: number of laps after which the turn falls back by one lap. One lap keeps it within the ring; two also
                tell whether the ring has been filled once, and the place is then the turn modulo the places.
        """
        end = laps * self.places
        return jnp.where(turn + 1 == end, end - self.places, turn + 1).astype(jnp.int32)


def pending_step(carry: Carry, chunk: int, input_size: int, output_size: int) -> PendingSteps:
    """Return a pending step of zeros."""
    dtype = jnp.result_type(float)
    carry = jax.tree.map(jnp.zeros_like, carry)
    return PendingSteps(carry, jnp.zeros((chunk, input_size), dtype), jnp.zeros((chunk, output_size), dtype))


def num_bytes(tree: Any) -> int:
    """Return the memory of the arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
