"""A network over a chunk under a rule: outputs, and the carry after the chunk.

The loops over the layers are in `layers.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from foretrace._cells.parts import wrapped_key
from foretrace._credit.depth import run_in_depth
from foretrace._engine.carry import init_carry
from foretrace._engine.cell import run_cell
from foretrace._engine.checks import check_carry, check_chunk
from foretrace._engine.data import Data
from foretrace._engine.layers import (
    READOUT,
    batch_of_one,
    each_step_and_stream,
    each_stream,
    over_layers,
)
from foretrace._engine.side_by_side import run_modules
from foretrace._modules import ModuleNetwork
from foretrace._network import AbstractNetwork, Block, Network, check_network
from foretrace._recurrence.chunk import Carry, Chunk
from foretrace._recurrence.unroll import straight_through
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._types import Array, Bool, Float, Keys


def forward(
    network: AbstractNetwork,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    *,
    rule: LearningRule | str = BPTT,
    reset: Bool[Array, "*B C"] | None = None,
    key: Keys | None = None,
    keep_carry: bool = True,
) -> tuple[Float[Array, "*B C O"], Carry | None]:
    """Run a network over a chunk of one stream or of a batch of streams.

    The program is compiled once for each shape and rule.

    Args:
        network: network to run.
        carry: states and sensitivities before the chunk, as `init_carry` makes them for the rule.
            None starts a sequence.
        xs: inputs.
        rule: learning rule or its name. It determines the carry and the derivative, but not the
            outputs. Default: BPTT, which carries only states.
        reset: steps that start an episode.
        key: PRNG key of the dropout masks, or a key for each stream. Default: no dropout.
        keep_carry: whether the carry after the chunk is returned. False saves its computation.

    Returns:
        The outputs, and the carry after the chunk (None if not kept).

    Raises:
        TypeError: the inputs are not a floating-point array, the reset is not boolean, or the key
            is no PRNG key.
        ValueError: a shape is wrong, the chunk is empty, xs contains NaN or infinity, the rule is
            unknown, the carry does not fit, or the network runs only on whole sequences and a carry
            is given.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> outputs, carry = ft.forward(network, None, jnp.ones((5, 2)))
    >>> outputs.shape
    (5, 3)
    """
    rule = as_rule(rule)
    check_chunk(network, xs, reset=reset)
    if key is not None:
        key = _keys(key, xs)
    check_carry(network, rule, carry, xs)
    return _jitted_run(
        network, carry, Data(xs, reset=reset, key=key), rule=rule, return_carry=keep_carry
    )


def run(
    network: AbstractNetwork,
    carry: Carry | None,
    data: Data,
    *,
    rule: LearningRule,
    return_carry: bool = True,
    differentiate_carry: bool = False,
    flatten_batch: bool = False,
    accepted: bool | Bool[Array, ""] = True,
    readout: Callable[[Array], Array] | None = None,
) -> tuple[Float[Array, "*B C O"], Carry | None]:
    """Run `forward` without checks, with options for training.

    Args:
        network: network to run.
        carry: states and sensitivities before the chunk. None starts a sequence.
        data: inputs, resets and the key of the dropout masks.
        rule: learning rule, which says which paths are differentiated.
        return_carry: whether the carry after the chunk is computed.
        differentiate_carry: whether the chunk is part of a sequence that is differentiated as a
            whole, under a rule without credit depth. The states before and after the chunk are then
            differentiated as the rule says, without sensitivities.
        flatten_batch: whether steps and streams are one axis in layers without state, as in
            training (see `each_step_and_stream`).
        accepted: whether sensitivities that are updated in place are updated at all; may be a
            traced array.
        readout: function of the features of one step, instead of the network's decoder.

    Raises:
        ValueError: a carry is given, and the network runs only on whole sequences.
    """
    if data.xs.ndim == 3 and data.xs.shape[0] == 1:
        of_stream = partial(
            run,
            network,
            rule=rule,
            return_carry=return_carry,
            differentiate_carry=differentiate_carry,
            accepted=accepted,
            readout=readout,
        )
        return batch_of_one(of_stream, carry, data)
    # While a program is traced, so that a call does not pay for it.
    check_network("run", network)
    batched = data.xs.ndim == 3
    chunk = _chunk(network, data)
    run_layers: Any = run_modules if isinstance(network, ModuleNetwork) else _run_layers
    layers = partial(run_layers, rule=rule, return_carry=return_carry, flatten_batch=flatten_batch)
    if rule.credit is None:
        x, after = layers(network, carry, chunk, differentiate_carry=differentiate_carry)
    else:
        assert isinstance(network, Network)
        # Shapes and keys are needed even if nothing is attached; the compiler removes unused zeros.
        before = (
            init_carry(network, rule, chunk.xs.shape[1] if batched else None)
            if carry is None
            else carry
        )
        run_stream = partial(
            run_in_depth,
            network,
            rule=rule,
            starts=carry is None,
            return_carry=return_carry,
            accepted=accepted,
        )
        x, after = each_stream(run_stream, batched, in_axes=1, out_axes=1)(before, chunk)
    if network.cumulative_mean:
        _check_whole(carry)
        # The error of step t goes only to the features of step t, so that the rule's own credit is
        # unchanged.
        counts = jnp.arange(1, x.shape[0] + 1, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        x = straight_through(lax.stop_gradient(jnp.cumsum(x, axis=0) / counts), x)
    read = network.decoder if readout is None else readout
    outputs = each_step_and_stream(read, batched, flatten_batch)(x)
    return jnp.swapaxes(outputs, 0, 1) if batched else outputs, after


def _keys(key: Keys, xs: Array) -> Keys:
    """Return one key, or one key for each stream."""
    if xs.ndim == 3 and isinstance(key, jax.Array) and key.ndim == 1 and key.dtype != jnp.uint32:
        if len(key) != len(xs):
            raise ValueError(
                f"key has shape {key.shape}, expected one key, or ({len(xs)},) for the streams of "
                "xs"
            )
        return key
    return wrapped_key("forward", key)


def _check_whole(carry: Carry | None) -> None:
    if carry is not None:
        raise ValueError(
            "a network with cumulative_mean runs on whole sequences only: carry must be None"
        )


def _chunk(network: AbstractNetwork, data: Data) -> Chunk:
    """Return a chunk with the axis of time in front of the axis of streams, as scans need it."""
    # Inputs of another precision, such as bfloat16, are cast to the precision of the parameters.
    xs, reset, key = data.xs.astype(network.dtype), data.reset, data.key
    batched = xs.ndim == 3
    if batched:
        xs = jnp.swapaxes(xs, 0, 1)
        reset = None if reset is None else jnp.swapaxes(reset, 0, 1)
    if key is None:
        return Chunk(xs, reset, None)
    # Masks are sampled here for all blocks: inside a block, the random bits would be computed again
    # wherever the masks are used.
    streams = jax.random.split(key, xs.shape[1]) if batched and key.ndim == 0 else key
    return Chunk(xs, reset, each_stream(network.dropout_masks, batched, out_axes=1)(streams))


def _run_layers(
    network: Network,
    carry: Carry | None,
    chunk: Chunk,
    *,
    rule: LearningRule,
    return_carry: bool,
    differentiate_carry: bool,
    flatten_batch: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run the encoder and the blocks."""

    def layer(
        block: Block, carry: Carry | None, xs: Array, masks: Array | None
    ) -> tuple[Array, Carry | None]:
        cell = block.cell if rule.trains_cells else lax.stop_gradient(block.cell)
        theta, batched = cell.coefficients(), xs.ndim == 3

        recur = partial(
            run_cell,
            cell,
            theta,
            rule=rule,
            return_carry=return_carry,
            differentiate_carry=differentiate_carry,
        )
        each = partial(each_step_and_stream, batched=batched, flatten_batch=flatten_batch)
        zs = each(block.before)(xs)
        # Only here is there an axis of streams: each has its own state and sensitivity, and all
        # share the coefficients.
        emitted, after = each_stream(recur, batched, in_axes=(0, 1, 1), out_axes=(1, 0))(
            carry, zs, chunk.reset
        )
        ys = checkpoint_name(each(cell.readout)(emitted, zs), READOUT)
        each_masks = None if masks is None else jnp.broadcast_to(masks, (xs.shape[0], *masks.shape))
        return each(block.after)(xs, ys, each_masks), after

    x = each_step_and_stream(network.encoder, chunk.xs.ndim == 3, flatten_batch)(chunk.xs)
    return over_layers(layer, network, carry, x, chunk.dropout_masks)


_jitted_run = jax.jit(run, static_argnames=("rule", "return_carry"))
