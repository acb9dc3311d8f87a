"""A network over a chunk under a rule: carry in, outputs and carry out."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from foretrace._credit.depth import deep_stack
from foretrace._credit.sketch import Parameters, Stack, advance_sketch, attach_sketch, parameters_below
from foretrace._engine.carry import Carry, init_carry
from foretrace._network import Block, Network
from foretrace._recurrence.scan import STATES
from foretrace._recurrence.sensitivity import advance, attach, init_sensitivity
from foretrace._recurrence.unroll import also_differentiate, unroll
from foretrace._rule import BPTT, LearningRule
from foretrace._types import Array, Bool, Float, Keys, PyTree


def each_step_and_stream(function: Callable, batched: bool, merged: bool) -> Callable:
    """Apply a function of one step to all steps and, in a batch, to all streams.

    Args:
        function: of arrays without these axes.
        batched: there is an axis of streams behind that of time.
        merged: take both as one axis. Gradients of weights are products of two matrices then, without transposed
            copies: a tenth of a training step on a CPU. A compiler that is to spread the streams over devices by itself
            cannot do it behind such an axis.
    """
    if not batched:
        return jax.vmap(function)
    if not merged:
        return jax.vmap(jax.vmap(function))

    def apply(*args: PyTree[Array]) -> PyTree[Array]:
        steps, streams = jax.tree.leaves(args)[0].shape[:2]
        rows = jax.tree.map(lambda leaf: leaf.reshape(steps * streams, *leaf.shape[2:]), args)
        return jax.tree.map(lambda leaf: leaf.reshape(steps, streams, *leaf.shape[1:]), jax.vmap(function)(*rows))

    return apply


def each_stream(function: Callable, batched: bool, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
    """Apply a function of one stream to all streams."""
    return jax.vmap(function, in_axes, out_axes) if batched else function


_READOUT = "readout"


class Outcome(NamedTuple):
    """What a run over a chunk gives.

    Args:
        outputs: of the network.
        carry: after the chunk; None if not kept.
    """

    outputs: Float[Array, "*B C O"]
    carry: Carry | None


def forward(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    *,
    rule: LearningRule = BPTT,
    reset: Bool[Array, "*B C"] | None = None,
    key: Keys | None = None,
    keep_carry: bool = True,
) -> tuple[Float[Array, "*B C O"], Carry | None]:
    """Run a network over a chunk of one stream, or of a batch of streams.

    Args:
        network: the network.
        carry: what came before; None starts a sequence, with nothing attached.
        xs: inputs.
        rule: what is open to the derivative; the values do not depend on it.
        reset: steps that start an episode.
        key: PRNG key of the dropout masks, or one for each stream; no dropout without it.
        keep_carry: False spares the sensitivity at the end of the chunk.

    Returns:
        The outputs, and the carry after the chunk (None if not kept).

    Raises:
        ValueError: a carry for a network that runs on whole sequences only.
    """
    return run(network, carry, xs, rule=rule, reset=reset, key=key, keep_carry=keep_carry)


def run(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    *,
    rule: LearningRule,
    reset: Bool[Array, "*B C"] | None = None,
    key: Keys | None = None,
    keep_carry: bool = True,
    through: bool = False,
    merged: bool = False,
) -> Outcome:
    """Do what `forward` does, and more.

    Args:
        network, carry, xs, rule, reset, key, keep_carry: as there.
        through: the chunk is a part of a sequence that is differentiated as a whole: the states before and after it
            are open to the derivative as the rule says, and there are no sensitivities.
        merged: for training: take steps and streams as one axis where there is no state, see `each_step_and_stream`.

    Raises:
        ValueError: as there; through under a rule with depth.
    """
    batched = xs.ndim == 3
    if batched and xs.shape[0] == 1:
        # Axes of one element in the middle keep XLA on a CPU from its fast sums: nearly half of a step.
        key = jax.random.split(key, 1) if key is not None and key.ndim == 0 else key
        told: dict[str, Any] = jax.tree.map(lambda leaf: leaf[0], {"reset": reset, "key": key})
        told |= {"rule": rule, "keep_carry": keep_carry, "through": through}
        out = run(network, jax.tree.map(lambda leaf: jnp.squeeze(leaf, 1), carry), xs[0], **told)
        after = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 1), out.carry)
        return Outcome(out.outputs[None], after)
    if batched:
        # Time in front, streams behind it: scans and weight products then find their operands in place.
        xs = jnp.swapaxes(xs, 0, 1)
        reset = None if reset is None else jnp.swapaxes(reset, 0, 1)
    keep = None
    if key is not None:
        # Drawn here for all blocks: within a block the random bits would be made again wherever the masks are used.
        streams = jax.random.split(key, xs.shape[1]) if batched and key.ndim == 0 else key
        keep = each_stream(network.keep, batched, out_axes=1)(streams)
    if rule.depth and through:
        raise ValueError(f"{rule} does not run in parts of a sequence; run it in chunks, or on whole sequences")
    if rule.depth:
        x, after = _run_deep(network, carry, xs, rule, reset, keep, keep_carry)
    elif rule.sketches and not through:
        x, after = _run_sketched(network, carry, xs, rule, reset, keep, keep_carry)
    else:
        x, after = _run(network, carry, xs, rule, reset, keep, keep_carry, through, merged)
    if network.cumulative_mean:
        if carry is not None:
            raise ValueError("a network with cumulative_mean runs on whole sequences only: carry must be None")
        counts = jnp.arange(1, xs.shape[0] + 1, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        x = also_differentiate(lax.stop_gradient(jnp.cumsum(x, axis=0) / counts), x)
    outputs = each_step_and_stream(network.decoder, batched, merged)(x)
    return Outcome(jnp.swapaxes(outputs, 0, 1) if batched else outputs, after)


def _run(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "C *B I"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "D *B 2 H"] | None,
    keep_carry: bool,
    through: bool,
    merged: bool = False,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run encoder and blocks."""
    x = each_step_and_stream(network.encoder, xs.ndim == 3, merged)(xs)
    if xs.shape[0] == 1:
        blocks = (network.blocks, carry, keep)

        def step(x: Array, now: tuple[Block, Carry | None, Array | None]) -> tuple[Array, Carry | None]:
            return _layer(now[0], now[1], x, rule, reset, now[2], keep_carry, through, merged)

        # In a loop, weights and sensitivities are copied out of their stack and back: a third of a step of one row.
        return lax.scan(step, x, blocks, unroll=4)
    # Vectors come by a product with a row of the identity: sliced, they are fused into the loops over features that use
    # them, where XLA on a CPU then reads them through the layer's number and does not vectorise (7 % of a step).
    vectors, others = eqx.partition(network.blocks, lambda leaf: eqx.is_inexact_array(leaf) and leaf.ndim == 2)

    # The backward pass computes a block again instead of storing its insides, but for the states of linear scans and
    # the readout: more operations and much less memory traffic, which is what limits a CPU here (dev/LOG.md).
    @partial(jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(STATES, _READOUT))
    def layer(x: Array, now: tuple) -> tuple[Array, Carry | None]:
        others, one_hot, before, keep = now
        own = jax.tree.map(partial(_row, one_hot), vectors)
        block = eqx.combine(own, others)
        return _layer(block, before, x, rule, reset, keep, keep_carry, through, merged)

    return lax.scan(layer, x, (others, jnp.eye(network.depth, dtype=bool), carry, keep))


