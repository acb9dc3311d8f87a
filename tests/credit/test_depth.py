"""Laws of credit in depth: exact if everything above is open, its definition in between."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from gradients import (
    LOSS,
    RESET,
    WEIGHTS,
    XS,
    YS,
    D,
    T,
    apart,
    assert_equal,
    exact_rule,
    make_network,
    run,
    run_in_chunks,
)
from jax import lax
from tiers import fast, slow

import foretrace as ft


def group_of(path, rows, norm):
    """Return the group of each row of a parameter: the number of recurrences up to it."""
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    if not name.startswith("blocks."):
        return 0 if name.startswith("encoder.") else D
    return np.arange(rows) + (0 if name.startswith("blocks.norm.") and norm == "pre" else 1)


@partial(jax.jit, static_argnames="norm")
def by_definition(network, depth, own_only=False, norm="pre", groups=D + 1):
    """Return a sequence's loss and gradient: one pass for each group, all others constants.

    In the pass of group j a recurrence differentiates its past if it is one of j … j + depth, and
    takes it as a constant otherwise. `own_only` leaves a module's past through other modules out,
    as SnAp-1 does. Only the first `groups` have the depth.
    """

    def total(network, j):
        def only(path, leaf):
            group = group_of(path, len(leaf), norm)
            opened = jnp.reshape(group == j, (-1, *[1] * (leaf.ndim - 1)))
            return jnp.where(opened, leaf, lax.stop_gradient(leaf))

        network = jax.tree.map_with_path(only, network)
        x = jax.vmap(network.encoder)(jnp.asarray(XS[0]))
        for m in range(1, D + 1):
            block = network.block(m - 1)
            z = jax.vmap(block.before)(x)
            hs = states(
                block.cell, z, through_time=(j <= m) & (m <= j + jnp.where(j < groups, depth, 0))
            )
            y = jax.vmap(block.cell.readout)(hs, z)
            x = jax.vmap(lambda x, y, block=block: block.after(x, y, None))(x, y)
        return jnp.sum(jax.vmap(LOSS)(jax.vmap(network.decoder)(x), jnp.asarray(YS[0])) * WEIGHTS)

    def states(cell, zs, through_time):
        initial, theta = cell.init_state(), cell.coefficients()

        def opened(h, when):
            return jax.tree.map(lambda leaf: jnp.where(when, leaf, lax.stop_gradient(leaf)), h)

        def step(h, now):
            z, start = now
            h = jax.tree.map(lambda first, h: jnp.where(start, first, h), initial, h)
            own = opened(h, through_time)
            h = cell.step(theta, own, opened(own, jnp.logical_not(own_only)), z)
            return h, h

        return lax.scan(step, initial, (zs, jnp.asarray(RESET)))[1]

    # One program for every depth and number of groups: they are values, and so is the group of a
    # pass.
    values, grads = lax.map(lambda j: jax.value_and_grad(total)(network, j), jnp.arange(D + 1))
    return values[0], jax.tree.map(lambda leaf: leaf.sum(0), grads)


OFTEN = ("lru", "gru", "rtu")


@pytest.mark.full
@pytest.mark.parametrize(
    "cell_name", fast([*OFTEN, *(slow(name) for name in CELLS if name not in OFTEN)]), indirect=True
)
def test_the_full_depth_is_backpropagation_through_time_streamed(cell_name):
    network = make_network(cell_name, depth=2)
    rule = exact_rule(network).with_depth(2)
    assert_equal(run_in_chunks(network, rule, [1] * T)[:2], run(network, ft.BPTT)[:2])


EVERY_PARTITION, PAIRS = ((1, 2, 3), (3, 2, 1), (1,) * T), ((2,) * (T // 2),)
CASES = [
    # Only a third chunk shows whether the sensitivities of the first have decayed.
    ("lru", "online(depth=1)", ((1,) * T,), {}),
    ("tanh", "rtrl(depth=1)", ((3, 2, 1),), {}),
    ("lru", f"online(depth={D}, groups=1)", EVERY_PARTITION, {}),
    slow("gru", "rtrl(depth=2, groups=2)", EVERY_PARTITION, {}),
    slow("lru", "online(depth=1)", ((3, 2, 1),), {"norm": "none", "glu": False}),
    ("lru", "online(depth=2, groups=2)", PAIRS, {"norm": "post"}),
]


@pytest.mark.parametrize(("cell", "rule", "chunkings", "options"), fast(CASES), ids=str)
def test_every_partition_is_the_definition(cell, rule, chunkings, options):
    """Some groups have the depth, and the others the rule itself."""
    network, rule = make_network(cell, **options), ft.rule(rule)
    depth, groups = min(rule.credit.depth, D), rule.credit.groups or D + 1
    norm = options.get("norm", "pre")
    define = partial(by_definition, network, own_only=not rule.others, norm=norm)
    want = define(depth, groups=groups)
    *whole, carry = run(network, rule)
    assert_equal(whole, want)
    for lengths in chunkings:
        assert_equal(run_in_chunks(network, rule, lengths), (*want, carry))
    assert apart(want[1], define(depth - 1, groups=groups)[1]) > 1e-6
    # Nothing is above the last group.
    more = [apart(want[1], define(depth, groups=groups + i)[1]) for i in (-1, 1)]
    assert (more[0] > 1e-6) == (groups <= D) and (more[1] > 1e-6) == (groups < D)


@pytest.mark.full
def test_dropout_masks_are_those_of_the_other_rules():
    network, key = make_network(dropout=0.5), jax.random.key(3)
    deep = run(network, ft.ONLINE.with_depth(D), key=key)
    assert_equal(deep[:2], run(network, ft.BPTT, key=key)[:2])
    keys = {"keep_carry": False, "key": key}
    rules = ft.ONLINE.with_depth(1), ft.BPTT
    assert_equal(*(ft.forward(network, None, jnp.asarray(XS), rule=rule, **keys) for rule in rules))
