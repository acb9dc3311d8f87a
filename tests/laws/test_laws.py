"""Laws of the gradient on whole networks, for every cell and rule; `test_cells.py` has those of a cell alone.

Few programs are compiled: sequences of six steps, chunks of one, two and three, always with a mask and resets.
"""

from functools import cache, partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import jitted_evaluate
from foretrace.testing._check import gradient_by_definition

T = 6
TOLERANCE = 1e-10
LOSS = ft.losses.softmax_cross_entropy
RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(size=(2, T, 2))
YS = RANDOM.integers(0, 3, size=(2, T))
ALL, NONE = np.ones(T), np.zeros(T, bool)
RESET = np.arange(T) == 4
WEIGHTS = np.array([0.5, 0.0, 1.0, 2.0, 0.0, 1.5])
RULES = (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.SNAP1, ft.RTRL, ft.HYBRID, ft.BPTT)
ANY_CHUNK = RULES[:5]
CELLS = ("lru", "tanh", "gru", "lstm")
"""Without the linear dense layer: to these laws it is the one with a tanh."""

# Parameters that reach the state through recurrent coefficients alone.
RECURRENT = {"lru": ("nu_log", "theta_log"), "linear": ("A",), "tanh": ("A",), "gru": ("W_h", "b_hn"), "lstm": ("w",)}


@pytest.fixture(scope="module", params=CELLS)
def cell_name(request):
    yield request.param
    jax.clear_caches()


@pytest.fixture(scope="module")
def network(make_cell):
    """Return three blocks; the laws of the last layer and of chunks need layers below it."""
    return make_network(make_cell, 3)


@pytest.fixture(scope="module")
def single(make_cell):
    return make_network(make_cell, 1)


def every_cell_and(rules):
    """Parametrise by cell and rule; what another pair or `check_cell` shows as well is left to `-m slow`."""
    quick = {"lru": RULES, "gru": RULES, "tanh": (ft.SNAP1, ft.RTRL), "lstm": (ft.SNAP1,)}
    pairs = [(cell, rule, () if rule in quick[cell] else pytest.mark.slow) for cell in CELLS for rule in rules]
    values = [pytest.param(cell, rule, id=f"{cell}-{rule}", marks=marks) for cell, rule, marks in pairs]
    return pytest.mark.parametrize(("cell_name", "rule"), values, indirect=["cell_name"])


@cache
def make_network(cell, depth):
    return ft.Network(2, 3, model_size=4, depth=depth, cell=cell, key=jax.random.key(0))


def is_independent(network):
    return network.block(0).cell.independent


def run(network, rule, carry=None, part=slice(None), *, xs=XS[0], ys=YS[0], mask=ALL, reset=NONE):
    """Return (value, grads, carry) of a part of the sequence, as NumPy arrays."""
    xs, ys, mask, reset = (jnp.asarray(a[part]) for a in (xs, ys, mask, reset))
    out = ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset)
    return jax.tree.map(np.asarray, out)


def run_in_chunks(network, rule, lengths, **arguments):
    carry, value, grads = ft.init_carry(network, rule), 0.0, None
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends, strict=True):
        v, g, carry = run(network, rule, carry, slice(int(start), int(end)), **arguments)
        value, grads = value + v, g if grads is None else jax.tree.map(np.add, grads, g)
    return value, grads, carry


def apart(got, want):
    """Return the largest difference of two trees, relative to numbers above one, and where it is."""
    errors = []
    for (path, g), w in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        error = np.max(np.abs(np.asarray(g) - np.asarray(w))) / max(1.0, np.max(np.abs(w)))
        errors.append((np.inf if np.isnan(error) else error, jax.tree_util.keystr(path)))
    return max(errors)


def assert_equal(got, want, tolerance=TOLERANCE):
    error, where = apart(got, want)
    assert error <= tolerance, f"{where} is off by {error:.2e}"


