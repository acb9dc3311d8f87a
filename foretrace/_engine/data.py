"""What a chunk gives to learn from."""

from typing import NamedTuple

from foretrace._types import Array, Bool, Float, Keys, Mask


class Data(NamedTuple):
    """A chunk of one stream, or of a batch of streams.

    Args:
        xs: inputs.
        ys: targets; not needed to run forward.
        mask: which steps count; all if None.
        reset: steps that start an episode; none if None.
        key: PRNG key of the dropout masks, or one for each stream; no dropout if None.
    """

    xs: Float[Array, "*B C I"]
    ys: Array | None = None
    mask: Mask | None = None
    reset: Bool[Array, "*B C"] | None = None
    key: Keys | None = None
