"""Calls that are refused, and calls without a label: what they leave of the state."""

import operator
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import assert_same, filled, make_network, scaled
from tiers import fast

import foretrace as ft
from foretrace._credit import blocks

pytestmark = pytest.mark.usefixtures("standard_promotion")

LARGE, HUGE = (jnp.asarray(np.full((3, 1), size)) for size in (1e5, 1e150))
ALL, NONE = jnp.asarray(np.ones(3)), jnp.asarray(np.zeros(3))


def loss(output, y):
    """Half the squared error, and no number for an error of more than a million."""
    error = ft.losses.squared_error(output, y)
    return jnp.where(error > 1e12, jnp.nan, error)


def make_learner(network=None, **options):
    options = {"rule": ft.ONLINE, "optimizer": optax.sgd(0.1), "loss": loss} | options
    network = make_network(depth=2, outputs=1) if network is None else network
    return ft.Learner(network, train_encoder=True, **options)


def data(*front, seed=1):
    random = np.random.default_rng(seed)
    return (jnp.asarray(random.normal(size=(*front, size))) for size in (2, 1))


def is_finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def _breaking(updates, params):
    return jax.tree.map(lambda u: jnp.where(jnp.abs(u) > 1e3, jnp.inf, 0 * u), updates)


@cache
def overflowing(rule=ft.ONLINE):
    """Return a learner whose derivative by a weight overflows at an input whose state does not.

    Its updates are infinite where a momentum is large, and else zero.
    """
    network = make_network("rglru", 1, outputs=1, norm="none")
    cell = network.blocks.cell
    gates = (0 * cell.W_a, 0 * cell.W_x, 0 * cell.b_x - 665.0)
    where = operator.attrgetter(*(f"blocks.cell.{name}" for name in ("W_a", "W_x", "b_x")))
    optimizer = optax.chain(optax.trace(0.9), optax.stateless(_breaking))
    return make_learner(eqx.tree_at(where, network, gates), optimizer=optimizer, rule=rule)


def of_classes():
    network = make_network("gru", 1)
    return make_learner(network, loss=ft.losses.softmax_cross_entropy, rule=ft.RTRL)


def of_modules():
    cells = (ft.SetReset.factory(state_size=2),)
    network = filled(lambda: ft.ModuleNetwork(2, 1, cells=cells, key=jax.random.key(0)))
    options = {"optimizer": ft.kalman(warmup=0), "head": ft.heads.least_squares()}
    return make_learner(network, loss=ft.losses.squared_error, **options)


@cache
def compiled(make):
    """Return a learner and its compiled step, in which no check sees the values."""
    learner = make()
    return learner, jax.jit(lambda state, arguments: learner.step(state, **arguments))


DEEP = partial(overflowing, ft.ONLINE.with_depth(1))
OVERFLOW = {"x": jnp.asarray(np.full((3, 2), 1e300)), "mask": NONE}
CASES = {
    "loss": (overflowing, {"y": HUGE}),
    "update": (overflowing, {"y": LARGE}),
    "sensitivities": (overflowing, OVERFLOW),
    "a row's weight": (of_modules, {"mask": jnp.array([1, -0.5, 1])}),
    "a class": (of_classes, {"y": jnp.array([0, 3, 0])}),
    "sensitivities in place": (DEEP, OVERFLOW),
    "loss, in place": (DEEP, {"y": HUGE}),
}


@pytest.mark.parametrize("name", fast(list(CASES), 4))
def test_a_refused_call_leaves_the_state_as_it_was(name, monkeypatch):
    """The next call is accepted."""
    make, wrong = CASES[name]
    if "in place" in name:
        monkeypatch.setattr(blocks, "AT_ONCE", 0)
    learner, step = compiled(make)
    xs, ys = data(3)
    fine = {"x": xs, "y": jnp.array([0, 1, 2]) if make is of_classes else ys, "mask": ALL}
    state, info = step(learner.init(), fine)
    assert info.accepted
    after, info = step(state, fine | wrong)
    assert not info.accepted and float(info.update_norm) == 0 and int(after.skipped) == 1
    want = state.carry
    if name == "sensitivities in place":  # overwritten, so that they begin anew
        want = want._replace(e=jax.tree.map(jnp.zeros_like, want.e))
    assert_same(after, state._replace(skipped=after.skipped, carry=want))
    if wrong is OVERFLOW:
        assert_same(learner.predict(state, wrong["x"])[1], after)
    assert step(after, fine)[1].accepted


@cache
def sequences(accumulate=True, dropout=0.0):
    network = make_network("mingru", 1, outputs=1, dropout=dropout)
    return make_learner(network, optimizer=optax.sgd(0.1, momentum=0.9), accumulate=accumulate)


def step_by_step(learner, state, rows, masks=(ALL[:1],), ends=(False,)):
    """Learn rows in chunks of one; return the state and the info of the last."""
    for x, y, mask, end in zip(*rows, masks, ends, strict=True):
        state, info = learner.step(state, x[None], y[None], mask=mask, end=end)
    return state, info


