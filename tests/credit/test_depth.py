"""Laws of credit in depth: exact where everything above is open, its definition in between, in chunks of any length."""

from functools import cache, partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

import foretrace as ft
from foretrace.testing._check import plain_states

T, D = 6, 3
TOLERANCE = 1e-10
LOSS = ft.losses.softmax_cross_entropy
RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(size=(2, T, 2))
YS = RANDOM.integers(0, 3, size=(2, T))
RESET = np.arange(T) == 4
WEIGHTS = np.array([0.5, 0.0, 1.0, 2.0, 0.0, 1.5])
CELLS = {"lru": ft.LRU.factory(state_size=3), "lstm": ft.ElementwiseLSTM.factory(), "gru": ft.GRU.factory()}
EXACT = {"lru": ft.ONLINE, "lstm": ft.ONLINE, "gru": ft.RTRL}
"""The rule that is exact inside a layer of each."""
DEEP = ft.ONLINE.with_depth(1)
PARTITIONS = [(6,), (3, 3), (1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 1, 1, 1, 1, 1), (2, 2, 2), (1, 3, 2), (2, 3, 1)]


@cache
def make_network(cell="lru", **options):
    return ft.Network(2, 3, model_size=4, depth=D, cell=CELLS[cell], key=jax.random.key(0), **options)


def run(network, rule, carry=None, part=slice(None), *, xs=XS[0], ys=YS[0], mask=WEIGHTS, reset=RESET, key=None):
    """Return (value, grads, carry) of a part of the sequence, as NumPy arrays."""
    xs, ys, mask, reset = (jnp.asarray(a[part]) for a in (xs, ys, mask, reset))
    out = ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset, key=key)
    return jax.tree.map(np.asarray, out)


def run_in_chunks(network, rule, lengths, **arguments):
    carry, total = ft.init_carry(network, rule), None
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends, strict=True):
        *now, carry = run(network, rule, carry, slice(int(start), int(end)), **arguments)
        total = now if total is None else jax.tree.map(np.add, total, now)
    return *total, carry


def apart(got, want):
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return max(np.max(np.abs(np.asarray(g) - w)) / max(1.0, np.max(np.abs(w))) for g, w in pairs)


def assert_equal(got, want):
    assert apart(got, want) <= TOLERANCE


def group_of(path, rows, norm):
    """Return the group of each row of a parameter: how many recurrences lie below it, its own included."""
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    if not name.startswith("blocks."):
        return 0 if name.startswith("encoder.") else D
    return np.arange(rows) + (0 if name.startswith("blocks.norm.") and norm == "pre" else 1)


@partial(jax.jit, static_argnames=("depth", "own_only", "norm", "groups"))
def by_definition(network, depth, own_only=False, norm="pre", groups=D + 1):
    """Return loss and gradient of the sequence: one pass for each group, with all other parameters constants.

    In the pass of group j a recurrence differentiates its past if it is one of j … j + depth, and takes it as a
    constant otherwise. `own_only` leaves a module's past through other modules out, as SnAp-1 does. Only the first
    `groups` have the depth.
    """

    def total(network, j):
        def only(path, leaf):
            group = np.asarray(group_of(path, len(leaf), norm))
            opened = (group == j).reshape(-1, *[1] * (leaf.ndim - 1)) if group.ndim else group == j
            return jnp.where(opened, leaf, lax.stop_gradient(leaf))

        network = jax.tree.map_with_path(only, network)
        x = jax.vmap(network.encoder)(jnp.asarray(XS[0]))
        for m in range(1, D + 1):
            block = network.block(m - 1)
            z = jax.vmap(block.before)(x)
            hs = states(block.cell, z, through_time=j <= m <= j + (depth if j < groups else 0))
            y = jax.vmap(block.cell.readout)(hs, z)
            x = jax.vmap(lambda x, y, block=block: block.after(x, y, None))(x, y)
        return jnp.sum(jax.vmap(LOSS)(jax.vmap(network.decoder)(x), jnp.asarray(YS[0])) * WEIGHTS)

    def states(cell, zs, through_time):
        initial, theta = cell.init_state(), cell.coefficients()

        def step(h, now):
            z, start = now
            h = jax.tree.map(lambda first, h: jnp.where(start, first, h), initial, h)
            own = h if through_time else lax.stop_gradient(h)
            h = cell.step(theta, own, lax.stop_gradient(h) if own_only else own, z)
            return h, h

        return lax.scan(step, initial, (zs, jnp.asarray(RESET)))[1]

    passes = [jax.value_and_grad(total)(network, j) for j in range(D + 1)]
    return passes[0][0], jax.tree.map(lambda *grads: sum(grads), *[grads for _, grads in passes])


