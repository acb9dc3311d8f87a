"""Credit in depth in use: rules, configurations, learners, alignment; laws: `test_depth.py`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft
from foretrace._runs.config_json import from_json, to_json
from foretrace.experiment._build import build
from foretrace.experiment._config import Config

T, D = 6, 3
LOSS = ft.losses.softmax_cross_entropy
RANDOM = np.random.default_rng(0)
XS, YS = jnp.asarray(RANDOM.normal(size=(T, 2))), jnp.asarray(RANDOM.integers(0, 3, size=T))
DEEP = ft.ONLINE.with_depth(1)


@pytest.fixture(scope="module")
def network():
    make = ft.LRU.factory(state_size=3)
    return ft.Network(2, 3, model_size=4, depth=D, cell=make, key=jax.random.key(0))


def assert_equal(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=1e-10)


def test_a_depth_is_part_of_a_rule():
    assert ft.ONLINE.with_depth(0) == ft.ONLINE
    assert str(ft.RTRL.with_depth(2)) == "RTRL(depth=2)"
    assert ft.ONLINE.with_depth(2).with_depth(1) == DEEP
    for wrong in (-1, 1.0, True, "1"):
        with pytest.raises(ValueError, match="depth"):
            ft.ONLINE.with_depth(wrong)
    for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.BPTT):
        with pytest.raises(ValueError, match="carries none"):
            rule.with_depth(1)


def test_a_configuration_has_a_depth():
    assert build(Config(rule="online(depth=2)")).learner.rule == ft.ONLINE.with_depth(2)
    assert from_json(Config, to_json(Config(rule=" RTRL( depth=2 )"))).rule == "rtrl(depth=2)"
    with pytest.raises(ValueError, match=r"rule='online\(depth=-1\)': 'depth=-1' is not an option"):
        Config(rule="online(depth=-1)")
    with pytest.raises(ValueError, match="carries none"):
        Config(rule="bptt(depth=1)")


def test_the_definition_without_depth_is_not_taken_for_one_with():
    with pytest.raises(ValueError, match="depth"):
        ft.testing.gradient_by_definition(None, XS, YS, rule=DEEP, loss=LOSS)


@pytest.mark.full
def test_a_learner_updates_and_goes_on_from_a_checkpoint(network, tmp_path, standard_promotion):
    """One update a sequence equals backpropagation through time; a saved state continues alike."""
    make = partial(ft.Learner, network, optimizer=optax.sgd(0.1), loss=LOSS)
    online = make(rule=ft.ONLINE.with_depth(D), accumulate=True)
    exact = make(rule=ft.BPTT, whole_sequences=True)
    state, _ = online.step(online.init(), XS[:3], YS[:3])
    ft.save(tmp_path / "state", state)
    want, _ = exact.step(exact.init(), XS, YS)
    for before in (state, ft.load(tmp_path / "state", online)):
        after, info = online.step(before, XS[3:], YS[3:], end=True)
        assert info.accepted
        assert_equal(after.network, want.network)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(after.carry))


@pytest.mark.full
def test_prediction_moves_the_sensitivities_on(network):
    learner = ft.Learner(network, rule=DEEP, optimizer=optax.sgd(0.1), loss=LOSS)
    _, state = learner.predict(learner.init(), XS)
    _, _, carry = ft.gradient(network, None, XS, YS, rule=DEEP, loss=LOSS)
    assert_equal(state.carry, carry)
    _, state = learner.predict(learner.init(), XS, sensitivity=False)
    assert_equal(state.carry.h, carry.h)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.carry.e))
