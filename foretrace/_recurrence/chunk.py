"""The inputs of a chunk, and the carry of a stream from chunk to chunk."""

from typing import NamedTuple

from foretrace._types import Array, Arrays, Bool, Float, Int, State, UInt32


class Chunk(NamedTuple):
    """Inputs of encoder and blocks over a chunk.

    Args:
        xs: inputs of the network; in a batch of streams, time is the first axis and streams the
            second.
        reset: steps that start an episode; None for none.
        dropout_masks: two masks for each block; None without dropout.
    """

    xs: Float[Array, "C *B I"]
    reset: Bool[Array, "C *B"] | None
    dropout_masks: Float[Array, "D *B 2 H"] | None


class Modules(NamedTuple):
    """The modules of each recurrent layer that carry sensitivities to the layers below.

    Args:
        chosen: numbers of the modules.
        weight: factor of what each brings to the gradient, one over the probability that it is
            sampled.
    """

    chosen: Int[Array, "D *B M"]
    weight: Float[Array, "D *B M"]


class Carry(NamedTuple):
    """State and sensitivity of each layer, which a stream carries from chunk to chunk.

    In a batch of streams, axis B is the second of every leaf: layers are scanned, so the streams of
    a layer stand together.

    Args:
        h: states of the recurrent layers.
        e: sensitivities dh/dtheta; None if the rule carries none, a `DeepSensitivity` under
            `Depth`.
        key: data of the PRNG key of each stream, with an axis of one instead of the layers; None
            under a rule that samples nothing.
        modules: modules that carry sensitivities to the layers below, sampled for the sequence;
            None if all do, or none.
    """

    h: State
    e: Arrays | None
    key: UInt32[Array, "1 *B K"] | None = None
    modules: Modules | None = None