def scaled(factor, tree):
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def summed(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


@pytest.mark.parametrize(
    ("cell_name", "rule"),
    [("lru", ft.SNAP1), ("gru", ft.RTRL), ("gru", ft.TRUNCATED), pytest.param("lstm", ft.RTRL, marks=pytest.mark.slow)],
    indirect=["cell_name"],
    ids=str,
)
def test_the_gradient_is_its_definition(network, rule):
    """Each step's error times the sensitivity by full Jacobians, in every layer. (Every pair: in `check_cell`.)"""
    define = jax.jit(partial(gradient_by_definition, rule=rule, loss=LOSS))
    xs, ys, mask, reset = map(jnp.asarray, (XS[0], YS[0], WEIGHTS, RESET))
    value, grads, _ = run(network, rule, mask=WEIGHTS, reset=RESET)
    assert_equal((value, grads), define(network, xs, ys, mask=mask, reset=reset))


def partitions(parts, total=T):
    """Return every way of cutting a sequence into chunks of the given lengths."""
    return [[]] if total == 0 else [[n, *rest] for n in parts if n <= total for rest in partitions(parts, total - n)]


@every_cell_and(ANY_CHUNK)
@given(data=st.data())
def test_any_partition_gives_the_same_gradient_and_carry(network, rule, data):
    lengths = data.draw(st.sampled_from(partitions((3, 2, 1) if rule.carried else (3, 1))), label="lengths")
    reset = np.array(data.draw(st.lists(st.booleans(), min_size=T, max_size=T), label="reset"))
    mask = np.array(data.draw(st.lists(st.floats(0, 2), min_size=T, max_size=T), label="mask"))
    want = run(network, rule, mask=mask, reset=reset)
    assert_equal(run_in_chunks(network, rule, lengths, mask=mask, reset=reset), want)


def test_values_and_states_do_not_depend_on_the_rule(network):
    runs = [run(network, rule, mask=WEIGHTS, reset=RESET) for rule in RULES]
    for value, _, carry in runs[1:]:
        assert_equal((value, carry.h), (runs[0][0], runs[0][2].h))


def test_the_last_layer_is_exact(network):
    """Online and BPTT agree in the last recurrent layer and all above it, and only there."""
    rule = ft.ONLINE if is_independent(network) else ft.RTRL
    _, online, _ = run(network, rule, reset=RESET)
    _, exact, _ = run(network, ft.BPTT, reset=RESET)

    def above(grads):
        return jax.tree.map(lambda leaf: leaf[-1], (grads.blocks.cell, grads.blocks.glu)), grads.decoder

    assert_equal(above(online), above(exact))
    first_layer = [jax.tree.map(lambda leaf: leaf[0], grads.blocks.cell) for grads in (online, exact)]
    assert apart(*first_layer)[0] > 1e-6


def test_one_layer_online_is_bptt_above_the_recurrence(single):
    """Below it, norm and encoder get the spatial gradient alone."""
    rule = ft.ONLINE if is_independent(single) else ft.RTRL
    _, online, _ = run(single, rule, reset=RESET)
    _, exact, _ = run(single, ft.BPTT, reset=RESET)
    _, spatial, _ = run(single, ft.SPATIAL, reset=RESET)
    parts = [(g.blocks.cell, g.blocks.glu, g.decoder) for g in (online, exact)]
    assert_equal(*parts)
    below = [(g.encoder, g.blocks.norm) for g in (online, exact, spatial)]
    assert_equal(below[0], below[2])
    assert apart(below[0], below[1])[0] > 1e-6


def test_snap1_is_rtrl_exactly_on_independent_modules(network):
    _, snap1, _ = run(network, ft.SNAP1, reset=RESET)
    _, rtrl, _ = run(network, ft.RTRL, reset=RESET)
    error, _ = apart(snap1, rtrl)
    assert error <= TOLERANCE if is_independent(network) else error > 1e-6


def test_hybrid_goes_from_snap1_to_bptt(network):
    """Chunks of one step are SNAP1 for every cell; a whole sequence is BPTT if modules are independent."""
    _, snap1, _ = run(network, ft.SNAP1, mask=WEIGHTS, reset=RESET)
    _, bptt, _ = run(network, ft.BPTT, mask=WEIGHTS, reset=RESET)
    _, singly, _ = run_in_chunks(network, ft.HYBRID, [1] * T, mask=WEIGHTS, reset=RESET)
    _, whole, _ = run(network, ft.HYBRID, mask=WEIGHTS, reset=RESET)
    assert_equal(singly, snap1)
    error, _ = apart(whole, bptt)
    assert error <= TOLERANCE if is_independent(network) else error > 1e-6


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


@every_cell_and(RULES)
def test_a_reset_makes_two_sequences(network, rule):
    """Value, gradient and carry, exactly as if each half had been run alone."""
    value, grads, carry = run(network, rule, mask=WEIGHTS, reset=np.arange(T) == 3)
    start = ft.init_carry(network, rule)
    first, second = (run(network, rule, start, part, mask=WEIGHTS) for part in (slice(0, 3), slice(3, 6)))
    assert_equal((value, grads, carry), (first[0] + second[0], summed([first[1], second[1]]), second[2]))


@every_cell_and(RULES)
def test_masked_padding_changes_nothing(network, rule):
    """Steps after the end that do not count: value and gradient are those of the sequence without them."""
    mask = (np.arange(T) < 3).astype(float)
    xs = np.where(mask[:, None] > 0, XS[0], 1e3 * XS[1])
    value, grads, _ = run(network, rule, xs=xs, mask=mask)
    assert_equal((value, grads), run(network, rule, ft.init_carry(network, rule), slice(0, 3))[:2])


@every_cell_and(RULES)
def test_a_mask_weighs_steps(network, rule):
    """The gradient is linear in the mask."""
    value, grads, _ = run(network, rule, mask=WEIGHTS, reset=RESET)
    each = [run(network, rule, mask=np.eye(T)[t], reset=RESET)[:2] for t in range(T)]
    assert_equal((value, grads), summed([scaled(w, step) for w, step in zip(WEIGHTS, each, strict=True)]))


def test_a_boolean_mask_counts():
    network, mask = make_network(ft.LRU.factory(state_size=3), 1), WEIGHTS > 0
    assert_equal(run(network, ft.SNAP1, mask=mask), run(network, ft.SNAP1, mask=mask.astype(float)))


def test_the_loss_of_a_step_that_does_not_count_may_be_anything():
    """A target that is not there yet may be NaN; it must not come through the mask as 0 * NaN, nor in the gradient."""
    network = make_network(ft.LRU.factory(state_size=3), 1)
    mask = np.arange(T) != 2
    runs = []
    for unknown in (0.0, np.nan, np.inf):
        ys = RANDOM.normal(size=(T, 3)) if not runs else ys.copy()
        ys[2] = unknown
        runs.append(
            ft.gradient(
                network,
                None,
                *map(jnp.asarray, (XS[0], ys)),
                rule=ft.ONLINE,
                loss=ft.losses.squared_error,
                mask=jnp.asarray(mask),
            )
        )
    assert_equal(runs[1], runs[0], tolerance=0)
    assert_equal(runs[2], runs[0], tolerance=0)


def test_a_batch_is_the_mean_of_its_streams(network):
    """Value and gradient are means; every stream keeps its own carry, mask and resets."""
    masks, resets = np.stack([WEIGHTS, WEIGHTS[::-1]]), np.stack([RESET, NONE])
    for rule in (ft.SNAP1, ft.BPTT if is_independent(network) else ft.RTRL):
        arguments = [{"xs": XS[b], "ys": YS[b], "mask": masks[b], "reset": resets[b]} for b in range(2)]
        first = [run(network, rule, ft.init_carry(network, rule), slice(0, 3), **arguments[b]) for b in range(2)]
        then = [run(network, rule, first[b][2], slice(3, 6), **arguments[b]) for b in range(2)]
        carry = ft.init_carry(network, rule, batch_size=2)
        for part, want in ((slice(0, 3), first), (slice(3, 6), then)):
            whole = {"xs": XS, "ys": YS, "mask": masks, "reset": resets}
            xs, ys, mask, reset = (jnp.asarray(a[:, part]) for a in whole.values())
            value, grads, carry = ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset)
            assert_equal((value, grads), scaled(0.5, summed([w[:2] for w in want])))
            assert_equal(carry, jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *[w[2] for w in want]))