@pytest.mark.parametrize(("accumulate", "dropout"), fast([(True, 0.0), (False, 0.5)]))
def test_a_refused_call_that_ends_a_sequence_ends_it_all_the_same(accumulate, dropout):
    """The next sequence gets nothing of the ended one: neither its carry nor its gradient."""
    learner = sequences(accumulate, dropout)
    xs, ys = data(2)
    before, _ = step_by_step(learner, learner.init(), (xs[:1], ys[:1]))
    after, info = step_by_step(learner, before, (xs[1:], HUGE[:1]), ends=(True,))
    assert not info.accepted
    # As after a call that was accepted, the next sequence has dropout masks of its own.
    fine, _ = step_by_step(learner, before, (xs[1:], ys[1:]), ends=(True,))
    assert (fine.key != before.key).all()
    start = learner.init()._replace(skipped=after.skipped, step=before.step, key=fine.key)
    assert_same(after, start._replace(network=before.network, opt_state=before.opt_state))


@pytest.mark.parametrize("labels", [(False,) * 3, (False, True, False)])
def test_a_sequence_learns_if_any_of_its_chunks_has_a_label(labels):
    """A last chunk without labels still applies the sum of the chunks before it."""
    learner = sequences()
    rows, masks = [*data(3)], jnp.asarray(labels, float)[:, None]
    before, _ = step_by_step(learner, learner.init(), [each[:1] for each in rows], ends=(True,))
    state, info = step_by_step(learner, before, rows, masks, (False, False, True))
    assert (float(info.update_norm) > 0) == any(labels)
    if not any(labels):
        assert_same((state.network, state.opt_state), (before.network, before.opt_state))


@pytest.mark.parametrize(("streams", "sensitivity"), fast([(2, False), (None, True)]))
def test_a_prediction_that_overflows_leaves_the_carry_of_its_stream_as_it_was(streams, sensitivity):
    network = scaled(4.0, make_network("linear", 2, outputs=1))
    learner = make_learner(network, batch_size=streams)
    xs, _ = data(3) if streams is None else data(2, 3)
    state = learner.init()._replace(carry=filled(lambda: learner.init().carry))
    _, fine = learner.predict(state, xs, sensitivity=sensitivity)
    assert is_finite(fine.carry) and int(fine.skipped) == 0
    ours, h, huge = 0 if streams else slice(None), np.array(state.carry.h), np.array(xs)
    h[:, ours], huge[ours] = 1e308, 1e308
    blown = state._replace(carry=state.carry._replace(h=jnp.asarray(h)))
    outputs, after = learner.predict(blown, jnp.asarray(huge), sensitivity=sensitivity)
    assert not is_finite(outputs), "this input was to overflow"
    want = jax.tree.map(np.array, blown.carry)
    if not sensitivity:
        want = want._replace(e=jax.tree.map(np.zeros_like, want.e))
    if streams is not None:
        for old, new in zip(*map(jax.tree.leaves, (want, fine.carry)), strict=True):
            old[:, 1] = np.asarray(new)[:, 1]
    assert int(after.skipped) == 1
    assert_same(after, blown._replace(carry=want, skipped=after.skipped))


LEARNERS = {
    "a stream": {"optimizer": optax.sgd(0.1, momentum=0.9)},
    "a batch": {"optimizer": optax.adam(0.1), "batch_size": 2},
    "accumulate": {"optimizer": ft.adamw(0.1, weight_decay=0.1, steps=10), "accumulate": True},
    "kalman": {"optimizer": ft.kalman(warmup=0), "head": ft.heads.least_squares()},
    "whole": {"optimizer": ft.bounded(optax.adam(0.1)), "whole_sequences": True},
}


@pytest.mark.parametrize("name", fast(list(LEARNERS), 4))
def test_without_a_label_neither_weights_nor_optimiser_move(name):
    network = make_network("mingru", 1, outputs=1)
    learner = make_learner(network, loss=ft.losses.squared_error, **LEARNERS[name])
    front = (2, 3) if name == "a batch" else (3,)
    xs, ys = data(*front)

    def step(state, mask):
        return learner.step(state, xs, ys, mask=jnp.asarray(mask), end=learner.accumulate)

    before, _ = step(learner.init(), np.ones(front))
    for kind in (float, bool) if name == "a stream" else (float,):
        after, info = step(before, np.zeros(front, kind))
        assert info.accepted and float(info.loss) == float(info.update_norm) == 0
        kept = after._replace(carry=before.carry, step=before.step, key=before.key)
        assert_same(kept, before)
        assert int(after.step) == int(before.step) + 1
    one = np.zeros(front)
    one[(1, -1) if name == "a batch" else -1] = 1
    learned, info = step(before, one)
    assert float(info.update_norm) > 0
    if after.carry is not None and not learner.accumulate:
        # The second-order step also corrects the state.
        moved = learner.predict(before, xs)[1] if name == "kalman" else learned
        np.testing.assert_allclose(after.carry.h, moved.carry.h, atol=1e-12)
