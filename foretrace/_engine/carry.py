"""What a stream carries from chunk to chunk: states, and the sensitivities that a rule asks for."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._credit.groups import init_deep_sensitivity
from foretrace._credit.sketch import init_sketch
from foretrace._network import Network
from foretrace._recurrence.sensitivity import init_sensitivity
from foretrace._rule import LearningRule, as_rule
from foretrace._types import PyTree, Sensitivity, State


class Carry(NamedTuple):
    """What a stream carries from chunk to chunk: for each layer (axis D in front) its state and sensitivity.

    In a batch of streams, axis B is the second of every leaf: layers are scanned, and each finds its streams together.

    Args:
        h: states.
        e: sensitivities of h to the coefficients, None under a rule that carries none; of a rule with depth a tuple
            of these and of those to the layers below, and where only columns or modules are carried of the seed that
            these are drawn from; where there are sketches a `Sketch` of them.
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
    carry = jax.vmap(lambda block: Carry(block.cell.init_state(), init_sensitivity(block.cell, rule)))(network.blocks)
    if rule.depth:
        carry = carry._replace(e=init_deep_sensitivity(network, rule, carry.e))
    if rule.sketches:
        carry = carry._replace(e=init_sketch(network, carry.h, rule.sketches))
    if batch_size is None:
        return carry
    carry = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], batch_size, axis=1), carry)
    if rule.drawn:
        number = jnp.broadcast_to(jnp.arange(batch_size, dtype=jnp.uint32), carry.e.seed.shape)
        carry = carry._replace(e=carry.e._replace(seed=number))
    return carry


def carry_size(network: Network, rule: LearningRule | str) -> int:
    """Return how many real numbers one stream carries from chunk to chunk under a rule; a complex one counts as two.

    Args:
        network: the network, or its shapes.
        rule: a rule or its name.

    Raises:
        ValueError: an unknown rule.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> carry_size(network, ft.BPTT), carry_size(network, ft.ONLINE), carry_size(network, ft.ONLINE.with_depth(1))
    (16, 160, 2944)
    """
    return real_numbers(eqx.filter_eval_shape(init_carry, network, rule))


def cleared(carry: Carry) -> Carry:
    """Return a carry with a sensitivity of zero; what is no number of it, such as a seed, stays."""
    numbers, others = eqx.partition(carry.e, eqx.is_inexact_array)
    return carry._replace(e=eqx.combine(jax.tree.map(jnp.zeros_like, numbers), others))


def real_numbers(shapes: PyTree[jax.ShapeDtypeStruct]) -> int:
    """Return how many real numbers arrays of these shapes hold; a complex one counts as two."""
    leaves = jax.tree.leaves(shapes)
    return sum(leaf.size * (2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1) for leaf in leaves)
