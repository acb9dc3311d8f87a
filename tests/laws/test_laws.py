"""Laws of the gradient on whole networks; `test_cells.py` has the laws of a cell alone.

Few programs are compiled: sequences of six steps, chunks of one and three, always with a mask and
resets.
"""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import RULES, every_case
from gradients import (
    ALL,
    LOSS,
    NONE,
    RANDOM,
    RESET,
    TOLERANCE,
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
    scaled,
    summed,
)
from hypothesis import given
from tiers import fast

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import jitted_evaluate
from foretrace.testing._definitions import gradient_by_definition

PLAIN = (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.SNAP1, ft.RTRL, ft.HYBRID, ft.BPTT)
"""Rules without credit between layers."""
OTHERS = [case.rule for case in RULES if case.rule != ft.SNAP1]
"""Masks, resets and streams act before the rule: the fast tier shows them for one."""

# Parameters that reach the state through recurrent coefficients alone.
RECURRENT = {"lru": ("nu_log", "theta_log"), "tanh": ("A",), "gru": ("W_h", "b_hn"), "lstm": ("w",)}


@pytest.fixture(scope="module")
def network(cell_name):
    return make_network(cell_name)


@pytest.mark.parametrize(
    ("cell_name", "rule"),
    fast([("rtu", ft.SNAP1), ("tanh", ft.RTRL), ("lstm", ft.SNAP1), ("gru", ft.RTRL)], 2),
    indirect=["cell_name"],
    ids=str,
)
def test_the_gradient_is_its_definition(network, rule):
    """Each step's error times the full sensitivity, in every layer. (Every pair: `check_cell`.)"""
    define = jax.jit(partial(gradient_by_definition, rule=rule, loss=LOSS))
    xs, ys, mask, reset = map(jnp.asarray, (XS[0], YS[0], WEIGHTS, RESET))
    value, grads, _ = run(network, rule)
    assert_equal((value, grads), define(network, xs, ys, mask=mask, reset=reset))


@every_case(lambda case: case.any_chunks, slow=OTHERS)
@given(data=st.data())
def test_any_partition_gives_the_same_gradient_and_carry(network, rule, data):
    lengths = data.draw(st.sampled_from(partitions((3, 1))), label="lengths")
    reset = np.array(data.draw(st.lists(st.booleans(), min_size=T, max_size=T), label="reset"))
    mask = np.array(data.draw(st.lists(st.floats(0, 2), min_size=T, max_size=T), label="mask"))
    want = run(network, rule, mask=mask, reset=reset)
    assert_equal(run_in_chunks(network, rule, lengths, mask=mask, reset=reset), want)


def test_values_and_states_do_not_depend_on_the_rule(network):
    runs = [run(network, rule) for rule in PLAIN]
    for value, _, carry in runs[1:]:
        assert_equal((value, carry.h), (runs[0][0], runs[0][2].h))


def layer(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize("depth", fast([D, 1]))
def test_the_last_layer_is_exact(cell_name, depth):
    """Online and BPTT agree in the last recurrent layer and all above it, and only there.

    Below the only layer, norm and encoder get the spatial gradient alone.
    """
    network = make_network(cell_name, depth=depth)
    rules = exact_rule(network), ft.BPTT, ft.SPATIAL
    found = online, exact, _ = [run(network, rule)[1] for rule in rules]
    assert_equal(*((layer((g.blocks.cell, g.blocks.glu), -1), g.decoder) for g in (online, exact)))
    first = apart(layer(online.blocks.cell, 0), layer(exact.blocks.cell, 0))
    assert (first > 1e-6) == (depth > 1)
    below = [(g.encoder, layer(g.blocks.norm, 0)) for g in found]
    assert apart(below[0], below[1]) > 1e-6
    if depth == 1:
        assert_equal(below[0], below[2])


def test_snap1_is_rtrl_exactly_on_independent_modules(network):
    _, snap1, _ = run(network, ft.SNAP1)
    _, rtrl, _ = run(network, ft.RTRL)
    error = apart(snap1, rtrl)
    assert error <= TOLERANCE if exact_rule(network) == ft.ONLINE else error > 1e-6


def test_hybrid_goes_from_snap1_to_bptt(network):
    """Chunks of one step are SNAP1 for every cell; a whole sequence of modules is BPTT."""
    _, snap1, _ = run(network, ft.SNAP1)
    _, bptt, _ = run(network, ft.BPTT)
    _, singly, _ = run_in_chunks(network, ft.HYBRID, [1] * T)
    _, whole, _ = run(network, ft.HYBRID)
    assert_equal(singly, snap1)
    error = apart(whole, bptt)
    assert error <= TOLERANCE if exact_rule(network) == ft.ONLINE else error > 1e-6


def test_spatial_and_reservoir_close_what_they_say(network, cell_name):
    _, spatial, _ = run(network, ft.SPATIAL)
    _, truncated, _ = run(network, ft.TRUNCATED)
    for name in RECURRENT[cell_name]:
        assert not np.any(getattr(spatial.blocks.cell, name)), name
        assert np.any(getattr(truncated.blocks.cell, name)), name
    _, reservoir, _ = run(network, ft.RESERVOIR)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(reservoir.blocks.cell))
    others = [(g.encoder, g.blocks.norm, g.blocks.glu, g.decoder) for g in (reservoir, spatial)]
    assert_equal(*others)


