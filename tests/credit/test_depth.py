"""Laws of credit in depth: exact if everything above is open, its definition in between."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
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
    partitions,
    run,
    run_in_chunks,
)
from hypothesis import given
from jax import lax
from tiers import fast, slow

import foretrace as ft
from foretrace.testing._definitions import plain_states

DEEP = ft.ONLINE.with_depth(1)


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


@pytest.mark.full
@pytest.mark.parametrize("cell", fast(["lru", "lstm", "gru"]))
def test_without_depth_the_definition_is_the_papers_rule(cell):
    network = make_network(cell)
    assert_equal(by_definition(network, 0), run(network, exact_rule(network))[:2])


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "depth"), fast([("lru", D), ("lstm", D), ("gru", D), slow("lru", D + 2)])
)
@given(data=st.data())
def test_the_full_depth_is_backpropagation_through_time_streamed(cell, depth, data):
    network, lengths = (
        make_network(cell),
        data.draw(st.sampled_from([(T,), *partitions((3, 2, 1))]), label="lengths"),
    )
    reset = np.array(data.draw(st.lists(st.booleans(), min_size=T, max_size=T), label="reset"))
    mask = np.array(data.draw(st.lists(st.floats(0, 2), min_size=T, max_size=T), label="mask"))
    exact = run(network, ft.BPTT, mask=mask, reset=reset)[:2]
    got = run_in_chunks(
        network, exact_rule(network).with_depth(depth), lengths, mask=mask, reset=reset
    )[:2]
    assert_equal(got, exact)


EVERY_PARTITION = ((1, 2, 3), (3, 2, 1), (1,) * T)
CASES = [
    # Two programs, where all partitions take four. Only a third chunk shows whether the
    # sensitivities of the first have decayed.
    ("lru", "online(depth=1)", ((1,) * T,)),
    ("lru", "online(depth=1)", EVERY_PARTITION),
    ("gru", "rtrl(depth=1)", EVERY_PARTITION),
    ("lru", "online(depth=2)", EVERY_PARTITION),
    ("lru", f"online(depth={D}, groups=1)", EVERY_PARTITION),
    ("gru", "rtrl(depth=2, groups=2)", EVERY_PARTITION),
    slow("lstm", "online(depth=1)", EVERY_PARTITION),
    slow("gru", "snap1(depth=1)", EVERY_PARTITION),
    slow("lru", "online(depth=1, groups=1)", EVERY_PARTITION),
    slow("lstm", "online(depth=2, groups=2)", EVERY_PARTITION),
    slow("lru", "online(depth=2, groups=3)", EVERY_PARTITION),
    slow("gru", "rtrl(depth=2)", EVERY_PARTITION),
]


@pytest.mark.parametrize(("cell", "rule", "chunkings"), fast(CASES), ids=str)
def test_every_partition_is_the_definition(cell, rule, chunkings):
    """Some groups have the depth, and the others the rule itself."""
    network, rule = make_network(cell), ft.rule(rule)
    depth, groups = rule.credit.depth, rule.credit.groups or D + 1
    define = partial(by_definition, network, own_only=not rule.others)
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
@pytest.mark.parametrize(
    ("rule", "options"),
    fast(
        [
            ("online(depth=1)", {"norm": "post"}),
            ("online(depth=1)", {"norm": "none", "glu": False}),
            ("online(depth=2, groups=2)", {"norm": "post"}),
        ]
    ),
    ids=str,
)
def test_groups_follow_the_norm(rule, options):
    network, rule = make_network(**options), ft.rule(rule)
    credit, norm = rule.credit, options["norm"]
    want = by_definition(network, credit.depth, norm=norm, groups=credit.groups or D + 1)
    assert_equal(run_in_chunks(network, rule, (3, 2, 1))[:2], want)


@pytest.mark.full
def test_what_is_carried_is_the_whole_derivative_of_the_states():
    """Every path from group j to recurrence m is open, so the sensitivity is plain autodiff's."""
    network = make_network()
    e = jax.tree.map(jnp.asarray, run_in_chunks(network, ft.ONLINE.with_depth(2), (1, 3, 2))[2].e)

    def last_states(network):
        x, last = jax.vmap(network.encoder)(jnp.asarray(XS[0])), []
        for i in range(D):
            block = network.block(i)
            z = jax.vmap(block.before)(x)
            hs = plain_states(block.cell, block.cell.coefficients(), z, jnp.asarray(RESET))
            x = jax.vmap(partial(block.after, keep=None))(x, jax.vmap(block.cell.readout)(hs, z))
            last.append(hs[-1])
        return jnp.stack(last)

    want = jax.jit(jax.jacfwd(last_states))(network)
    assert [pair.encoder.weight.shape for pair in e.below] == [(3, 4, 2)] * 2
    for m in (1, 2):
        assert_equal(
            e.to(m, 0), (want.encoder.weight[m - 1], want.encoder.bias[m - 1], *norm_of(want, m, 0))
        )
    for m, j in ((2, 1), (3, 1), (3, 2)):
        block = jax.tree.map(
            lambda leaf, m=m, j=j: leaf[m - 1, :, j - 1], (want.blocks.cell, want.blocks.glu)
        )
        assert_equal(e.to(m, j), (*block, *norm_of(want, m, j)))