def test_a_batch_of_one_is_its_stream(network):
    """It runs without the axis of streams, and gives it back."""
    for part, carry in ((slice(2, 6), True), (slice(0, 1), True), (slice(2, 6), False)):
        start = ft.init_carry(network, ft.SNAP1) if carry else None
        want = run(network, ft.SNAP1, start, part, mask=WEIGHTS, reset=RESET)
        start = ft.init_carry(network, ft.SNAP1, batch_size=1) if carry else None
        xs, ys, mask, reset = (jnp.asarray(a[part])[None] for a in (XS[0], YS[0], WEIGHTS, RESET))
        value, grads, after = ft.gradient(network, start, xs, ys, rule=ft.SNAP1, loss=LOSS, mask=mask, reset=reset)
        assert_equal((value, grads, after), (*want[:2], jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 1), want[2])))


def test_finite_differences_of_the_loss_are_bptt(network):
    """Autodiff of the network against numbers alone, in a random direction of every parameter."""
    _, grads, _ = run(network, ft.BPTT, mask=WEIGHTS, reset=RESET)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, network))
    weights = {-3: -1, -2: 9, -1: -45, 1: 45, 2: -9, 3: 1}
    step = 1e-3
    for i, (path, gradient) in enumerate(jax.tree.leaves_with_path(grads)):
        direction = np.random.default_rng(i).normal(size=gradient.shape)
        slope = 0.0
        for k, weight in weights.items():
            moved = [leaf + (k * step * direction if i == j else 0) for j, leaf in enumerate(leaves)]
            moved = structure.unflatten([jnp.asarray(leaf) for leaf in moved])
            slope += weight * float(run(moved, ft.BPTT, mask=WEIGHTS, reset=RESET)[0]) / (60 * step)
        want = float(np.sum(gradient * direction))
        assert abs(slope - want) <= 1e-8 * max(1.0, abs(want)), f"{jax.tree_util.keystr(path)}: {slope} and {want}"


