"""Modules are sampled with the probabilities of their weights, for a sequence at a time."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from gradients import LOSS, XS, YS, filled, make_network
from hypothesis import given
from tiers import fast

import foretrace as ft
from foretrace._credit.modules import (
    LONGEST,
    inclusion_probabilities,
    memory,
    sample_modules,
    systematic_sample,
)

BY_MEMORY = ft.rule("online(depth=1, modules=2, by_memory=True)")


@given(st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=12), st.data())
def test_probabilities_are_proportional_up_to_one_and_add_up(weights, data):
    number = data.draw(st.integers(1, len(weights) - 1))
    weights = jnp.asarray(weights)
    p = jax.jit(inclusion_probabilities, static_argnums=1)(weights, number)
    assert float(p.sum()) == pytest.approx(number, rel=1e-9)
    assert float(p.max()) <= 1
    p, weights = np.asarray(p), np.asarray(weights)
    shares = (p / weights)[p < 1]
    np.testing.assert_allclose(shares, shares[:1].repeat(shares.size), rtol=1e-9)
    if shares.size:
        # Who is certain would be more than certain in proportion.
        certain = weights[p == 1]
        assert (certain * shares[0] >= 1 - 1e-9).all()


def test_a_sample_has_each_module_as_often_as_it_should():
    p, draws = jnp.array([0.05, 1.0, 0.2, 0.75, 0.5, 0.5]), 40_000
    sample = jax.jit(jax.vmap(lambda key: systematic_sample(p, 3, key)))
    samples = np.asarray(sample(jax.random.split(jax.random.key(0), draws)))
    assert all(len(set(row)) == 3 for row in samples[:500].tolist())
    share, p = np.bincount(samples.ravel(), minlength=6) / draws, np.asarray(p)
    assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / draws)).all()


@pytest.mark.parametrize("name", fast(["lru", "lstm", "gru", "lif", "s5"], 2))
def test_memory_is_a_time_constant(name):
    cell = filled(lambda: CELLS[name](3, key=jax.random.key(0)))
    found = np.asarray(jax.jit(memory)(cell))
    assert found.shape == (cell.state_size,) and (found >= 0).all() and (found <= LONGEST).all()
    if name == "lru":
        np.testing.assert_allclose(found, 1 / (1 - np.exp(-np.exp(cell.nu_log))), rtol=1e-10)


def test_long_memories_are_sampled_more_often():
    network = make_network()
    keys = jax.random.split(jax.random.key(0), 4_000)
    rule = ft.rule("online(depth=2, modules=1, by_memory=True)")
    sample = jax.jit(jax.vmap(lambda key: sample_modules(network, rule, key)))
    samples = jax.tree.map(np.asarray, sample(keys))
    for m, want in enumerate(np.asarray(jax.jit(jax.vmap(memory))(network.cells))):
        chosen = samples.chosen[:, m, 0]
        share = np.bincount(chosen, minlength=3) / len(keys)
        np.testing.assert_allclose(share, want / want.sum(), atol=0.05)
        np.testing.assert_allclose(samples.weight[:, m, 0], (want.sum() / want)[chosen], rtol=1e-10)


@pytest.mark.full
def test_a_sequence_keeps_its_modules_while_the_network_learns(standard_promotion):
    options = {"optimizer": ft.adamw(0.3), "loss": LOSS, "warn": False, "train_encoder": True}
    learner = ft.Learner(make_network(depth=2), rule=BY_MEMORY, **options)
    state, no = learner.init(), jnp.zeros(2, bool)
    begun, xs, ys = state.carry.modules, jnp.asarray(XS[0]), jnp.asarray(YS[0])
    for at in (0, 2):
        state, info = learner.step(state, xs[at : at + 2], ys[at : at + 2], reset=no)
        assert info.accepted
        assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), state.carry.modules, begun))
    started, _ = learner.step(state, xs[4:], ys[4:], reset=no.at[0].set(True))
    # Weights follow the memory that the network now has.
    assert not (started.carry.modules.weight == begun.weight).all()
    ended, _ = learner.step(state, xs[4:], ys[4:], reset=no, end=True)
    assert not (ended.carry.modules.weight == begun.weight).all()