@pytest.mark.full
@pytest.mark.parametrize("cell_name", ["lru", "gru"], indirect=True)
def test_untrained_parameters_are_those_with_zero_gradient(network):
    """The names come from the trace; here they meet the numbers."""
    for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.ONLINE):
        zero = [
            jax.tree_util.keystr(path, simple=True, separator=".")
            for path, leaf in jax.tree.leaves_with_path(run(network, rule)[1])
            if not np.any(leaf)
        ]
        assert ft.untrained_parameters(network, rule) == zero


@every_case(slow=OTHERS)
def test_a_reset_makes_two_sequences(network, rule):
    """Value, gradient and carry, exactly as if each half had been run alone."""
    value, grads, carry = run(network, rule, mask=WEIGHTS, reset=np.arange(T) == 3)
    start = ft.init_carry(network, rule)
    first, second = (
        run(network, rule, start, part, reset=NONE) for part in (slice(0, 3), slice(3, 6))
    )
    assert_equal(
        (value, grads, carry), (first[0] + second[0], summed([first[1], second[1]]), second[2])
    )


@every_case(slow=OTHERS)
def test_masked_padding_changes_nothing(network, rule):
    """Masked steps after the end: value and gradient of the sequence without them."""
    mask = (np.arange(T) < 3).astype(float)
    xs = np.where(mask[:, None] > 0, XS[0], 1e3 * XS[1])
    value, grads, _ = run(network, rule, xs=xs, mask=mask, reset=NONE)
    short = run(network, rule, ft.init_carry(network, rule), slice(0, 3), mask=ALL, reset=NONE)
    assert_equal((value, grads), short[:2])


@every_case()
def test_a_mask_weighs_steps(network, rule):
    """The gradient is linear in the mask."""
    value, grads, _ = run(network, rule)
    each = [run(network, rule, mask=np.eye(T)[t])[:2] for t in range(T)]
    assert_equal(
        (value, grads), summed([scaled(w, step) for w, step in zip(WEIGHTS, each, strict=True)])
    )


def test_truth_values_and_no_mask_are_weights_of_one():
    network, mask = make_network(), WEIGHTS > 0
    assert_equal(run(network, ft.SNAP1, mask=mask), run(network, ft.SNAP1, mask=mask.astype(float)))
    xs, ys, reset = map(jnp.asarray, (XS[0], YS[0], RESET))
    got = ft.gradient(network, None, xs, ys, rule=ft.SNAP1, loss=LOSS, reset=reset)
    assert_equal(got, run(network, ft.SNAP1, mask=ALL))


def test_the_loss_of_a_step_that_does_not_count_may_be_anything():
    """A target may be NaN where it does not count: neither 0 * NaN nor its gradient passes."""
    network = make_network(depth=1)
    mask = np.arange(T) != 2
    runs = []
    for unknown in (0.0, np.nan, np.inf):
        ys = RANDOM.normal(size=(T, 3)) if not runs else ys.copy()
        ys[2] = unknown
        arguments = {"rule": ft.ONLINE, "loss": ft.losses.squared_error, "mask": jnp.asarray(mask)}
        runs.append(ft.gradient(network, None, *map(jnp.asarray, (XS[0], ys)), **arguments))
    assert_equal(runs[1], runs[0], tolerance=0)
    assert_equal(runs[2], runs[0], tolerance=0)


