"""The paper's optimiser: schedule, groups, clipping."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import make_network
from tiers import fast

import foretrace as ft
from foretrace._learner.optimizer import adam, is_slow, schedule
from foretrace._learner.wrappers import holding, in_front_of_recurrences

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


def test_groups_follow_the_cell(network):
    slow, rest = is_slow(network), is_slow(network, wanted=False)
    assert slow.blocks.cell.nu_log and slow.blocks.cell.gamma_log
    assert not (slow.blocks.cell.B_re or slow.blocks.norm.bias or slow.encoder.weight)
    assert jax.tree.all(jax.tree.map(lambda one, other: one != other, slow, rest))


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
    ("size", "clip"), fast([(96, 1.0), (4, 1.0), (96, None), (4, None), (4, "adam")])
)
def test_updates_are_those_of_optax_leaf_by_leaf(size, clip):
    make = ft.LRU.factory(state_size=size)
    network = ft.Network(2, 3, model_size=size, depth=2, cell=make, key=jax.random.key(0))
    assert any(leaf.size > 8192 for leaf in jax.tree.leaves(network)) == (size == 96)
    if clip == "adam":
        ours, reference = adam(1e-2), optax.adam(1e-2)
    else:
        options = {"b1": 0.8, "b2": 0.99, "eps": 1e-6}
        ours = ft.adamw(1e-2, recurrent_factor=0.25, weight_decay=0.5, clip=clip, **options)
        reference = of_optax(network, clip, **options)
    leaves, structure = jax.tree.flatten(network)
    state, other = ours.init(network), reference.init(network)
    # Below the bound, above it, below or above by the size.
    for seed, scale in enumerate((1e-4, 10.0, 1e-2)):
        draw = np.random.default_rng(seed)
        grads = [jnp.asarray(scale * draw.normal(size=leaf.shape)) for leaf in leaves]
        found, state = ours.update(structure.unflatten(grads), state, network)
        wanted, other = reference.update(structure.unflatten(grads), other, network)
        close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-15)
        jax.tree.map(close, found, wanted)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_parameters_of_two_dtypes_are_updated_as_those_of_one(network, standard_promotion, clip):
    """A float32 decoder beside float64 layers: small leaves of each dtype are one vector."""
    decoder = jax.tree.map(jnp.float32, network.decoder)
    mixed = eqx.tree_at(lambda net: net.decoder, network, decoder)
    updates = []
    for net in (network, mixed):
        optimizer, grads = ft.adamw(1e-2, clip=clip), jax.tree.map(jnp.cos, net)
        updates.append(optimizer.update(grads, optimizer.init(net), net)[0])
    for one, two, like in zip(*map(jax.tree.leaves, (*updates, mixed)), strict=True):
        assert two.dtype == like.dtype
        np.testing.assert_allclose(two, one, rtol=1e-5)


def test_a_bounded_update_promises_no_more_than_the_loss():
    rng = np.random.default_rng(0)
    grads, moved = (
        {"a": jnp.asarray(rng.normal(size=5)), "b": jnp.asarray(rng.normal(size=(2, 3)))}
        for _ in "ab"
    )
    fixed = optax.GradientTransformation(
        lambda params: (), lambda grads, state, params=None: (moved, state)
    )
    promise = -sum(float(np.sum(grads[name] * moved[name])) for name in grads)
    sign = np.sign(promise)  # so that the update promises a fall
    grads, promise = jax.tree.map(lambda g: sign * g, grads), abs(promise)
    for kappa, loss in ((1.0, 0.5 * promise), (0.2, promise), (1.0, 2 * promise), (1.0, 0.0)):
        updates, _ = ft.bounded(fixed, kappa).update(grads, (), value=jnp.asarray(loss))
        factor = min(1.0, kappa * loss / promise)
        for name in moved:
            np.testing.assert_allclose(updates[name], factor * moved[name], rtol=1e-12)
    # An update that promises a rise, as momentum can, is left alone, and so is none.
    up, _ = ft.bounded(fixed).update(jax.tree.map(lambda g: -g, grads), (), value=jnp.asarray(1e-9))
    none, _ = ft.bounded(fixed).update(
        jax.tree.map(jnp.zeros_like, grads), (), value=jnp.asarray(0.0)
    )
    for name in moved:
        np.testing.assert_array_equal(up[name], moved[name])
        np.testing.assert_array_equal(none[name], moved[name])


def learn(network, optimizer, y, **options):
    options = {"train_encoder": True, "loss": ft.losses.squared_error} | options
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optimizer, **options)
    state = learner.init()
    mask = jnp.array([True, False, True])
    return state, *learner.step(state, jnp.ones((3, 2)), y, mask=mask)


@pytest.mark.full
def test_a_learner_gives_the_loss_of_the_chunk(network):
    y = jnp.full((3, 3), 2.0)
    _, free, info = learn(network, optax.sgd(1.0), y)
    _, bound, same = learn(network, ft.bounded(optax.sgd(1.0)), y)
    # Of plain gradient descent at rate 1 the promise is the square of the gradient's norm.
    factor = float(info.loss / info.gradient_norm**2)
    assert factor < 1 and float(same.update_norm) == pytest.approx(
        factor * float(info.update_norm), rel=1e-10
    )
    for p, q, r in zip(*map(jax.tree.leaves, (network, free.network, bound.network)), strict=True):
        np.testing.assert_allclose(r - p, factor * (q - p), rtol=1e-8, atol=1e-12)


def test_an_update_that_is_not_finite_is_refused(network):
    before, after, info = learn(network, optax.sgd(1e306 * 1e306), jnp.full((3, 3), 2.0))
    assert not info.accepted and int(after.skipped) == 1
    for p, q in zip(*map(jax.tree.leaves, (before.network, after.network)), strict=True):
        np.testing.assert_array_equal(p, q)


@pytest.mark.full
@pytest.mark.parametrize(("norm", "count"), fast([("pre", 4), ("post", 2)]))
def test_held_parameters_stay_and_count_for_nothing_in_a_clip(norm, count):
    network = make_network(depth=2, norm=norm)
    held = in_front_of_recurrences(network)
    plain = ft.adamw(1e-2, clip=1.0, weight_decay=0.1)
    grads = jax.tree.map(jnp.ones_like, network)
    closed = jax.tree.map(lambda leaf, hold: leaf * (not hold), grads, held)
    updates, _ = holding(plain, in_front_of_recurrences).update(grads, plain.init(network), network)
    wanted, _ = plain.update(closed, plain.init(network), network)
    assert sum(jax.tree.leaves(held)) == count
    for update, want, hold in zip(*map(jax.tree.leaves, (updates, wanted, held)), strict=True):
        assert bool((update == (0 if hold else want)).all())
