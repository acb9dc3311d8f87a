"""Refusals of a learner, and the state after a refused call or one without a label."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

import foretrace as ft
from foretrace._credit import blocks

pytestmark = pytest.mark.usefixtures("standard_promotion")

LOSS = ft.losses.squared_error


def make_learner(cell="lru", *, optimizer=None, rule=ft.ONLINE, depth=2, loss=LOSS, **options):
    network = ft.Network(2, 1, model_size=4, depth=depth, cell=CELLS[cell], key=jax.random.key(0))
    optimizer = optax.sgd(0.1) if optimizer is None else optimizer
    return ft.Learner(
        network, rule=rule, optimizer=optimizer, loss=loss, train_encoder=True, **options
    )


def data(*front, seed=1):
    keys = jax.random.split(jax.random.key(seed))
    return jax.random.normal(keys[0], (*front, 2)), jax.random.normal(keys[1], (*front, 1))


def assert_same(got, want):
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def is_finite(tree):
    return all(
        bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree) if leaf.dtype != jnp.uint32
    )


def test_a_state_with_a_key_of_another_kind_is_its_own():
    learner = make_learner()
    state = learner.init(jax.random.key(0, impl="rbg"))
    assert bool(learner.step(state, *data(3))[1].accepted)


@pytest.mark.parametrize(("accumulate", "dropout"), fast([(True, 0.0), (False, 0.5)]))
def test_a_refused_call_that_ends_a_sequence_ends_it_all_the_same(accumulate, dropout):
    """The next sequence gets nothing of the ended one: neither its carry nor its gradient."""

    def loss(output, y):
        return jnp.where(y[0] > 1e6, jnp.nan, LOSS(output, y))

    network = ft.Network(
        2, 1, model_size=4, depth=2, cell=CELLS["lru"], dropout=dropout, key=jax.random.key(0)
    )
    learner = ft.Learner(
        network, rule=ft.ONLINE, optimizer=optax.adam(0.1), loss=loss, accumulate=accumulate
    )
    xs, ys = data(6)
    before, _ = learner.step(learner.init(), xs[:3], ys[:3])
    after, info = learner.step(before, xs[3:], jnp.full((3, 1), 1e7), end=True)
    assert (
        not bool(info.accepted) and int(after.skipped) == 1 and int(after.step) == int(before.step)
    )
    assert_same((after.network, after.opt_state), (before.network, before.opt_state))
    start = learner.init()
    assert_same((after.carry, after.grads), (start.carry, start.grads))
    # As after a call that was accepted, the next sequence has dropout masks of its own.
    fine, _ = learner.step(before, xs[3:], ys[3:], end=True)
    assert_same(after.key, fine.key)


@pytest.mark.parametrize("sensitivity", [True, False])
def test_a_prediction_that_overflows_leaves_the_carry_as_it_was(sensitivity):
    learner = make_learner("linear")
    state, _ = learner.step(learner.init(), *data(3))
    huge = jnp.full((2, 2), 1e308)
    blown = state._replace(carry=state.carry._replace(h=jnp.full_like(state.carry.h, 1e308)))
    outputs, after = learner.predict(blown, huge, sensitivity=sensitivity)
    assert not is_finite(outputs), "this input was to overflow"
    assert int(after.skipped) == int(state.skipped) + 1
    assert_same(after.carry.h, blown.carry.h)
    assert_same(
        after.carry.e,
        jax.tree.map(lambda e: e if sensitivity else jnp.zeros_like(e), blown.carry.e),
    )
    assert_same(after._replace(skipped=None, carry=None), state._replace(skipped=None, carry=None))
    fine, later = learner.predict(state, data(3)[0], sensitivity=sensitivity)
    assert is_finite((fine, later.carry)) and int(later.skipped) == 0


def overflowing(**options):
    """Return a learner and inputs with a finite state h and an infinite derivative by a weight."""
    network = ft.Network(
        2, 1, model_size=4, depth=1, cell=CELLS["rglru"], norm="none", key=jax.random.key(0)
    )
    cell = network.blocks.cell
    gates = (jnp.zeros_like(cell.W_a), jnp.zeros_like(cell.W_x), jnp.full_like(cell.b_x, -665.0))
    network = eqx.tree_at(
        lambda n: (n.blocks.cell.W_a, n.blocks.cell.W_x, n.blocks.cell.b_x), network, gates
    )
    options = {
        "rule": ft.ONLINE,
        "optimizer": optax.sgd(0.0),
        "loss": LOSS,
        "train_encoder": True,
    } | options
    return ft.Learner(network, **options), jnp.full((2, 2), 1e300), jnp.zeros((2, 1))


@pytest.mark.full
@pytest.mark.parametrize("sensitivity", [True, False])
def test_a_stream_that_overflows_holds_up_no_other(sensitivity):
    learner = make_learner("linear", batch_size=2)
    state, _ = learner.step(learner.init(), *data(2, 3))
    carry = state.carry._replace(h=state.carry.h.at[:, 0].set(1e308))
    xs = data(2, 3)[0]
    expected = learner.predict(state, xs, sensitivity=sensitivity)[1].carry
    after = learner.predict(
        state._replace(carry=carry), xs.at[0].set(1e308), sensitivity=sensitivity
    )[1]
    assert int(after.skipped) == 1
    assert_same(
        jax.tree.map(lambda leaf: leaf[:, 1], after.carry),
        jax.tree.map(lambda leaf: leaf[:, 1], expected),
    )
    assert_same(after.carry.h[:, 0], carry.h[:, 0])


@pytest.mark.full
@pytest.mark.parametrize("predicts", [False, True])
def test_sensitivities_that_overflow_in_place_begin_anew(predicts, monkeypatch):
    """Where the old ones were overwritten, they cannot be restored."""
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    rule = ft.ONLINE.with_depth(1)
    learner, xs, ys = overflowing(rule=rule)
    assert blocks.in_place(learner.network, rule, 2)
    state, mask = learner.step(learner.init(), *data(2))[0], jnp.zeros(2, bool)
    after = learner.predict(state, xs)[1] if predicts else learner.step(state, xs, ys, mask=mask)[0]
    assert int(after.skipped) == 1
    assert_same(after.carry.h, state.carry.h)
    assert_same(after.carry.e, jax.tree.map(jnp.zeros_like, state.carry.e))
    assert bool(learner.step(after, *data(2))[1].accepted)


@pytest.mark.parametrize("predicts", [False, True])
def test_a_call_whose_sensitivities_overflow_is_refused(predicts):
    learner, xs, ys = overflowing()
    state, mask = learner.init(), jnp.zeros(2, bool)
    _, grads, carry = ft.gradient(
        learner.network, state.carry, xs, ys, mask=mask, rule=ft.ONLINE, loss=LOSS
    )
    assert is_finite((grads, carry.h)) and not is_finite(carry.e), "this input was to overflow"
    if predicts:
        _, after = learner.predict(state, xs)
    else:
        after, info = learner.step(state, xs, ys, mask=mask)
        assert not bool(info.accepted)
    assert int(after.skipped) == 1
    assert_same(after.carry, state.carry)
    again, info = learner.step(after, *data(2))
    assert bool(info.accepted) and is_finite(again.carry)


OPTIMIZERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(0.1),
    "adamw": optax.adamw(0.1, weight_decay=0.1),
    "ft.adamw": ft.adamw(0.1, weight_decay=0.1, steps=10),
    "schedule": optax.sgd(optax.linear_schedule(1.0, 0.0, 5)),
    "bounded": ft.bounded(optax.adam(0.1)),
}
MODES = {
    "a stream": {},
    "a batch": {"batch_size": 2},
    "accumulate": {"accumulate": True},
    "whole": {"whole_sequences": True},
}
PAIRS = [("momentum", "a stream"), ("adam", "a batch"), ("adamw", "accumulate")]
PAIRS += [
    pair
    for pair in itertools.product(OPTIMIZERS, MODES)
    if pair not in (*PAIRS, ("bounded", "accumulate"))
]


@pytest.mark.parametrize(("name", "mode"), fast(PAIRS, 3))
def test_without_a_label_neither_weights_nor_optimiser_move(name, mode):
    learner = make_learner("mingru", depth=1, optimizer=OPTIMIZERS[name], **MODES[mode])
    front = (2, 3) if mode == "a batch" else (3,)
    xs, ys = data(*front)
    end = learner.accumulate
    before, _ = learner.step(learner.init(), xs, ys, end=end)
    for none in (jnp.zeros(front, bool), jnp.zeros(front)):
        after, info = learner.step(before, xs, ys, mask=none, end=end)
        assert (
            bool(info.accepted)
            and float(info.update_norm) == 0
            and int(after.step) == int(before.step) + 1
        )
        assert_same((after.network, after.opt_state), (before.network, before.opt_state))
    if mode in ("a stream", "a batch"):
        moved = ft.forward(before.network, before.carry, xs, rule=ft.ONLINE)[1]
        np.testing.assert_allclose(after.carry.h, moved.h, atol=1e-12)
    one = jnp.zeros(front, bool).at[..., -1].set(True)
    if mode == "a batch":
        one = one.at[0].set(False)
    learned, info = learner.step(before, xs, ys, mask=one, end=end)
    assert float(info.update_norm) > 0


@pytest.mark.full
@given(labels=st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_sequence_learns_if_any_of_its_chunks_has_a_label(labels):
    """A last chunk without labels still applies the sum of the chunks before it."""
    learner = make_learner(
        "mingru", depth=1, optimizer=optax.sgd(0.1, momentum=0.9), accumulate=True
    )
    xs, ys = data(3)
    state, _ = learner.step(learner.init(), xs, ys, end=True)
    before = state
    for t, label in enumerate(labels):
        state, info = learner.step(
            state, xs[t : t + 1], ys[t : t + 1], mask=jnp.array([label]), end=t == 2
        )
    assert (float(info.update_norm) > 0) == any(labels)
    if not any(labels):
        assert_same((state.network, state.opt_state), (before.network, before.opt_state))
