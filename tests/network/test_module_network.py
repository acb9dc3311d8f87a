"""Networks of modules side by side: features, and the laws of the engine that blocks obey too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import (
    LOSS,
    NONE,
    RESET,
    WEIGHTS,
    XS,
    YS,
    T,
    apart,
    assert_equal,
    run,
    run_in_chunks,
    scaled,
    summed,
)
from tiers import fast

import foretrace as ft
from foretrace.testing import plain_states

KEY = jax.random.key(0)
CELLS = (
    ft.SetReset.factory(state_size=2),
    ft.LRU.factory(state_size=2),
    ft.Rotation.factory(state_size=1),
)


@pytest.fixture(scope="module")
def network():
    return ft.ModuleNetwork(2, 3, cells=CELLS, depth=2, key=KEY)


def test_features_are_inputs_and_the_readouts_of_every_cell(network):
    z = jnp.asarray(XS[1])
    for layer in network.layers:
        states = [plain_states(cell, cell.coefficients(), z) for cell in layer]
        ys = [jax.vmap(cell.readout)(hs, z) for cell, hs in zip(layer, states, strict=True)]
        z = jnp.concatenate([z, *ys], axis=1)
    assert z.shape == (T, network.feature_size)
    want = z @ network.decoder.weight.T + network.decoder.bias[None]
    assert_equal(ft.forward(network, None, jnp.asarray(XS[1]))[0], want)


@pytest.mark.parametrize("rule", fast([ft.ONLINE, ft.TRUNCATED]), ids=str)
def test_any_partition_gives_the_same_gradient_and_carry(network, rule):
    want = run(network, rule, ft.init_carry(network, rule))
    assert_equal(run_in_chunks(network, rule, (3, 3)), want)


def test_the_top_layer_is_exact_and_the_one_below_gets_the_present_error(network):
    online, exact = (run(network, rule)[1] for rule in (ft.ONLINE, ft.BPTT))
    assert_equal((online.layers[1], online.decoder), (exact.layers[1], exact.decoder))
    assert apart(online.layers[0], exact.layers[0]) > 1e-3


@pytest.mark.full
def test_a_batch_is_the_mean_of_its_streams(network):
    streams = [
        {"xs": xs, "ys": ys, "reset": reset, "mask": WEIGHTS}
        for xs, ys, reset in zip(XS, YS, (RESET, NONE), strict=True)
    ]
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *streams)
    value, grads, carry = run(network, ft.ONLINE, ft.init_carry(network, ft.ONLINE, 2), **together)
    alone = [run(network, ft.ONLINE, ft.init_carry(network, ft.ONLINE), **one) for one in streams]
    assert_equal((value, grads), scaled(0.5, summed([one[:2] for one in alone])))
    carries = [one[2] for one in alone]
    assert_equal(carry, jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *carries))


@pytest.mark.full
def test_an_optax_optimiser_trains_it_with_slow_parameters_apart(network, default_promotion):
    optimizer = ft.adamw(1e-2, recurrent_factor=0.0)
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optimizer, loss=LOSS)
    state, info = learner.step(learner.init(), jnp.asarray(XS[0]), jnp.asarray(YS[0]))
    moved = jax.tree.map(lambda p, q: bool((p != q).any()), state.network, network)
    assert (
        info.accepted and moved.layers[0][0].W and moved.layers[1][1].B_re and moved.decoder.weight
    )
    assert not moved.layers[0][1].nu_log and not moved.layers[1][1].gamma_log


def test_parameters_without_a_gradient_are_named(network):
    names = ft.untrained_parameters(network, ft.SPATIAL)
    assert "layers[0][0].W" in names and "layers[1][1].nu_log" in names
    assert "layers[0][0].W_o" not in names


def test_tools_for_equal_blocks_say_so(network, without_shape_checks):
    data = {"xs": jnp.asarray(XS[0]), "ys": jnp.asarray(YS[0]), "rule": ft.ONLINE, "loss": LOSS}
    for tool, arguments in (
        (ft.alignment, data),
        (ft.to_torch, {"path": "model.py"}),
    ):
        with pytest.raises(TypeError, match=r"ModuleNetwork\) must be a foretrace.Network"):
            tool(network, **arguments)
