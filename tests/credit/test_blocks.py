"""Sensitivities advanced in place, block by block: equal numbers, no second copy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import LOSS, RESET, WEIGHTS, XS, YS, assert_equal, make_network
from tiers import fast

import foretrace as ft
from foretrace._credit import blocks
from foretrace._engine.gradient import jitted_evaluate

SGD = optax.sgd(1e-3)


@pytest.fixture
def small_blocks(monkeypatch):
    """Advance sensitivities of any size one module after another."""
    monkeypatch.setattr(blocks, "AT_ONCE", 0)


def learned(network, rule, optimizer, streams):
    """Return gradients and carries of three chunks, in programs that are made anew."""
    jitted_evaluate.clear_cache()
    options = {"rule": rule, "loss": LOSS}
    learner = ft.Learner(network, optimizer=optimizer, batch_size=streams, **options)
    state, found = learner.init(), []
    masks, resets = np.broadcast_to(WEIGHTS, YS.shape), np.broadcast_to(RESET, YS.shape)
    for start in (0, 2, 4):
        parts = [jnp.asarray(a[:, start : start + 2]) for a in (XS, YS, masks, resets)]
        xs, ys, mask, reset = parts if streams else [part[0] for part in parts]
        arguments = {"mask": mask, "reset": reset}
        found.append(ft.gradient(state.network, state.carry, xs, ys, **options, **arguments))
        state, _ = learner.step(state, xs, ys, **arguments)
    return found, state.carry


CASES = [
    ("lru", 1, SGD, None),
    ("lru", 1, SGD, 2),
    ("lru", 2, SGD, None),
    ("lstm", 1, SGD, None),
    # Rows advance their own sensitivities: parameters change within a call.
    ("lru", 1, ft.kalman(warmup=0), None),
]


@pytest.mark.full
@pytest.mark.parametrize(("cell", "depth", "optimizer", "streams"), fast(CASES), ids=str)
def test_blocks_change_nothing(cell, depth, optimizer, streams, monkeypatch):
    network, rule = make_network(cell, depth=2), ft.ONLINE.with_depth(depth)
    assert not blocks.in_place(network, rule, 2)
    whole = learned(network, rule, optimizer, streams)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert blocks.in_place(network, rule, 2)
    assert_equal(learned(network, rule, optimizer, streams), whole)
    jitted_evaluate.clear_cache()


@pytest.mark.full
def test_dense_cells_keep_one_piece(small_blocks):
    # What came before passes through a product of all modules, so none can be overwritten first.
    assert not blocks.in_place(make_network("gru"), ft.RTRL.with_depth(1), 2)


@pytest.mark.full
def test_no_memory_for_a_second_copy(small_blocks):
    """In place, a chunk needs a fraction of the carry, in `gradient` and in a learner."""
    cell = ft.LRU.factory(state_size=32)
    network = ft.Network(2, 3, model_size=48, depth=2, cell=cell, key=jax.random.key(0))
    options, xs, ys = {"rule": "online(depth=1)", "loss": LOSS}, jnp.ones((4, 2)), jnp.zeros(4, int)
    learner = ft.Learner(network, optimizer=SGD, **options)
    state = learner.init()
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(state.carry))
    for function, before in (
        (lambda carry: ft.gradient(network, carry, xs, ys, **options)[1:], state.carry),
        (lambda state: learner.step(state, xs, ys), state),
    ):
        memory = jax.jit(function, donate_argnums=0).lower(before).compile().memory_analysis()
        assert memory.alias_size_in_bytes >= carried
        assert memory.temp_size_in_bytes < carried / 3