def test_a_carry_of_another_depth_is_refused():
    network = make_network()
    for had in (ft.ONLINE, ft.ONLINE.with_depth(2)):
        with pytest.raises(ValueError, match=r"carry does not fit.*SNAP1\(depth=1\)"):
            run(network, DEEP, ft.init_carry(network, had))


@pytest.mark.parametrize("cell", CELLS)
def test_without_depth_the_definition_is_the_papers_rule(cell):
    assert_equal(by_definition(make_network(cell), 0), run(make_network(cell), EXACT[cell])[:2])


@pytest.mark.parametrize(
    ("cell", "depth"), [("lru", D), ("lstm", D), ("gru", D), pytest.param("lru", D + 2, marks=pytest.mark.slow)]
)
@given(data=st.data())
def test_the_full_depth_is_backpropagation_through_time_streamed(cell, depth, data):
    network, lengths = make_network(cell), data.draw(st.sampled_from(PARTITIONS), label="lengths")
    reset = np.array(data.draw(st.lists(st.booleans(), min_size=T, max_size=T), label="reset"))
    mask = np.array(data.draw(st.lists(st.floats(0, 2), min_size=T, max_size=T), label="mask"))
    exact = run(network, ft.BPTT, mask=mask, reset=reset)[:2]
    got = run_in_chunks(network, EXACT[cell].with_depth(depth), lengths, mask=mask, reset=reset)[:2]
    assert_equal(got, exact)


