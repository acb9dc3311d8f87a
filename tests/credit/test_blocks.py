"""Sensitivities advanced in place, block by block: equal numbers, no second copy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import RESET, WEIGHTS, XS, YS, assert_equal, make_network
from tiers import fast

import foretrace as ft
from foretrace._credit import blocks

CASES = [("lru", 1, False), ("lru", 1, True), ("lru", 2, False), ("lstm", 1, False)]


@pytest.fixture
def small_blocks(monkeypatch):
    """Advance sensitivities of any size one module after another."""
    monkeypatch.setattr(blocks, "AT_ONCE", 0)


def in_chunks(network, rule, batched):
    """Return what three chunks of a sequence give, in programs that are made anew."""

    def loss(output, y):
        return ft.losses.softmax_cross_entropy(output, y)

    carry, found, streams = (
        ft.init_carry(network, rule, 2 if batched else None),
        [],
        slice(None) if batched else 0,
    )
    arrays = [
        a[streams]
        for a in (XS, YS, np.broadcast_to(WEIGHTS, YS.shape), np.broadcast_to(RESET, YS.shape))
    ]
    for start in (0, 2, 4):
        part = (slice(None), slice(start, start + 2)) if batched else slice(start, start + 2)
        xs, ys, mask, reset = (jnp.asarray(a[part]) for a in arrays)
        *values, carry = ft.gradient(
            network, carry, xs, ys, rule=rule, loss=loss, mask=mask, reset=reset
        )
        found.append(values)
    return jax.tree.map(np.asarray, (found, carry))


@pytest.mark.full
@pytest.mark.parametrize(("cell", "depth", "batched"), fast(CASES), ids=str)
def test_blocks_change_nothing(cell, depth, batched, monkeypatch):
    network, rule = make_network(cell, depth=2), ft.ONLINE.with_depth(depth)
    assert not blocks.in_place(network, rule, 2)
    whole = in_chunks(network, rule, batched)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert blocks.in_place(network, rule, 2)
    assert_equal(in_chunks(network, rule, batched), whole)


@pytest.mark.full
def test_blocks_change_nothing_for_rows_either(monkeypatch):
    """Rows advance their own sensitivities: parameters change within a call."""
    network, rule = make_network("lru", depth=2), ft.ONLINE.with_depth(1)

    def learned():
        learner = ft.Learner(
            network, rule=rule, optimizer=ft.kalman(warmup=0), loss=ft.losses.softmax_cross_entropy
        )
        return learner.step(learner.init(), jnp.asarray(XS[0]), jnp.asarray(YS[0]))[0].carry

    whole = learned()
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert_equal(learned(), whole)


@pytest.mark.full
def test_dense_cells_keep_one_piece(small_blocks):
    # What came before passes through a product of all modules, so none can be overwritten first.
    assert not blocks.in_place(make_network("gru"), ft.RTRL.with_depth(1), 2)


@pytest.mark.full
def test_no_memory_for_a_second_copy(small_blocks):
    """In place, a chunk needs a fraction of the carry, in `gradient` and in a learner."""
    cell = ft.LRU.factory(state_size=32)
    network = ft.Network(2, 3, model_size=48, depth=2, cell=cell, key=jax.random.key(0))
    rule, xs, ys = ft.ONLINE.with_depth(1), jnp.ones((4, 2)), jnp.zeros(4, int)
    learner = ft.Learner(
        network, rule=rule, optimizer=optax.sgd(1e-3), loss=ft.losses.softmax_cross_entropy
    )

    def learn(carry):
        return ft.gradient(network, carry, xs, ys, rule=rule, loss=ft.losses.softmax_cross_entropy)[
            1:
        ]

    carry = ft.init_carry(network, rule)
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(carry))
    for function, state in (
        (learn, carry),
        (lambda state: learner.step(state, xs, ys), learner.init()),
    ):
        memory = jax.jit(function, donate_argnums=0).lower(state).compile().memory_analysis()
        assert memory.alias_size_in_bytes >= carried
        assert memory.temp_size_in_bytes < carried / 3


@pytest.mark.full
def test_a_refused_call_advances_nothing(small_blocks):
    network = make_network()
    learner = ft.Learner(
        network,
        rule=ft.ONLINE.with_depth(1),
        optimizer=optax.sgd(1e-3),
        loss=ft.losses.softmax_cross_entropy,
    )
    xs, ys = jnp.asarray(XS[0]), jnp.asarray(YS[0])
    state, info = learner.step(learner.init(), xs, ys)
    assert info.accepted
    assert any(np.any(leaf) for leaf in jax.tree.leaves(state.carry.e))
    broken = state._replace(network=jax.tree.map(lambda leaf: leaf * np.inf, state.network))
    after, info = learner.step(broken, xs, ys)
    assert not info.accepted
    assert_equal(after.carry, state.carry, 0)
    plain = ft.gradient(
        network, ft.init_carry(network, learner.rule), xs, ys, rule=learner.rule, loss=learner.loss
    )[2]
    assert_equal(state.carry, plain)
