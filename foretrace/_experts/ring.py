"""Ring buffer of steps whose labels are pending, in fixed memory."""

from typing import Any

import jax
import jax.numpy as jnp

from foretrace._types import Array, Int


class Ring:
    """A ring buffer of `delay` pending steps, one for each stream.

    It has one place more than steps wait: the new step is written before the oldest one is read, at
    another place, so that the compiler need not copy the ring to keep what is still to be read.

    A turn counts the steps since the start of a stream, and falls back by one lap after two: it
    says where the next step is written, and whether the ring has been filled once. Behind that
    place lies the oldest step, whose labels come with the new one.

    Args:
        delay: number of steps until the labels of a step come; 0 for no ring.
    """

    def __init__(self, delay: int):
        self.delay = delay
        self.places = delay + 1 if delay else 0

    def empty(self, step: Any, *slots: int) -> Any:
        """Return rings of zeros for steps like `step`, one for each slot."""
        return jax.tree.map(
            lambda leaf: jnp.zeros((*slots, self.places, *leaf.shape), leaf.dtype), step
        )

    def write(self, rings: Any, slots: tuple[Any, ...], turn: Int[Array, "*K"], step: Any) -> Any:
        """Return the rings after writing a step, or steps of some slots, at their positions."""
        return jax.tree.map(
            lambda leaf, new: leaf.at[*slots, turn % self.places].set(new), rings, step
        )

    def oldest(self, rings: Any, slots: tuple[Any, ...], turn: Int[Array, "*K"]) -> Any:
        """Return the oldest step of a ring, or of some slots, after a write at a position."""
        place = (turn + 1) % self.places
        return jax.tree.map(lambda leaf: leaf[*slots, place], rings)

    def newest(self, rings: Any, slots: Int[Array, "K"], turns: Int[Array, "K"]) -> Any:
        """Return the step written last in each ring; zeros if there is none."""
        return jax.tree.map(lambda leaf: leaf[slots, (turns - 1) % self.places], rings)

    def next_turn(self, turn: Int[Array, "*K"]) -> Int[Array, "*K"]:
        """Return the next position of a ring."""
        last = 2 * self.places - 1
        return jnp.where(turn == last, self.places, turn + 1).astype(jnp.int32)