def _run_deep(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "C *B I"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "D *B 2 H"] | None,
    keep_carry: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run encoder and blocks with credit in depth."""
    stack = partial(deep_stack, network, rule=rule, keep_carry=keep_carry)
    before = None if carry is None else tuple(carry)
    x, after = each_stream(stack, xs.ndim == 3, in_axes=1, out_axes=1)(before, xs, reset, keep)
    return x, None if after is None else Carry(*after)


def _run_sketched(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "C *B I"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "D *B 2 H"] | None,
    keep_carry: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run encoder and blocks with all open within the chunk, and a sketch of what came before."""

    def stack(before: Carry | None, xs: Array, reset: Array | None, keep: Array | None) -> tuple[Array, Carry | None]:
        parameters = parameters_below(network)
        h, e = lax.stop_gradient(tuple(init_carry(network, rule) if before is None else before))

        def run(parameters: Parameters, h: Stack) -> tuple[Array, Carry | None]:
            whole = eqx.tree_at(parameters_below, network, parameters)
            return _run(whole, Carry(h, None), xs, rule, reset, keep, keep_carry, through=True)

        x, after = run(parameters, h if before is None else attach_sketch(h, e, parameters))
        if after is None:
            return x, None

        def states(parameters: Parameters, h: Stack) -> Stack:
            after = run(parameters, h)[1]
            assert after is not None
            return after.h

        e = advance_sketch(states, lax.stop_gradient(parameters), h, e)
        return x, lax.stop_gradient(Carry(after.h, e))

    return each_stream(stack, xs.ndim == 3, in_axes=1, out_axes=1)(carry, xs, reset, keep)


def _layer(
    block: Block,
    carry: Carry | None,
    xs: Float[Array, "C *B H"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "*B 2 H"] | None,
    keep_carry: bool,
    through: bool,
    merged: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    cell = block.cell if rule.trains_cells else lax.stop_gradient(block.cell)
    theta = cell.coefficients()
    batched = xs.ndim == 3

    def recur(carry: Carry | None, zs: Array, reset: Array | None) -> tuple[Any, Carry | None]:
        h, e = carry if carry is not None else (cell.init_state(), None)
        h = h if through else lax.stop_gradient(h)
        before = h if e is None else attach(h, e, theta)
        hs, emitted = unroll(cell, theta, before, zs, rule, reset)
        if not keep_carry:
            return emitted, None
        last = jax.tree.map(lambda leaf: leaf[-1], hs)
        e = init_sensitivity(cell, rule) if e is None and not through else e
        after = None if e is None else advance(cell, theta, h, e, zs, hs, rule, reset)
        return emitted, Carry(last if through else lax.stop_gradient(last), lax.stop_gradient(after))

    each = partial(each_step_and_stream, batched=batched, merged=merged)
    zs = each(block.before)(xs)
    # The one place where streams are batched: each has its own state and sensitivity, all share the coefficients.
    emitted, after = each_stream(recur, batched, in_axes=(0, 1, 1), out_axes=(1, 0))(carry, zs, reset)
    ys = checkpoint_name(each(cell.readout)(emitted, zs), _READOUT)
    keeps = None if keep is None else jnp.broadcast_to(keep, (xs.shape[0], *keep.shape))
    return each(block.after)(xs, ys, keeps), after


def _row(one_hot: Bool[Array, "D"], leaf: Array) -> Array:
    return jnp.dot(one_hot.astype(leaf.dtype), leaf, precision=lax.Precision.HIGHEST)