def norm_of(jacobian, m, i):
    return [leaf[m - 1, :, i] for leaf in jax.tree.leaves(jacobian.blocks.norm)]


@pytest.mark.full
def test_dropout_masks_are_those_of_the_other_rules():
    network, key = make_network(dropout=0.5), jax.random.key(3)
    assert_equal(
        run(network, ft.ONLINE.with_depth(D), key=key)[:2], run(network, ft.BPTT, key=key)[:2]
    )
    xs, keys = jnp.asarray(XS), {"keep_carry": False, "key": key}
    outputs = [ft.forward(network, None, xs, rule=rule, **keys)[0] for rule in (DEEP, ft.BPTT)]
    assert_equal(*outputs)


@pytest.mark.full
def test_a_rule_that_trains_no_cell_has_credit_in_depth_elsewhere():
    network, frozen = (
        make_network(),
        ft.LearningRule("FROZEN", own=True, carried=True, trains_cells=False).with_depth(D),
    )
    grads, exact = run_in_chunks(network, frozen, (3, 3))[1], run(network, ft.BPTT)[1]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads.blocks.cell))
    parts = [(g.encoder, g.blocks.norm, g.blocks.glu, g.decoder) for g in (grads, exact)]
    assert_equal(*parts)


@pytest.mark.full
def test_the_carry_is_counted_and_does_not_grow():
    network, n, lru, glu, norm, encoder = (
        make_network(),
        3,
        3 * 3 + 2 * 3 * 4 + 2 * 4 * 3 + 4,
        8 * 5,
        8,
        4 * 3,
    )
    own = 2 * D * (n + n + n * 4)
    group, below = 2 * n * (lru + glu + norm), 2 * n * (encoder + norm)
    assert ft.carry_size(network, ft.BPTT) == 2 * D * n
    assert ft.carry_size(network, ft.ONLINE) == own
    assert ft.carry_size(network, "online") == own
    assert ft.carry_size(network, DEEP) == own + below + 2 * group
    assert ft.carry_size(network, ft.ONLINE.with_depth(2)) == own + 2 * below + 3 * group
    assert ft.carry_size(network, ft.ONLINE.with_depth(9)) == ft.carry_size(
        network, ft.ONLINE.with_depth(D)
    )
    carry = run_in_chunks(network, DEEP, (1, 2, 3))[2]
    sizes = [leaf.size * (2 if np.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(carry)]
    assert sum(sizes) == ft.carry_size(network, DEEP)
