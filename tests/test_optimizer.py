"""The paper's optimiser: schedule, groups, clipping."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft
from foretrace._optimizer import labels, schedule

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def network():
    make = ft.LRU.factory(state_size=3)
    return ft.Network(2, 3, model_size=4, depth=2, cell=make, key=jax.random.key(0))


def test_warm_up_rises_to_the_rate_and_the_cosine_ends_at_zero_with_the_run():
    rate = schedule(2.0, steps=100, warmup_steps=20)
    assert float(rate(0)) == 0
    assert float(rate(10)) == pytest.approx(1.0)
    assert float(rate(20)) == pytest.approx(2.0)
    assert float(rate(60)) == pytest.approx(1.0)
    assert float(rate(100)) == pytest.approx(0.0, abs=1e-12)
    assert float(schedule(2.0, steps=100)(0)) == pytest.approx(2.0)
    assert float(schedule(2.0, steps=None)(10**6)) == pytest.approx(2.0)
    assert float(schedule(2.0, steps=None, warmup_steps=4)(10**6)) == pytest.approx(2.0)


def test_groups_follow_the_cell(network):
    found = labels(network)
    assert found.blocks.cell.nu_log == found.blocks.cell.gamma_log == "recurrent"
    assert found.blocks.cell.B_re == found.blocks.norm.bias == found.encoder.weight == "rest"


def test_the_recurrent_group_is_slow_and_not_decayed(network):
    optimizer = ft.adamw(1e-2, recurrent_factor=0.25, weight_decay=0.5, clip=None)
    ones = jax.tree.map(jnp.ones_like, network)
    updates, _ = optimizer.update(ones, optimizer.init(network), network)
    # Adam's first step is the rate itself; decay adds rate * decay * parameter.
    np.testing.assert_allclose(updates.blocks.cell.nu_log, -0.25e-2, rtol=1e-6)
    np.testing.assert_allclose(updates.encoder.weight, -1e-2 * (1 + 0.5 * network.encoder.weight), rtol=1e-6)


def test_clipping_bounds_the_global_norm_over_both_groups(network):
    grads = jax.tree.map(lambda p: 100.0 * jnp.ones_like(p), network)
    clipped = ft.adamw(1e-2, clip=1e-12)
    updates, _ = clipped.update(grads, clipped.init(network), network)
    free = ft.adamw(1e-2, clip=None)
    unclipped, _ = free.update(grads, free.init(network), network)
    # Adam's eps (1e-8) swallows a gradient of that size; without clipping it would not.
    assert float(optax.tree.norm(updates)) < 1e-3 * float(optax.tree.norm(unclipped))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"clip": 0.0}, "clip"),
        ({"steps": 10, "warmup_steps": 10}, "warmup_steps"),
    ],
)
def test_bad_options_are_clear_errors(options, name):
    with pytest.raises(ValueError, match=name):
        ft.adamw(**options)