@pytest.mark.parametrize(
    ("cell", "rule"), [(ft.LRU.factory(state_size=2), ft.ONLINE), (ft.GRU.factory(), ft.RTRL)], ids=["lru", "gru"]
)
def test_jit_changes_nothing(cell, rule):
    network = ft.Network(1, 2, model_size=2, depth=1, cell=cell, glu=False, norm="none", key=jax.random.key(0))
    xs, ys = jnp.asarray(XS[0, :2, :1]), jnp.asarray([0, 1])
    arguments = {"rule": rule, "loss": LOSS, "mask": jnp.ones(2), "reset": jnp.asarray([False, True])}
    carry = ft.init_carry(network, rule)
    want = ft.gradient(network, carry, xs, ys, **arguments)
    with jax.disable_jit():
        got = ft.gradient(network, carry, xs, ys, **arguments)
    assert_equal(got, want)


@every_cell_and((ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.SNAP1, ft.RTRL, ft.HYBRID, ft.BPTT))
def test_a_sequence_in_segments_has_the_gradient_of_the_whole(network, rule):
    """Segments of four and the two steps that are left; mask and reset in both."""
    xs, ys, mask, reset = jnp.asarray(XS), jnp.asarray(YS), np.stack([WEIGHTS] * 2), np.stack([RESET, NONE])
    found = partial(jitted_evaluate, network, None, rule=rule, loss=LOSS, return_carry=False)
    data = Data(xs, ys, mask, reset)
    whole, parts = found(data), found(data, segment=4)
    assert parts.carry is None
    jax.tree.map(partial(np.testing.assert_allclose, rtol=TOLERANCE, atol=TOLERANCE), parts, whole)
    if rule is ft.BPTT:  # the derivative does pass the border: cut there, the gradient is another one
        reset[:, 4] = True
        cut = found(Data(xs, ys, mask, reset))
        assert not np.allclose(cut.grads.encoder.weight, whole.grads.encoder.weight, atol=1e-6)