@pytest.mark.parametrize(
    ("cell", "rule", "depth"),
    [
        ("lru", ft.ONLINE, 1),
        ("lru", ft.ONLINE, 2),
        ("gru", ft.RTRL, 1),
        pytest.param("lstm", ft.ONLINE, 1, marks=pytest.mark.slow),
        pytest.param("gru", ft.SNAP1, 1, marks=pytest.mark.slow),
        pytest.param("lstm", ft.ONLINE, 2, marks=pytest.mark.slow),
        pytest.param("gru", ft.RTRL, 2, marks=pytest.mark.slow),
        pytest.param("gru", ft.SNAP1, 2, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_partition_is_the_definition(cell, rule, depth):
    network = make_network(cell)
    want = by_definition(network, depth, own_only=not rule.others)
    *whole, carry = run(network, rule.with_depth(depth))
    assert_equal(whole, want)
    for lengths in ((1, 2, 3), (3, 2, 1), (1,) * T):
        assert_equal(run_in_chunks(network, rule.with_depth(depth), lengths), (*want, carry))
    assert apart(want[1], by_definition(network, depth - 1, own_only=not rule.others)[1]) > 1e-6


@pytest.mark.parametrize("options", [{"norm": "post"}, {"norm": "none", "glu": False}], ids=str)
def test_groups_follow_the_norm(options):
    network = make_network(**options)
    got = run_in_chunks(network, DEEP, (3, 2, 1))[:2]
    assert_equal(got, by_definition(network, 1, norm=options["norm"]))


def test_what_is_carried_is_the_whole_derivative_of_the_states():
    """Every path from group j to recurrence m is open, so that their sensitivity is plain autodiff's."""
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
    assert e.below.encoder.weight.shape == (2, 3, 4, 2)
    for m in (1, 2):
        assert_equal(e.to(m, 0), (want.encoder.weight[m - 1], want.encoder.bias[m - 1], *norm_of(want, m, 0)))
    for m, j in ((2, 1), (3, 1), (3, 2)):
        block = jax.tree.map(lambda leaf, m=m, j=j: leaf[m - 1, :, j - 1], (want.blocks.cell, want.blocks.glu))
        assert_equal(e.to(m, j), (*block, *norm_of(want, m, j)))


def norm_of(jacobian, m, i):
    return [leaf[m - 1, :, i] for leaf in jax.tree.leaves(jacobian.blocks.norm)]


def test_a_reset_makes_two_sequences():
    network, start = make_network(), ft.init_carry(make_network(), DEEP)
    got = run(network, DEEP, reset=np.arange(T) == 3)
    none = np.zeros(T, bool)
    first, second = (run(network, DEEP, start, part, reset=none) for part in (slice(0, 3), slice(3, 6)))
    assert_equal(got, (*jax.tree.map(np.add, first[:2], second[:2]), second[2]))


def test_masked_padding_changes_nothing():
    network, mask = make_network(), (np.arange(T) < 3).astype(float)
    xs = np.where(mask[:, None] > 0, XS[0], 1e3 * XS[1])
    short = run(network, DEEP, ft.init_carry(network, DEEP), slice(0, 3), mask=mask)[:2]
    assert_equal(run(network, DEEP, xs=xs, mask=mask)[:2], short)


def test_a_batch_is_the_mean_of_its_streams():
    network, halves = make_network(), (slice(0, 3), slice(3, 6))
    masks, resets = np.stack([WEIGHTS, WEIGHTS[::-1]]), np.stack([RESET, np.arange(T) == 1])
    carry, alone = ft.init_carry(network, DEEP, batch_size=2), [ft.init_carry(network, DEEP)] * 2
    for part in halves:
        xs, ys, mask, reset = (jnp.asarray(a[:, part]) for a in (XS, YS, masks, resets))
        *got, carry = ft.gradient(network, carry, xs, ys, rule=DEEP, loss=LOSS, mask=mask, reset=reset)
        found = [
            run(network, DEEP, alone[b], part, xs=XS[b], ys=YS[b], mask=masks[b], reset=resets[b]) for b in range(2)
        ]
        alone = [one[2] for one in found]
        assert_equal(got, jax.tree.map(lambda a, b: (a + b) / 2, found[0][:2], found[1][:2]))
        assert_equal(carry, jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *alone))


def test_depth_is_what_hybrid_misses_between_chunks():
    """Within a chunk HYBRID goes through all layers; across chunks through those that its depth says."""
    network, hybrid = make_network(), ft.HYBRID.with_depth(1)
    assert_equal(run_in_chunks(network, hybrid, (1,) * T)[:2], run(network, DEEP)[:2])
    assert_equal(run(network, hybrid)[:2], run(network, ft.BPTT)[:2])
    exact = run(network, ft.BPTT)[1]
    assert_equal(run_in_chunks(network, ft.HYBRID.with_depth(D), (3, 3))[1], exact)
    found = [run_in_chunks(network, rule, (3, 3))[1] for rule in (hybrid, DEEP, ft.HYBRID)]
    assert all(apart(grads, exact) > 1e-6 for grads in found)
    assert apart(found[0], found[1]) > 1e-6
    assert apart(found[0], found[2]) > 1e-6


def test_dropout_masks_are_those_of_the_other_rules():
    network, key = make_network(dropout=0.5), jax.random.key(3)
    assert_equal(run(network, ft.ONLINE.with_depth(D), key=key)[:2], run(network, ft.BPTT, key=key)[:2])
    xs, keys = jnp.asarray(XS), {"keep_carry": False, "key": key}
    outputs = [ft.forward(network, None, xs, rule=rule, **keys)[0] for rule in (DEEP, ft.BPTT)]
    assert_equal(*outputs)


def test_a_rule_that_trains_no_cell_has_credit_in_depth_elsewhere():
    network, frozen = (
        make_network(),
        ft.LearningRule("FROZEN", own=True, carried=True, trains_cells=False).with_depth(D),
    )
    grads, exact = run_in_chunks(network, frozen, (3, 3))[1], run(network, ft.BPTT)[1]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads.blocks.cell))
    parts = [(g.encoder, g.blocks.norm, g.blocks.glu, g.decoder) for g in (grads, exact)]
    assert_equal(*parts)


def test_the_carry_is_counted_and_does_not_grow():
    network, n, lru, glu, norm, encoder = make_network(), 3, 3 * 3 + 2 * 3 * 4 + 2 * 4 * 3 + 4, 8 * 5, 8, 4 * 3
    own = 2 * D * (n + n + n * 4)
    group, below = 2 * n * (lru + glu + norm), 2 * n * (encoder + norm)
    assert ft.carry_size(network, ft.BPTT) == 2 * D * n
    assert ft.carry_size(network, ft.ONLINE) == own
    assert ft.carry_size(network, "online") == own
    assert ft.carry_size(network, DEEP) == own + below + 2 * group
    assert ft.carry_size(network, ft.ONLINE.with_depth(2)) == own + 2 * below + 3 * group
    assert ft.carry_size(network, ft.ONLINE.with_depth(9)) == ft.carry_size(network, ft.ONLINE.with_depth(D))
    carry = run_in_chunks(network, DEEP, (1, 2, 3))[2]
    sizes = [leaf.size * (2 if np.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(carry)]
    assert sum(sizes) == ft.carry_size(network, DEEP)
