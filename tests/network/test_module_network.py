"""Networks of modules side by side: features, and the laws of the engine that blocks obey too."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace.testing import plain_states

KEY = jax.random.key(0)
CELLS = (
    ft.SetReset.factory(state_size=2),
    ft.LRU.factory(state_size=2),
    ft.Rotation.factory(state_size=1),
)
XS = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 3)))
YS = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, 2)))
RESET = jnp.asarray([[False, False, True, False, False, False], [False] * 6])
LOSS = ft.losses.squared_error


@pytest.fixture(scope="module")
def network():
    return ft.ModuleNetwork(3, 2, cells=CELLS, depth=2, key=KEY)


def close(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def run(network, rule, carry, part, stream=0):
    xs, ys, reset = (a[stream][part] for a in (XS, YS, RESET))
    return ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS, reset=reset)


def test_features_are_inputs_and_the_readouts_of_every_cell(network):
    z = XS[1]
    for layer in network.layers:
        states = [plain_states(cell, cell.coefficients(), z) for cell in layer]
        ys = [jax.vmap(cell.readout)(hs, z) for cell, hs in zip(layer, states, strict=True)]
        z = jnp.concatenate([z, *ys], axis=1)
    assert z.shape == (6, network.feature_size)
    close(
        ft.forward(network, None, XS[1])[0],
        z @ network.decoder.weight.T + network.decoder.bias[None],
    )


@pytest.mark.parametrize("rule", fast([ft.ONLINE, ft.TRUNCATED]), ids=str)
def test_any_partition_gives_the_same_gradient_and_carry(network, rule):
    want = run(network, rule, ft.init_carry(network, rule), slice(0, 6))
    first = run(network, rule, ft.init_carry(network, rule), slice(0, 3))
    second = run(network, rule, first[2], slice(3, 6))
    close((jax.tree.map(jnp.add, first[:2], second[:2]), second[2]), (want[:2], want[2]))


def test_the_top_layer_is_exact_and_the_one_below_gets_the_present_error(network):
    online, exact = (run(network, rule, None, slice(0, 6))[1] for rule in (ft.ONLINE, ft.BPTT))
    close((online.layers[1], online.decoder), (exact.layers[1], exact.decoder))
    below = zip(*(jax.tree.leaves(grads.layers[0]) for grads in (online, exact)), strict=True)
    assert max(float(abs(a - b).max()) for a, b in below) > 1e-3


@pytest.mark.full
def test_a_batch_is_the_mean_of_its_streams(network):
    carry = ft.init_carry(network, ft.ONLINE, batch_size=2)
    value, grads, after = ft.gradient(
        network, carry, XS, YS, rule=ft.ONLINE, loss=LOSS, reset=RESET
    )
    alone = [
        run(network, ft.ONLINE, ft.init_carry(network, ft.ONLINE), slice(0, 6), b) for b in (0, 1)
    ]
    close((value, grads), jax.tree.map(lambda a, b: (a + b) / 2, alone[0][:2], alone[1][:2]))
    close(after, jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), alone[0][2], alone[1][2]))


@pytest.mark.full
def test_an_optax_optimiser_trains_it_with_slow_parameters_apart(network, default_promotion):
    optimizer = ft.adamw(1e-2, recurrent_factor=0.0)
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optimizer, loss=LOSS)
    state, info = learner.step(learner.init(), XS[0], YS[0])
    moved = jax.tree.map(lambda p, q: bool((p != q).any()), state.network, network)
    assert (
        info.accepted and moved.layers[0][0].W and moved.layers[1][1].B_re and moved.decoder.weight
    )
    assert not moved.layers[0][1].nu_log and not moved.layers[1][1].gamma_log


def test_parameters_without_a_gradient_are_named(network):
    names = ft.untrained_parameters(network, ft.SPATIAL)
    assert "layers[0][0].W" in names and "layers[1][1].nu_log" in names
    assert "layers[0][0].W_o" not in names


@pytest.mark.parametrize(
    "use",
    [
        partial(ft.alignment, xs=XS[0], ys=YS[0], rule=ft.ONLINE, loss=LOSS),
        partial(ft.to_torch, path="model.py"),
        partial(ft.save_pretrained, path="file"),
    ],
    ids=["alignment", "to_torch", "save_pretrained"],
)
def test_tools_for_equal_blocks_say_so(network, use, without_shape_checks):
    with pytest.raises(TypeError, match=r"ModuleNetwork\) must be a foretrace.Network"):
        use(network)
