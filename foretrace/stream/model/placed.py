"""Earlier labels in the order of their rows, although they arrive in any order.

Position k holds the label of the row that is k rows before the latest row with a label. Until a
label arrives, its position holds the label of the row before.
"""

import jax.numpy as jnp
import optax
from jax import lax

from foretrace._types import Array, Bool, Float, Int
from foretrace.stream.model.arrivals import Stream


def placed(
    labels: Float[Array, "K"],
    stream: Stream,
    number: Int[Array, ""],
    value: Float[Array, ""],
    is_own: Bool[Array, ""],
) -> tuple[Float[Array, "K"], Stream]:
    """Return the earlier labels, and the state of their stream, after one more label.

    Args:
        labels: earlier labels before the new one.
        stream: state of their stream.
        number: number of the row of the label. A label of a row before the stream began changes
            nothing.
        value: the label. If the label is missing or not trusted, this is the label before it.
        is_own: whether `value` is the label itself.
    """
    count = len(labels)
    at, none = jnp.arange(count, dtype=jnp.int32), jnp.zeros(count, bool)
    newer = number - stream.latest
    start = (count - jnp.clip(newer, 0, count)).astype(jnp.int32)[None]
    before = jnp.concatenate([jnp.full(count, labels[0]), labels])
    moved = lax.dynamic_slice(before, start, (count,))
    there = lax.dynamic_slice(jnp.concatenate([none, stream.is_own]), start, (count,))
    place = jnp.clip(-newer, 0, count).astype(jnp.int32)
    # Later rows that have no label of their own get this label, up to the next row that has one.
    next_own = jnp.where(there & (at < place), at, -1).max()
    mine = is_own & (at > next_own) & (at <= place) & (place < count)
    after = stream._replace(
        latest=jnp.maximum(stream.latest, number), is_own=there | (is_own & (at == place))
    )
    is_alive = number >= stream.begun
    return (
        jnp.where(is_alive, jnp.where(mine, value, moved), labels),
        optax.tree.where(is_alive, after, stream),
    )