@every_case(slow=OTHERS)
def test_a_batch_is_the_mean_of_its_streams(network, rule):
    """Value and gradient are means; every stream keeps its own carry, mask and resets."""
    masks, resets = np.stack([WEIGHTS, WEIGHTS[::-1]]), np.stack([RESET, np.arange(T) == 1])
    streams = [{"xs": XS[b], "ys": YS[b], "mask": masks[b], "reset": resets[b]} for b in range(2)]
    together, alone = ft.init_carry(network, rule, batch_size=2), [ft.init_carry(network, rule)] * 2
    for part in (slice(0, 3), slice(3, 6)):
        xs, ys, mask, reset = (jnp.asarray(a[:, part]) for a in (XS, YS, masks, resets))
        *got, together = ft.gradient(
            network, together, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset
        )
        *found, alone = zip(
            *(run(network, rule, c, part, **s) for c, s in zip(alone, streams, strict=True)),
            strict=True,
        )
        assert_equal(got, [scaled(0.5, summed(pair)) for pair in found])
        assert_equal(together, jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *alone))


@pytest.mark.full
@pytest.mark.parametrize("rule", [ft.SNAP1, ft.ONLINE.with_depth(1)], ids=str)
def test_a_batch_of_one_is_its_stream(rule):
    """It runs without the axis of streams, and gives it back."""
    network, part = make_network(), slice(3, 6)
    *want, alone = run(network, rule, ft.init_carry(network, rule), part)
    carry = ft.init_carry(network, rule, batch_size=1)
    xs, ys, mask, reset = (jnp.asarray(a[part])[None] for a in (XS[0], YS[0], WEIGHTS, RESET))
    *found, after = ft.gradient(
        network, carry, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset
    )
    assert_equal(found, want)
    assert_equal(after, jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 1), alone))


def test_finite_differences_of_the_loss_are_bptt(network):
    """Autodiff of the network against numbers alone, in a random direction of every parameter."""
    _, grads, _ = run(network, ft.BPTT)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, network))
    weights = {-3: -1, -2: 9, -1: -45, 1: 45, 2: -9, 3: 1}
    step = 1e-3
    for i, (path, gradient) in enumerate(jax.tree.leaves_with_path(grads)):
        direction = np.random.default_rng(i).normal(size=gradient.shape)
        slope = 0.0
        for k, weight in weights.items():
            moved = [
                leaf + (k * step * direction if i == j else 0) for j, leaf in enumerate(leaves)
            ]
            moved = structure.unflatten([jnp.asarray(leaf) for leaf in moved])
            slope += weight * float(run(moved, ft.BPTT)[0]) / (60 * step)
        want = float(np.sum(gradient * direction))
        assert abs(slope - want) <= 1e-8 * max(1.0, abs(want)), (
            f"{jax.tree_util.keystr(path)}: {slope} and {want}"
        )


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "rule"),
    [(ft.LRU.factory(state_size=2), ft.ONLINE), (ft.GRU.factory(), ft.RTRL)],
    ids=["lru", "gru"],
)
def test_jit_changes_nothing(cell, rule):
    network = ft.Network(
        1, 2, model_size=2, depth=1, cell=cell, glu=False, norm="none", key=jax.random.key(0)
    )
    xs, ys = jnp.asarray(XS[0, :2, :1]), jnp.asarray([0, 1])
    reset = jnp.asarray([False, True])
    arguments = {"rule": rule, "loss": LOSS, "mask": jnp.ones(2), "reset": reset}
    carry = ft.init_carry(network, rule)
    want = ft.gradient(network, carry, xs, ys, **arguments)
    with jax.disable_jit():
        got = ft.gradient(network, carry, xs, ys, **arguments)
    assert_equal(got, want)


@pytest.mark.full
@every_case(lambda case: case.segments, slow=(ft.SNAP1, ft.RTRL, ft.HYBRID))
def test_a_sequence_in_segments_has_the_gradient_of_the_whole(network, rule):
    """Two equal segments; under BPTT four steps, and the two that are left."""
    found = partial(jitted_evaluate, network, None, rule=rule, loss=LOSS)
    batch = Data(XS, YS, np.stack([WEIGHTS] * 2), np.stack([RESET, NONE]))
    streams = [jax.tree.map(lambda leaf, b=b: leaf[b], batch) for b in (0, 1)]
    # One by one: the program of a stream is that of the other laws.
    alone = [found(data) for data in streams]
    parts = found(batch, return_carry=False, segment=4 if rule is ft.BPTT else 3)
    assert parts.carry is None
    assert_equal(parts.outputs, np.stack([one.outputs for one in alone]))
    assert_equal(parts[:2], scaled(0.5, summed([one[:2] for one in alone])))
    # The derivative does pass the border: cut there, the gradient is another one.
    if rule is ft.BPTT:
        cut = found(streams[1]._replace(reset=RESET))
        assert apart(cut.grads.encoder.weight, alone[1].grads.encoder.weight) > 1e-6
