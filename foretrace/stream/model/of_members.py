"""State of many streams: trees of arrays with a leading axis of slots, one for each stream.

A row reads its slot once and writes it in place, so its time does not depend on the number of
slots.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._types import Array, Int


def in_slots(one: Any, count: int) -> Any:
    """Return the state of one stream, repeated for a number of slots."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), one)


def read(slots: Any, at: Int[Array, "*K"]) -> Any:
    """Return the state in one slot, or in K slots, with a single read."""

    def there() -> Any:
        return jax.tree.map(lambda leaf: leaf[at], slots)

    if all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(slots)):
        return there()  # for one stream and the slot of missing rows, a copy costs less
    return once(there, at)


def once(there: Callable[[], Any], at: Int[Array, "*K"]) -> Any:
    """Return the values that a function reads from slots, with a single read.

    The compiler would fuse a plain read into each of its uses and repeat the read there, also after
    the next state is written. It would copy all slots for that. A branch is not fused, and this
    branch is always taken.
    """
    return lax.cond(
        jnp.ravel(at)[0] >= 0, there, lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(there))
    )


def write(slots: Any, at: Int[Array, "*K"], new: Any) -> Any:
    """Return all slots after one slot, or K slots, have a new state."""
    return jax.tree.map(lambda leaf, one: leaf.at[at].set(one), slots, new)
