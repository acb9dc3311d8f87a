"""A network over a chunk under a rule: carry in, outputs and carry out."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cell import AbstractCell
from foretrace._depth import deep_stack
from foretrace._groups import init_deep_sensitivity
from foretrace._network import Block, Network
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._sensitivity import advance, attach, init_sensitivity
from foretrace._sketch import Parameters, Stack, advance_sketch, attach_sketch, init_sketch, parameters_below
from foretrace._types import Array, Bool, Float, Keys, PyTree, Sensitivity, State, States
from foretrace._unroll import also_differentiate, unroll


class Carry(NamedTuple):
    """What a stream carries from chunk to chunk: for each layer (axis D in front) its state and sensitivity.

    In a batch of streams, axis B is the second of every leaf: layers are scanned, and each finds its streams together.

    Args:
        h: states.
        e: sensitivities of h to the coefficients, None under a rule that carries none; of a rule with depth a tuple
            of these and of those to the layers below; of UORO sketches, on the axis in front.
    """

    h: State
    e: Sensitivity | None


def init_carry(network: Network, rule: LearningRule | str, batch_size: int | None = None) -> Carry:
    """Return the carry of a stream before its first step.

    Args:
        network: the network that will run.
        rule: the rule it will be trained by; it decides which sensitivity is carried.
        batch_size: number of independent streams, the second axis of every leaf; one stream without it if None.

    Raises:
        ValueError: an unknown rule, or batch_size below 1.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> ft.init_carry(network, ft.ONLINE).h.shape
    (2, 4)
    """
    rule = as_rule(rule)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"init_carry(batch_size={batch_size}) must be at least 1, or None for one stream")
    carry = jax.vmap(lambda block: _fresh(block.cell, rule))(network.blocks)
    if rule.depth:
        carry = carry._replace(e=init_deep_sensitivity(network, rule, carry.e))
    if rule.sketches:
        carry = carry._replace(e=init_sketch(network, carry.h, rule.sketches))
    if batch_size is None:
        return carry
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], batch_size, axis=1), carry)


def carry_size(network: Network, rule: LearningRule | str) -> int:
    """Return how many real numbers one stream carries from chunk to chunk under a rule; a complex one counts as two.

    Args:
        network: the network.
        rule: a rule or its name.

    Raises:
        ValueError: an unknown rule.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> carry_size(network, ft.BPTT), carry_size(network, ft.ONLINE), carry_size(network, ft.ONLINE.with_depth(1))
    (16, 160, 2944)
    """
    return real_numbers(jax.eval_shape(lambda: init_carry(network, rule)))


def real_numbers(shapes: PyTree[jax.ShapeDtypeStruct]) -> int:
    """Return how many real numbers arrays of these shapes hold; a complex one counts as two."""
    leaves = jax.tree.leaves(shapes)
    return sum(leaf.size * (2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1) for leaf in leaves)


def forward(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    *,
    rule: LearningRule = BPTT,
    reset: Bool[Array, "*B C"] | None = None,
    key: Keys | None = None,
    keep_carry: bool = True,
    through: bool = False,
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
        through: the chunk is a part of a sequence that is differentiated as a whole: the states before and after it
            are open to the derivative as the rule says, and there are no sensitivities.

    Returns:
        The outputs, and the carry after the chunk (None if not kept).

    Raises:
        ValueError: a carry for a network that runs on whole sequences only; through under a rule with depth.
    """
    batched = xs.ndim == 3
    if batched:
        # Time in front, streams behind it: scans and weight products then find their operands in place.
        xs = jnp.swapaxes(xs, 0, 1)
        reset = None if reset is None else jnp.swapaxes(reset, 0, 1)
    keep = None
    if key is not None:
        # Drawn here for all blocks: within a block the random bits would be made again wherever the masks are used.
        streams = jax.random.split(key, xs.shape[1]) if batched and key.ndim == 0 else key
        keep = _streams(network.keep, batched, out_axes=1)(streams)
    if rule.depth and through:
        raise ValueError(f"{rule} does not run in parts of a sequence; run it in chunks, or on whole sequences")
    run: Callable = partial(_run, through=through)
    if rule.depth:
        run = _run_deep
    elif rule.sketches and not through:
        run = _run_sketched
    x, after = run(network, carry, xs, rule, reset, keep, keep_carry)
    if network.cumulative_mean:
        if carry is not None:
            raise ValueError("a network with cumulative_mean runs on whole sequences only: carry must be None")
        counts = jnp.arange(1, xs.shape[0] + 1, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        x = also_differentiate(lax.stop_gradient(jnp.cumsum(x, axis=0) / counts), x)
    outputs = _each(network.decoder, batched)(x)
    return (jnp.swapaxes(outputs, 0, 1) if batched else outputs), after


def _run(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "C *B I"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "D *B 2 H"] | None,
    keep_carry: bool,
    through: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    """Run encoder and blocks."""
    x = _each(network.encoder, xs.ndim == 3)(xs)
    if xs.shape[0] == 1:
        blocks = (network.blocks, carry, keep)
        # In a loop, the sensitivities of several streams are copied out of their stack and back: a third of a step.
        together = 4 if xs.ndim == 3 else 1

        def step(x: Array, now: tuple[Block, Carry | None, Array | None]) -> tuple[Array, Carry | None]:
            return _layer(now[0], now[1], x, rule, reset, now[2], keep_carry, through)

        return lax.scan(step, x, blocks, unroll=together)
    # Vectors come by a product with a row of the identity: sliced, they are fused into the loops over features that use
    # them, where XLA on a CPU then reads them through the layer's number and does not vectorise (7 % of a step).
    vectors, others = eqx.partition(network.blocks, lambda leaf: eqx.is_inexact_array(leaf) and leaf.ndim == 2)

    # The backward pass computes a block again instead of storing its insides: the same operations plus a third,
    # but a quarter of the memory traffic, which is what limits a CPU here (benchmarks/README.md).
    @partial(jax.checkpoint, prevent_cse=False)
    def layer(x: Array, now: tuple[Block, Array, Carry | None, Array | None]) -> tuple[Array, Carry | None]:
        others, one_hot, before, keep = now
        own = jax.tree.map(partial(_row, one_hot), vectors)
        return _layer(eqx.combine(own, others), before, x, rule, reset, keep, keep_carry, through)

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
    x, after = _streams(stack, xs.ndim == 3, in_axes=1, out_axes=1)(before, xs, reset, keep)
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
        def run(parameters: Parameters, h: Stack) -> tuple[Array, Stack]:
            whole = eqx.tree_at(parameters_below, network, parameters)
            x, after = _run(whole, Carry(h, None), xs, BPTT, reset, keep, True, through=True)
            assert after is not None
            return x, after.h

        parameters = parameters_below(network)
        h, e = lax.stop_gradient(tuple(init_carry(network, rule) if before is None else before))
        x, after = run(parameters, h if before is None else attach_sketch(h, e, parameters))
        if not keep_carry:
            return x, None
        closed = lax.stop_gradient(parameters)
        return x, lax.stop_gradient(Carry(after, advance_sketch(lambda p, h: run(p, h)[1], closed, h, e)))

    return _streams(stack, xs.ndim == 3, in_axes=1, out_axes=1)(carry, xs, reset, keep)


def _layer(
    block: Block,
    carry: Carry | None,
    xs: Float[Array, "C *B H"],
    rule: LearningRule,
    reset: Bool[Array, "C *B"] | None,
    keep: Float[Array, "*B 2 H"] | None,
    keep_carry: bool,
    through: bool,
) -> tuple[Float[Array, "C *B H"], Carry | None]:
    cell = block.cell if rule.trains_cells else lax.stop_gradient(block.cell)
    theta = cell.coefficients()

    def recur(carry: Carry | None, zs: Array, reset: Array | None) -> tuple[States, Carry | None]:
        h, e = carry if carry is not None else (cell.init_state(), None)
        h = h if through else lax.stop_gradient(h)
        hs, emitted = unroll(cell, theta, h if e is None else attach(h, e, theta), zs, rule, reset)
        if not keep_carry:
            return emitted, None
        last = jax.tree.map(lambda leaf: leaf[-1], hs)
        if through:
            return emitted, Carry(last, None)
        e = init_sensitivity(cell, rule) if e is None else e
        after = None if e is None else advance(cell, theta, h, e, zs, hs, rule, reset)
        return emitted, lax.stop_gradient(Carry(last, after))

    batched = xs.ndim == 3
    zs = _each(block.before, batched)(xs)
    # The one place where streams are batched: each has its own state and sensitivity, all share the coefficients.
    emitted, after = _streams(recur, batched, in_axes=(0, 1, 1), out_axes=(1, 0))(carry, zs, reset)
    ys = _each(cell.readout, batched)(emitted, zs)
    after_cell = _streams(block.after, batched)
    return jax.vmap(after_cell, in_axes=(0, 0, None))(xs, ys, keep), after


def _row(one_hot: Bool[Array, "D"], leaf: Array) -> Array:
    return jnp.dot(one_hot.astype(leaf.dtype), leaf, precision=lax.Precision.HIGHEST)


def _each(function: Callable, batched: bool) -> Callable:
    """Apply a function of one step to all steps and streams."""
    return jax.vmap(jax.vmap(function) if batched else function)


def _streams(function: Callable, batched: bool, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
    """Apply a function of one stream to all streams."""
    return jax.vmap(function, in_axes, out_axes) if batched else function


def _fresh(cell: AbstractCell, rule: LearningRule) -> Carry:
    return Carry(cell.init_state(), init_sensitivity(cell, rule))
