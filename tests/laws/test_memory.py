"""Costs of streaming: a carry of fixed size, constant memory, one compilation per shape."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from tiers import fast

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import jitted_evaluate

LOSS = ft.losses.softmax_cross_entropy
INPUTS, CLASSES, SIZE, DEPTH = 2, 3, 4, 2


def make_network(cell, key):
    return ft.Network(INPUTS, CLASSES, model_size=SIZE, depth=DEPTH, cell=cell, key=key)


@pytest.fixture(scope="module")
def network(make_cell):
    return make_network(make_cell, jax.random.key(0))


def make_lru(state_size, model_size):
    cell = ft.LRU.factory(state_size=state_size)
    return ft.Network(
        INPUTS, CLASSES, model_size=model_size, depth=2, cell=cell, key=jax.random.key(0)
    )


def numbers(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def temporary_bytes(network, rule, steps, *, carried=True):
    """Return the temporary memory of the compiled gradient of a chunk."""
    carry = ft.init_carry(network, rule) if carried else None
    xs, ys = jnp.zeros((steps, INPUTS)), jnp.zeros(steps, int)
    lowered = jitted_evaluate.lower(
        network, carry, Data(xs, ys), rule=rule, loss=LOSS, return_carry=carried
    )
    return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("cell_name", CELLS, indirect=True)
def test_the_carry_of_a_layer_is_n_plus_theta_numbers(make_cell):
    """For each state dimension of a module: its state, and a sensitivity per coefficient."""

    network = eqx.filter_eval_shape(make_network, make_cell, jax.random.key(0))

    def carried(rule, **options):
        return numbers(
            jax.eval_shape(lambda network: ft.init_carry(network, rule, **options), network)
        )

    cell = eqx.filter_eval_shape(make_cell, SIZE, key=jax.random.key(0))
    h, theta = jax.eval_shape(lambda cell: (cell.init_state(), cell.coefficients()), cell)
    n, dimensions = cell.state_size, len(jax.tree.leaves(h))
    full = 1 if cell.independent else n
    assert carried(ft.ONLINE) == DEPTH * dimensions * (n + numbers(theta))
    assert carried(ft.RTRL) == DEPTH * dimensions * (n + full * numbers(theta))
    for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.BPTT):
        assert carried(rule) == DEPTH * dimensions * n
    assert carried(ft.ONLINE, batch_size=3) == 3 * carried(ft.ONLINE)


@pytest.mark.parametrize("cell_name", fast(["lru", "gru"]), indirect=True)
def test_a_stream_neither_compiles_again_nor_grows(network):
    """After the first steps: the same program, a carry of the same shapes, no leaked array."""
    xs, ys = np.random.default_rng(0).normal(size=(40, 1, INPUTS)), np.zeros((40, 1), int)
    carry = ft.init_carry(network, ft.ONLINE)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), carry)
    programs = alive = None
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        out = ft.gradient(network, carry, jnp.asarray(x), jnp.asarray(y), rule=ft.ONLINE, loss=LOSS)
        carry = jax.block_until_ready(out)[2]
        if t == 4:
            programs, alive = jitted_evaluate._cache_size(), len(jax.live_arrays())
    assert jitted_evaluate._cache_size() == programs
    assert len(jax.live_arrays()) == alive
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), carry) == shapes


@pytest.mark.full
def test_one_compilation_for_each_shape():
    """Rules and loss are part of the program; values, resets and cuts of a sequence are not."""
    network = make_lru(state_size=2, model_size=3)
    before = jitted_evaluate._cache_size()

    def run(carry, steps, value, start):
        xs, ys = jnp.asarray(np.full((steps, INPUTS), value)), jnp.zeros(steps, int)
        reset = jnp.asarray([start] + [False] * (steps - 1))
        return ft.gradient(network, carry, xs, ys, rule="online", loss=LOSS, reset=reset)[2]

    carry = ft.init_carry(network, ft.ONLINE)
    for _ in range(2):
        for value, start in ((0.0, True), (1.0, False)):
            carry = run(carry, 2, value, start)
    assert jitted_evaluate._cache_size() == before + 1
    run(carry, 3, 0.0, True)
    assert jitted_evaluate._cache_size() == before + 2
    other = make_lru(state_size=2, model_size=3)
    ft.gradient(
        other,
        carry,
        jnp.ones((2, INPUTS)),
        jnp.zeros(2, int),
        rule=ft.SNAP1,
        loss=LOSS,
        reset=jnp.ones(2, bool),
    )
    assert jitted_evaluate._cache_size() == before + 2, (
        "ONLINE and SNAP1 are one rule, and another network is a value"
    )


@pytest.mark.full
def test_sensitivities_are_not_stored_over_time():
    """One copy per step would be T carries; a longer chunk may cost what BPTT stores of it."""
    network, steps = make_lru(state_size=32, model_size=32), (32, 256)
    per_step = numbers(ft.init_carry(network, ft.ONLINE).e) * 16 / network.depth
    online = np.diff([temporary_bytes(network, ft.ONLINE, n) for n in steps])[0] / np.diff(steps)[0]
    bptt = np.diff([temporary_bytes(network, ft.BPTT, n) for n in steps])[0] / np.diff(steps)[0]
    assert bptt > 0, "if BPTT did not grow with the chunk, this would show nothing"
    assert online < 0.5 * per_step
    assert online < 1.25 * bptt


@pytest.mark.full
def test_a_streaming_step_needs_a_few_times_its_carry():
    """No term depends on time: temporary memory is bounded by carry and parameters."""
    network = make_lru(state_size=32, model_size=32)
    held = 16 * numbers(ft.init_carry(network, ft.ONLINE)) + 8 * ft.parameter_count(network)
    assert 0 < temporary_bytes(network, ft.ONLINE, 1) < 2 * held
    assert temporary_bytes(network, ft.ONLINE, 1) < temporary_bytes(
        network, ft.BPTT, 256, carried=False
    )


@pytest.mark.full
def test_segments_keep_the_memory_of_a_whole_sequence_small():
    """Sixteen times the steps: each keeps its input, its output and a share of a state."""
    network = make_lru(16, 32)

    def needed(steps, segment):
        xs, ys = jnp.zeros((steps, INPUTS)), jnp.zeros(steps, int)
        lowered = jitted_evaluate.lower(
            network,
            None,
            Data(xs, ys),
            rule=ft.BPTT,
            loss=LOSS,
            return_carry=False,
            segment=segment,
        )
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert needed(4096, None) > 12 * needed(256, None)
    assert needed(4096, 64) < 2 * needed(256, 64)
    assert needed(4096, 64) < needed(4096, None) / 10
