"""The inputs of a chunk, and the carry that a stream passes from chunk to chunk."""

from typing import NamedTuple

from foretrace._types import Array, Arrays, Bool, Float, Int, State, UInt32


class Chunk(NamedTuple):
    """Inputs of encoder and blocks over a chunk.

    Args:
        xs: inputs of the network. The first axis is time, and in a batch the second axis is
            streams.
        reset: steps that start an episode; None for none.
        dropout_masks: two masks for each block; None without dropout.
    """

    xs: Float[Array, "C *B I"]
    reset: Bool[Array, "C *B"] | None
    dropout_masks: Float[Array, "D *B 2 H"] | None


class Modules(NamedTuple):
    """The modules of each recurrent layer that carry sensitivities to the layers below.

    Args:
        chosen: indices of the modules.
        weight: factor of each module's contribution to the gradient, one over the probability that
            the module is sampled.
    """

    chosen: Int[Array, "D *B M"]
    weight: Float[Array, "D *B M"]


class Carry(NamedTuple):
    """State and sensitivity of each layer, which a stream carries from chunk to chunk.

    In a batch of streams, axis B is the second axis of every leaf. Layers are scanned, so the
    streams of one layer are stored together.

    Args:
        h: states of the recurrent layers.
        e: sensitivities dh/dtheta; a `DeepSensitivity` under a rule with a credit depth, and None
            if the rule carries none.
        key: data of the PRNG key of each stream, with an axis of length one instead of the axis of
            layers. None if the rule samples nothing.
        modules: modules that carry sensitivities to the layers below, sampled for the sequence.
            None if all modules do, or none.
    """

    h: State
    e: Arrays | None
    key: UInt32[Array, "1 *B K"] | None = None
    modules: Modules | None = None
