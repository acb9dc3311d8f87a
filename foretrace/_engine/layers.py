"""Loops over layers, steps and streams. The computation of a block is in `forward.py`.

Each loop below gives the same numbers as a plain loop, but XLA compiles it to a faster program
(dev/log/2026-11.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._engine.data import Data
from foretrace._network import Block, Network
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.scan import STATES
from foretrace._types import Array, Bool, Float, PyTree

READOUT = "readout"
"""Name under which `jax.checkpoint` finds the outputs of a cell's readout."""


Layer = Callable[
    [Block, Carry | None, Float[Array, "C *B H"], Float[Array, "*B 2 H"] | None],
    tuple[Float[Array, "C *B H"], Carry | None],
]
"""`(block, carry, inputs, dropout masks) -> (outputs, carry)` of one layer."""


def each_step_and_stream(function: Callable, batched: bool, flatten_batch: bool) -> Callable:
    """Return a function of one step that is applied to all steps and, in a batch, to all streams.

    Args:
        function: function of arrays without these axes.
        batched: whether there is an axis of streams after the axis of time.
        flatten_batch: whether both axes are joined into one. Gradients of weights are then products
            of two matrices without transposed copies, which saves a tenth of a training step on a
            CPU. After such an axis, a compiler cannot shard the streams over devices.
    """
    if not batched:
        return jax.vmap(function)
    if not flatten_batch:
        return jax.vmap(jax.vmap(function))

    def apply(*args: PyTree[Array]) -> PyTree[Array]:
        steps, streams = jax.tree.leaves(args)[0].shape[:2]
        rows = jax.tree.map(lambda leaf: leaf.reshape(steps * streams, *leaf.shape[2:]), args)
        return jax.tree.map(
            lambda leaf: leaf.reshape(steps, streams, *leaf.shape[1:]), jax.vmap(function)(*rows)
        )

    return apply


def each_stream(function: Callable, batched: bool, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
    """Return a function of one stream that is applied to all streams."""
    return jax.vmap(function, in_axes, out_axes) if batched else function


def batch_of_one(
    run: Callable[[Carry | None, Data], tuple[Float[Array, "C O"], Carry | None]],
    carry: Carry | None,
    data: Data,
) -> tuple[Float[Array, "1 C O"], Carry | None]:
    """Run a batch of one stream without the batch axis, then restore the axis.

    With an axis of one element in the middle, XLA on a CPU does not use its fast sums, and a step
    takes nearly twice as long.
    """
    key = data.key
    if key is not None and key.ndim == 0:
        key = jax.random.split(key, 1)
    only = jax.tree.map(lambda leaf: leaf[0], data._replace(key=key))
    outputs, after = run(jax.tree.map(lambda leaf: jnp.squeeze(leaf, 1), carry), only)
    return outputs[None], jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 1), after)


def over_layers(
    layer: Layer,
    network: Network,
    carry: Carry | None,
    x: Float[Array, "C *B H"],
    dropout_masks: Float[Array, "D *B 2 H"] | None,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run all blocks, each on the outputs of the block below.

    Args:
        layer: function of one block.
        network: network whose blocks are run.
        carry: states and sensitivities before the chunk; None starts a sequence.
        x: inputs of the first block.
        dropout_masks: masks of each block.
    """
    if x.shape[0] == 1:
        # A loop would copy weights and sensitivities out of their stack and back, a third of the
        # time of a one-row step.

        def step(
            x: Array, now: tuple[Block, Carry | None, Array | None]
        ) -> tuple[Array, Carry | None]:
            return layer(now[0], now[1], x, now[2])

        return lax.scan(step, x, (network.blocks, carry, dropout_masks), unroll=4)
    # Vectors are selected by a product with a row of the identity. If they were sliced, XLA on a
    # CPU would fuse the slice into the loops over features, read the vectors through the layer's
    # index and not vectorise these loops (7 % of a step).
    vectors, others = eqx.partition(
        network.blocks, lambda leaf: eqx.is_inexact_array(leaf) and leaf.ndim == 2
    )

    # The backward pass stores only the states of linear scans and the readout of a block, and
    # computes the rest again. This needs more operations and much less memory traffic, which is the
    # limit on a CPU (dev/log/2026-11.md).
    @partial(
        jax.checkpoint,
        prevent_cse=False,
        policy=jax.checkpoint_policies.save_only_these_names(STATES, READOUT),
    )
    def rematerialised(x: Array, now: tuple) -> tuple[Array, Carry | None]:
        others, one_hot, before, masks = now
        own = jax.tree.map(partial(_pick, one_hot), vectors)
        return layer(eqx.combine(own, others), before, x, masks)

    return lax.scan(
        rematerialised, x, (others, jnp.eye(network.depth, dtype=bool), carry, dropout_masks)
    )


def _pick(one_hot: Bool[Array, "D"], leaf: Array) -> Array:
    return jnp.dot(one_hot.astype(leaf.dtype), leaf, precision=lax.Precision.HIGHEST)
