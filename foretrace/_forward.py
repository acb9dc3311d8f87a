"""A network over a chunk under a rule: carry in, outputs and carry out. Written for one stream; `vmap` is elsewhere."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cell import AbstractCell
from foretrace._network import Block, Network
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._sensitivity import advance, attach, init_sensitivity
from foretrace._types import Array, Bool, Float, PRNGKeyArray, Sensitivity, State
from foretrace._unroll import unroll


class Carry(NamedTuple):
    """What a stream carries from chunk to chunk: for each layer (axis D in front) its state and sensitivity.

    In a batch of streams, axis B is the second of every leaf: layers are scanned, and each finds its streams together.

    Args:
        h: states.
        e: sensitivities of h to the coefficients, None under a rule that carries none.
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
    if batch_size is None:
        return carry
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], batch_size, axis=1), carry)


def forward(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "C I"],
    *,
    rule: LearningRule = BPTT,
    reset: Bool[Array, "C"] | None = None,
    key: PRNGKeyArray | None = None,
    keep_carry: bool = True,
) -> tuple[Float[Array, "C O"], Carry | None]:
    """Run a network over a chunk of one stream.

    Args:
        network: the network.
        carry: what came before; None starts a sequence, with nothing attached.
        xs: inputs.
        rule: what is open to the derivative; the values do not depend on it.
        reset: steps that start an episode.
        key: PRNG key of the dropout masks; no dropout without it.
        keep_carry: False spares the sensitivity at the end of the chunk.

    Returns:
        The outputs, and the carry after the chunk (None if not kept).
    """
    x = jax.vmap(network.encoder)(xs)
    keys = None if key is None else jax.random.split(key, network.depth)

    def layer(x: Array, now: tuple[Block, Carry | None, Array | None]) -> tuple[Array, Carry | None]:
        block, before, key = now
        return _layer(block, before, x, rule, reset, key, keep_carry)

    if xs.shape[0] > 1:
        # The backward pass computes a block again instead of storing its insides: the same operations plus a third,
        # but a quarter of the memory traffic, which is what limits a CPU here (benchmarks/README.md).
        layer = jax.checkpoint(layer, prevent_cse=False)
    x, after = lax.scan(layer, x, (network.blocks, carry, keys))
    return jax.vmap(network.decoder)(x), after


def _layer(
    block: Block,
    carry: Carry | None,
    xs: Float[Array, "C H"],
    rule: LearningRule,
    reset: Bool[Array, "C"] | None,
    key: PRNGKeyArray | None,
    keep_carry: bool,
) -> tuple[Float[Array, "C H"], Carry | None]:
    cell = block.cell if rule.trains_cells else lax.stop_gradient(block.cell)
    zs = jax.vmap(block.before)(xs)
    theta = cell.coefficients()
    h, e = carry if carry is not None else (cell.init_state(), None)
    h = lax.stop_gradient(h)
    hs, emitted = unroll(cell, theta, h if e is None else attach(h, e, theta), zs, rule, reset)
    ys = jax.vmap(cell.readout)(emitted, zs)
    ys = jax.vmap(block.after, in_axes=(0, 0, None))(xs, ys, block.keep(xs.shape[-1], key))
    if not keep_carry:
        return ys, None
    e = init_sensitivity(cell, rule) if e is None else e
    after = None if e is None else advance(cell, theta, h, e, zs, hs, rule, reset)
    return ys, lax.stop_gradient(Carry(jax.tree.map(lambda leaf: leaf[-1], hs), after))


def _fresh(cell: AbstractCell, rule: LearningRule) -> Carry:
    return Carry(cell.init_state(), init_sensitivity(cell, rule))
