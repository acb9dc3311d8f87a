"""Networks of modules side by side: features, and the laws of the engine that blocks obey too."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import XS, T, apart, assert_equal, filled, run, run_in_chunks
from tiers import fast

import foretrace as ft
from foretrace.testing import plain_states

KEY = jax.random.key(0)
CELLS = (ft.SetReset.factory(state_size=2), ft.LRU.factory(state_size=2))


@pytest.fixture(scope="module")
def network():
    return filled(lambda: ft.ModuleNetwork(2, 3, cells=CELLS, depth=2, key=KEY))


def features(network, z):
    for layer in network.layers:
        states = [plain_states(cell, cell.coefficients(), z) for cell in layer]
        ys = [jax.vmap(cell.readout)(hs, z) for cell, hs in zip(layer, states, strict=True)]
        z = jnp.concatenate([z, *ys], axis=1)
    return z


def test_features_are_inputs_and_the_readouts_of_every_cell(network):
    z = np.asarray(jax.jit(features)(network, jnp.asarray(XS[1])))
    assert z.shape == (T, network.feature_size)
    want = z @ np.asarray(network.decoder.weight).T + np.asarray(network.decoder.bias)
    assert_equal(ft.forward(network, None, jnp.asarray(XS[1]))[0], want)


@pytest.mark.parametrize("rule", fast([ft.ONLINE, ft.TRUNCATED], 0), ids=str)
def test_any_partition_gives_the_same_gradient_and_carry(network, rule):
    want = run(network, rule, ft.init_carry(network, rule))
    assert_equal(run_in_chunks(network, rule, (3, 3)), want)


def test_the_top_layer_is_exact_and_the_one_below_gets_the_present_error(network):
    online = run(network, ft.ONLINE, ft.init_carry(network, ft.ONLINE))[1]
    exact = run(network, ft.BPTT)[1]
    assert_equal((online.layers[1], online.decoder), (exact.layers[1], exact.decoder))
    assert apart(online.layers[0], exact.layers[0]) > 1e-3


def test_parameters_without_a_gradient_are_named(network):
    names = ft.untrained_parameters(network, ft.SPATIAL)
    assert "layers[0][0].W" in names and "layers[1][1].nu_log" in names
    assert "layers[0][0].W_o" not in names


class Constant(ft.AbstractCell):
    """Fixed modules, whose states depend on no coefficient; only the readout is trained."""

    scale: jax.Array
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def coefficients(self):
        return ft.Coefficients({}, {})

    def init_state(self):
        return jnp.zeros(self.state_size)

    def step(self, theta, own, others, x):
        return 0.5 * own + x[0]

    def readout(self, h, x):
        return self.scale * h


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), ft.kalman(warmup=0)], ids=["sgd", "kalman"])
def test_modules_without_any_sensitivity_learn_their_readout(optimizer):
    cell = partial(lambda size, *, key: Constant(jnp.ones(3), size, 3))
    network = ft.ModuleNetwork(1, 1, cells=(cell,), key=KEY)
    options = {"optimizer": optimizer, "loss": ft.losses.squared_error, "warn": False}
    learner = ft.Learner(network, rule=ft.ONLINE, **options)
    state, xs = learner.init(), jnp.ones((4, 1))
    for _ in range(2):
        state, info = learner.step(state, xs, 2 * xs)
    assert bool(info.accepted.all())
    assert not np.allclose(state.network.layers[0][0].scale, 1.0)
