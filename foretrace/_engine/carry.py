"""The carry of a stream: its initial value, its size, and functions that check or clear it."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.parts import check_key
from foretrace._credit.groups import init_deep_sensitivity
from foretrace._credit.modules import sample_modules
from foretrace._credit.table import with_blocks
from foretrace._network import AbstractNetwork, check_network
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.sensitivity import init_sensitivity
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, Bool, PRNGKeyArray, PyTree


def init_carry(
    network: AbstractNetwork,
    rule: LearningRule | str,
    batch_size: int | None = None,
    *,
    key: PRNGKeyArray | None = None,
) -> Carry:
    """Return the carry of a stream before its first step.

    Args:
        network: network that will run.
        rule: rule of the training, which determines the sensitivities in the carry.
        batch_size: number of independent streams, the second axis of every leaf. None (default)
            means one stream without this axis.
        key: PRNG key for a rule that samples, split over the streams. Use a different key for each
            sequence. Default: `jax.random.key(0)`.

    Raises:
        TypeError: `network` is no network, or `key` is no PRNG key.
        ValueError: the rule is unknown, or batch_size is below 1.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> ft.init_carry(network, ft.ONLINE).h.shape
    (2, 4)
    """
    rule = as_rule(rule)
    check_network("init_carry", network)
    if key is not None:
        check_key("init_carry", key)
    if batch_size is not None and batch_size < 1:
        raise ValueError(
            f"init_carry(batch_size={batch_size}) must be at least 1, or None for one stream"
        )
    h = network.each_cell(lambda cell: cell.init_state())
    e = network.each_cell(partial(init_sensitivity, rule=rule)) if rule.carried else None
    if rule.credit is not None:
        e = init_deep_sensitivity(with_blocks(network, rule), rule, e)
    carry = Carry(h, e)
    if batch_size is not None:
        # Layers stay in front, because they are scanned; streams are the second axis.
        carry = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], batch_size, axis=1), carry)
    if not rule.samples:
        return carry
    default = jax.random.key(0)
    key = default if key is None else key
    if jax.random.key_impl(key) != jax.random.key_impl(default):
        # Carried as raw data, which the default implementation wraps.
        key = jax.random.key(jax.random.bits(key, (), jnp.uint32))
    # The streams of a batch sample independently, so that their noise averages out.
    keys = key if batch_size is None else jax.random.split(key, batch_size)
    sample = partial(sample_modules, with_blocks(network, rule), rule)
    modules = sample(keys) if batch_size is None else jax.vmap(sample, out_axes=1)(keys)
    return carry._replace(key=jax.random.key_data(keys)[None], modules=modules)


def carry_size(network: AbstractNetwork, rule: LearningRule | str) -> int:
    """Return the number of real numbers that a stream carries; a complex number counts twice.

    Args:
        network: network, or a network of shapes.
        rule: rule or its name.

    Raises:
        ValueError: the rule is unknown.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> (
    ...     carry_size(network, ft.BPTT),
    ...     carry_size(network, ft.ONLINE),
    ...     carry_size(network, ft.ONLINE.with_depth(1)),
    ... )
    (16, 160, 2944)
    """
    return real_numbers(eqx.filter_eval_shape(init_carry, network, rule))


def cleared(carry: Carry) -> Carry:
    """Return the carry with all sensitivities set to zero."""
    return carry._replace(e=jax.tree.map(jnp.zeros_like, carry.e))


def is_finite(tree: PyTree[Array], *, of_streams: bool = False) -> Bool[Array, "*B"]:
    """Return whether all floats of a tree are finite, or with `of_streams` those of each stream."""
    found = jnp.array(True)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            others = tuple(axis for axis in range(leaf.ndim) if axis != 1) if of_streams else None
            found = found & jnp.isfinite(leaf).all(axis=others)
    return found


def choose_carry(accepted: Bool[Array, "*B"], after: Carry, before: Carry) -> Carry:
    """Return the carry `after` where `accepted` is true, else `before`, for each stream."""

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(
            accepted.reshape(accepted.shape + (1,) * (new.ndim - 2 if accepted.ndim else 0)),
            new,
            old,
        )

    return jax.tree.map(chosen, after, before)


def real_numbers(shapes: PyTree[jax.ShapeDtypeStruct]) -> int:
    """Return the number of real numbers in arrays; a complex number counts twice."""
    leaves = jax.tree.leaves(shapes)
    return sum(
        leaf.size * (2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1) for leaf in leaves
    )
