"""Costs of streaming: a carry of fixed size, constant memory, one compilation per shape."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from gradients import LOSS, make_network

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import jitted_evaluate

INPUTS, CLASSES, SIZE, DEPTH = 2, 3, 4, 2


def make_lru(state_size, model_size):
    cell = ft.LRU.factory(state_size=state_size)
    return ft.Network(
        INPUTS, CLASSES, model_size=model_size, depth=2, cell=cell, key=jax.random.key(0)
    )


def numbers(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def temporary_bytes(network, rule, steps, *, carried=True, segment=None):
    """Return the temporary memory of the compiled gradient of a chunk."""
    carry = ft.init_carry(network, rule) if carried else None
    data = Data(jnp.zeros((steps, INPUTS)), jnp.zeros(steps, int))
    lowered = jitted_evaluate.lower(
        network, carry, data, rule=rule, loss=LOSS, return_carry=carried, segment=segment
    )
    return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("cell_name", CELLS, indirect=True)
def test_the_carry_of_a_layer_is_n_plus_theta_numbers(make_cell, cell_name):
    """For each state dimension of a module: its state, and a sensitivity per coefficient."""

    network = eqx.filter_eval_shape(lambda: make_network.__wrapped__(cell_name, DEPTH))

    def carried(rule, **options):
        return numbers(
            jax.eval_shape(lambda network: ft.init_carry(network, rule, **options), network)
        )

    cell = eqx.filter_eval_shape(make_cell, SIZE, key=jax.random.key(0))
    # Of cells side by side, each has sensitivities to its own coefficients alone.
    parts = [
        jax.eval_shape(lambda part: (part.init_state(), part.coefficients()), part)
        for part in getattr(cell, "cells", [cell])
    ]
    n, dimensions = cell.state_size, sum(len(jax.tree.leaves(h)) for h, _ in parts)
    full = 1 if cell.independent else n
    pairs = sum(len(jax.tree.leaves(h)) * numbers(theta) for h, theta in parts)
    assert carried(ft.ONLINE) == DEPTH * (dimensions * n + pairs)
    assert carried(ft.RTRL) == DEPTH * (dimensions * n + full * pairs)
    for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.BPTT):
        assert carried(rule) == DEPTH * dimensions * n
    assert carried(ft.ONLINE, batch_size=3) == 3 * carried(ft.ONLINE)


def test_a_stream_neither_compiles_again_nor_grows():
    """After the first steps: the same program, a carry of the same shapes, no leaked array."""
    network = make_network("lru", DEPTH)
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
    # ONLINE and SNAP1 are one rule, and another network is a value.
    other = jax.tree.map(lambda leaf: 2 * leaf, network)
    ft.gradient(other, carry, jnp.asarray(xs[0]), jnp.asarray(ys[0]), rule=ft.SNAP1, loss=LOSS)
    assert jitted_evaluate._cache_size() == programs
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), carry) == shapes


@pytest.mark.full
def test_memory_does_not_grow_with_time():
    """A streaming step needs a few times its carry and the parameters: no term depends on time.

    In a longer chunk one copy of the sensitivities per step would be T carries; it may cost what
    BPTT stores of it.
    """
    network = make_lru(state_size=32, model_size=32)
    carry = ft.init_carry(network, ft.ONLINE)
    held = 16 * numbers(carry) + 8 * ft.parameter_count(network)
    step, *online = (temporary_bytes(network, ft.ONLINE, n) for n in (1, 32, 256))
    bptt = [temporary_bytes(network, ft.BPTT, n) for n in (32, 256)]
    assert 0 < step < 2 * held
    assert step < temporary_bytes(network, ft.BPTT, 256, carried=False)
    assert bptt[1] > bptt[0], "if BPTT did not grow with the chunk, this would show nothing"
    growth = online[1] - online[0]
    assert growth < 0.5 * (256 - 32) * 16 * numbers(carry.e) / network.depth
    assert growth < 1.25 * (bptt[1] - bptt[0])


@pytest.mark.full
def test_segments_keep_the_memory_of_a_whole_sequence_small():
    """Sixteen times the steps: each keeps its input, its output and a share of a state."""
    network = make_lru(16, 32)
    needed = partial(temporary_bytes, network, ft.BPTT, carried=False)
    assert needed(4096) > 12 * needed(256)
    assert needed(4096, segment=64) < 2 * needed(256, segment=64)
    assert needed(4096, segment=64) < needed(4096) / 10
