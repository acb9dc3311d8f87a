"""The paper's optimiser: schedule, groups, clipping."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import filled, make_network
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

import foretrace as ft
from foretrace._learner.nodes import module_fields
from foretrace._learner.optimizer import adam, is_slow, schedule

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture
def network():
    return make_network(depth=2)


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


class Slow(ft.FromModule):
    """A cell of the user, all of whose parameters are slow."""

    slow_parameters = ("parameters",)


def test_groups_follow_the_cell(network):
    slow, rest = is_slow(network), is_slow(network, wanted=False)
    assert slow.blocks.cell.nu_log and slow.blocks.cell.gamma_log
    assert not (slow.blocks.cell.B_re or slow.blocks.norm.bias or slow.encoder.weight)
    assert jax.tree.all(jax.tree.map(lambda one, other: one != other, slow, rest))
    rtu, gru = is_slow(make_network("rtu+gru", depth=1)).blocks.cell.cells
    assert rtu.nu_log and rtu.theta_log and not (rtu.B_u or gru.W_h)
    body = {"a": jnp.ones(2), "W": jnp.ones((2, 2))}
    bodies = [Slow(body, lambda w, h, x: w["a"] * h + w["W"] @ x, input_size=2, state_size=2)] * 2
    assert all(jax.tree.leaves(is_slow(ft.Beside(*bodies))))
    latches = [filled(lambda: ft.SetReset(2, 2, key=jax.random.key(0)))] * 2
    assert {".cells[1].W_o", ".cells[0].b"} < module_fields(ft.Beside(*latches))


def of_optax(network, clip, **options):
    """Return the optimiser of the package from parts of Optax alone, group by group."""
    kind = jax.tree.map(lambda slow: "slow" if slow else "rest", is_slow(network))
    groups = {
        "slow": optax.adamw(0.25e-2, weight_decay=0.0, **options),
        "rest": optax.adamw(1e-2, weight_decay=0.5, **options),
    }
    bound = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
    return optax.chain(bound, optax.partition(groups, kind))


# All leaves small; B, C and the gates large, the others small.
@pytest.mark.parametrize(
    ("size", "clip"),
    fast([(96, 1.0), (4, None), (4, "adam")]),
)
def test_updates_are_those_of_optax_leaf_by_leaf(size, clip):
    cell, key = ft.LRU.factory(state_size=size), jax.random.key(0)
    network = filled(lambda: ft.Network(2, 3, model_size=size, depth=2, cell=cell, key=key))
    assert any(leaf.size > 8192 for leaf in jax.tree.leaves(network)) == (size == 96)
    if clip == "adam":
        ours, reference = adam(1e-2), optax.adam(1e-2)
    else:
        options = {"b1": 0.8, "b2": 0.99, "eps": 1e-6}
        ours = ft.adamw(1e-2, recurrent_factor=0.25, weight_decay=0.5, clip=clip, **options)
        reference = of_optax(network, clip, **options)
    leaves, structure = jax.tree.flatten(network)
    state, other = ours.init(network), reference.init(network)
    update, by_optax = jax.jit(ours.update), jax.jit(reference.update)
    # Below the bound, above it, below or above by the size.
    for seed, scale in enumerate((1e-4, 10.0, 1e-2)):
        draw = np.random.default_rng(seed)
        grads = [jnp.asarray(scale * draw.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
        found, state = update(structure.unflatten(grads), state, network)
        wanted, other = by_optax(structure.unflatten(grads), other, network)
        for one, two, like in zip(*map(jax.tree.leaves, (found, wanted, network)), strict=True):
            assert one.dtype == like.dtype
            np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-15)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.2]), st.floats(0.0, 2.0))
def test_a_bounded_update_promises_no_more_than_the_loss(seed, overshoot, share):
    """One that promises a rise, as momentum can, is left alone, and so is none."""
    grads, moved = np.random.default_rng(seed).normal(size=(2, 11))
    promise = -grads @ moved
    loss = share * abs(promise)
    fixed = optax.stateless(lambda updates, params: jnp.asarray(moved))
    bounded = partial(ft.bounded(fixed, overshoot).update, state=(), value=jnp.asarray(loss))
    fall = np.sign(promise)  # so that the update promises a fall
    for sign, factor in ((fall, min(1.0, overshoot * share)), (-fall, 1.0), (0, 1.0)):
        updates, _ = bounded(jnp.asarray(sign * grads))
        np.testing.assert_allclose(updates, factor * moved, rtol=1e-12)


@pytest.mark.full
def test_a_learner_gives_the_loss_of_the_chunk(network):
    found = []
    for optimizer in (optax.sgd(1.0), ft.bounded(optax.sgd(1.0))):
        options = {"rule": ft.ONLINE, "loss": ft.losses.squared_error, "train_encoder": True}
        learner = ft.Learner(network, optimizer=optimizer, **options)
        x, y, mask = jnp.ones((3, 2)), jnp.full((3, 3), 2.0), jnp.array([True, False, True])
        found.append(learner.step(learner.init(), x, y, mask=mask))
    (free, info), (bound, _) = found
    # Of plain gradient descent at rate 1 the promise is the square of the gradient's norm.
    factor = float(info.loss / info.gradient_norm**2)
    assert factor < 1
    for p, q, r in zip(*map(jax.tree.leaves, (network, free.network, bound.network)), strict=True):
        np.testing.assert_allclose(r - p, factor * (q - p), rtol=1e-8, atol=1e-12)
