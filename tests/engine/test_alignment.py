"""The diagnostic itself: right where the answer is known, at any scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import make_network

import foretrace as ft
from foretrace._engine.alignment import compare

LOSS = ft.losses.softmax_cross_entropy


@pytest.fixture(scope="module")
def network():
    return make_network()


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(1)
    return jnp.asarray(random.normal(size=(2, 8, 2))), jnp.asarray(random.integers(0, 3, (2, 8)))


@pytest.mark.full
def test_chunks_change_hybrid_and_leave_online(network, batch):
    def cosines(rule, chunk):
        return ft.alignment(network, *batch, rule=rule, loss=LOSS, chunk=chunk).layer_cosine

    online = cosines(ft.ONLINE, None)
    np.testing.assert_allclose(cosines(ft.ONLINE, 4), online, atol=1e-10)
    np.testing.assert_allclose(cosines(ft.HYBRID, 1), online, atol=1e-10)
    np.testing.assert_allclose(cosines(ft.HYBRID, None), 1, atol=1e-10)
    assert abs(cosines(ft.HYBRID, 4) - online).max() > 1e-3


@pytest.mark.parametrize("scale", [1e-300, 1e200])
def test_tiny_and_huge_gradients_compare_alike(network, scale):
    random = np.random.default_rng(5)
    grads = jax.tree.map(lambda p: random.normal(size=p.shape), network)
    scaled = jax.tree.map(lambda g: g * scale, grads)
    found = compare(network, scaled, grads)
    assert found.total == pytest.approx(1, abs=1e-12)
    assert found.norm_ratio["encoder.weight"] == pytest.approx(scale, rel=1e-12)


def test_zero_gradients_are_told_apart(network, batch):
    spatial = ft.alignment(network, *batch, rule=ft.SPATIAL, loss=LOSS)
    np.testing.assert_array_equal(spatial.cosine["blocks.cell.nu_log"], 0)
    np.testing.assert_array_equal(spatial.norm_ratio["blocks.cell.nu_log"], 0)
    grads = jax.tree.map(np.ones_like, network)
    none = compare(network, grads, jax.tree.map(np.zeros_like, network))
    assert np.isnan(none.total)
