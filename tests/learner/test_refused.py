"""Calls that are refused, and calls without a label: what they leave of the state."""

import operator
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from gradients import assert_same
from tiers import fast

import foretrace as ft
from foretrace._credit import blocks

pytestmark = pytest.mark.usefixtures("standard_promotion")

HUGE = jnp.full((3, 1), 1e150)
NONE = jnp.zeros(3, bool)


def loss(output, y):
    """Half the squared error, and no number for an error of more than a million."""
    error = ft.losses.squared_error(output, y)
    return jnp.where(error > 1e12, jnp.nan, error)


def make_network(cell="lru", depth=2, **options):
    key = jax.random.key(0)
    return ft.Network(2, 1, model_size=4, depth=depth, cell=CELLS[cell], key=key, **options)


def make_learner(network=None, **options):
    options = {"rule": ft.ONLINE, "optimizer": optax.sgd(0.1), "loss": loss} | options
    network = make_network() if network is None else network
    return ft.Learner(network, train_encoder=True, **options)


def data(*front, seed=1):
    keys = jax.random.split(jax.random.key(seed))
    return jax.random.normal(keys[0], (*front, 2)), jax.random.normal(keys[1], (*front, 1))


def is_finite(tree):
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def overflowing(**options):
    """Return a learner whose derivative by a weight overflows at an input whose state does not."""
    network = make_network("rglru", 1, norm="none")
    cell = network.blocks.cell
    gates = (jnp.zeros_like(cell.W_a), jnp.zeros_like(cell.W_x), jnp.full_like(cell.b_x, -665.0))
    where = operator.attrgetter(*(f"blocks.cell.{name}" for name in ("W_a", "W_x", "b_x")))
    return make_learner(eqx.tree_at(where, network, gates), optimizer=optax.sgd(0.0), **options)


def of_classes():
    network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.GRU.factory(), key=jax.random.key(0))
    return make_learner(network, loss=ft.losses.softmax_cross_entropy, rule=ft.RTRL)


def of_modules():
    cells = (ft.SetReset.factory(state_size=2),)
    network = ft.ModuleNetwork(2, 1, cells=cells, key=jax.random.key(0))
    options = {"optimizer": ft.kalman(warmup=0), "head": ft.heads.least_squares()}
    return make_learner(network, loss=ft.losses.squared_error, **options)


def _breaking(updates, params):
    return jax.tree.map(lambda u: jnp.where(jnp.abs(u) > 1e3, jnp.inf, -0.1 * u), updates)


BREAKING = optax.stateless(_breaking)
"""Gradient descent, with an infinite update where a gradient is large."""
DEEP = ft.ONLINE.with_depth(1)
OVERFLOW = {"x": jnp.full((3, 2), 1e300), "mask": NONE}
CASES = {
    "loss": (lambda: make_learner(optimizer=optax.adam(0.1)), {"y": HUGE}),
    "update": (
        lambda: make_learner(loss=ft.losses.squared_error, optimizer=BREAKING),
        {"y": HUGE},
    ),
    "a class": (of_classes, {"y": jnp.array([0, 3, 0])}),
    "a row's weight": (of_modules, {"mask": jnp.array([1, -0.5, 1])}),
    "sensitivities": (overflowing, OVERFLOW),
    "sensitivities in place": (lambda: overflowing(rule=DEEP), OVERFLOW),
    "loss, in place": (lambda: make_learner(rule=DEEP), {"y": HUGE}),
}


@pytest.mark.parametrize("name", fast(list(CASES), 5))
def test_a_refused_call_leaves_the_state_as_it_was(name, monkeypatch):
    """Compiled, where no check sees the values; the next call is accepted."""
    make, wrong = CASES[name]
    if "in place" in name:
        monkeypatch.setattr(blocks, "AT_ONCE", 0)
    learner = make()
    xs, ys = data(3)
    fine = {"x": xs, "y": jnp.array([0, 1, 2]) if make is of_classes else ys, "mask": ~NONE}
    fine["mask"] = fine["mask"].astype(float)
    step = jax.jit(lambda state, arguments: learner.step(state, **arguments))
    state, info = step(learner.init(), fine)
    assert info.accepted
    after, info = step(state, {**fine, **{key: jnp.asarray(v) for key, v in wrong.items()}})
    assert not info.accepted and float(info.update_norm) == 0 and int(after.skipped) == 1
    want = state.carry
    if name == "sensitivities in place":  # overwritten, so that they begin anew
        want = want._replace(e=jax.tree.map(jnp.zeros_like, want.e))
    assert_same(after, state._replace(skipped=after.skipped, carry=want))
    if wrong is OVERFLOW:
        assert_same(learner.predict(state, wrong["x"])[1], after)
    assert step(after, fine)[1].accepted


@pytest.mark.parametrize(("accumulate", "dropout"), fast([(True, 0.0), (False, 0.5)]))
def test_a_refused_call_that_ends_a_sequence_ends_it_all_the_same(accumulate, dropout):
    """The next sequence gets nothing of the ended one: neither its carry nor its gradient."""
    learner = make_learner(
        make_network(dropout=dropout), optimizer=optax.adam(0.1), accumulate=accumulate
    )
    xs, ys = data(6)
    before, _ = learner.step(learner.init(), xs[:3], ys[:3])
    after, info = learner.step(before, xs[3:], HUGE, end=True)
    assert not info.accepted
    # As after a call that was accepted, the next sequence has dropout masks of its own.
    fine, _ = learner.step(before, xs[3:], ys[3:], end=True)
    assert (fine.key != before.key).all()
    start = learner.init()._replace(skipped=after.skipped, step=before.step, key=fine.key)
    assert_same(after, start._replace(network=before.network, opt_state=before.opt_state))


@pytest.mark.parametrize(("streams", "sensitivity"), fast([(2, False), (None, True)]))
def test_a_prediction_that_overflows_leaves_the_carry_of_its_stream_as_it_was(streams, sensitivity):
    learner = make_learner(make_network("linear"), batch_size=streams)
    xs, ys = data(3) if streams is None else data(2, 3)
    state, _ = learner.step(learner.init(), xs, ys)
    _, fine = learner.predict(state, xs, sensitivity=sensitivity)
    assert is_finite(fine.carry) and int(fine.skipped) == 0
    ours = slice(None) if streams is None else (slice(None), 0)
    h = state.carry.h.at[ours].set(1e308)
    blown = state._replace(carry=state.carry._replace(h=h))
    huge = xs.at[ours[-1:] if streams else ours].set(1e308)
    outputs, after = learner.predict(blown, huge, sensitivity=sensitivity)
    assert not is_finite(outputs), "this input was to overflow"
    want = blown.carry
    if not sensitivity:
        want = want._replace(e=jax.tree.map(jnp.zeros_like, want.e))
    if streams is not None:
        want = jax.tree.map(lambda old, new: old.at[:, 1].set(new[:, 1]), want, fine.carry)
    assert int(after.skipped) == 1
    assert_same(after, blown._replace(carry=want, skipped=after.skipped))


OPTIMIZERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(0.1),
    "ft.adamw": ft.adamw(0.1, weight_decay=0.1, steps=10),
    "kalman": ft.kalman(warmup=0),
    "bounded": ft.bounded(optax.adam(0.1)),
}
MODES = {
    "a stream": {},
    "a batch": {"batch_size": 2},
    "accumulate": {"accumulate": True},
    "a head": {"head": ft.heads.least_squares()},
    "whole": {"whole_sequences": True},
}
PAIRS = [*zip(OPTIMIZERS, MODES, strict=True)]


@pytest.mark.parametrize(("name", "mode"), fast(PAIRS, 4))
def test_without_a_label_neither_weights_nor_optimiser_move(name, mode):
    options = {"optimizer": OPTIMIZERS[name], "loss": ft.losses.squared_error} | MODES[mode]
    learner = make_learner(make_network("mingru", 1), **options)
    front = (2, 3) if mode == "a batch" else (3,)
    xs, ys = data(*front)
    end = learner.accumulate
    before, _ = learner.step(learner.init(), xs, ys, end=end)
    for none in (jnp.zeros(front, bool), jnp.zeros(front)):
        after, info = learner.step(before, xs, ys, mask=none, end=end)
        assert info.accepted and float(info.loss) == float(info.update_norm) == 0
        kept = after._replace(carry=before.carry, step=before.step, key=before.key)
        assert_same(kept, before)
        assert int(after.step) == int(before.step) + 1
    if after.carry is not None and not end:
        np.testing.assert_allclose(
            after.carry.h, learner.predict(before, xs)[1].carry.h, atol=1e-12
        )
    one = jnp.zeros(front, bool).at[..., -1].set(True)
    if mode == "a batch":
        one = one.at[0].set(False)
    learned, info = learner.step(before, xs, ys, mask=one, end=end)
    assert float(info.update_norm) > 0


@cache
def sequences():
    optimizer = optax.sgd(0.1, momentum=0.9)
    return make_learner(make_network("mingru", 1), optimizer=optimizer, accumulate=True)


@pytest.mark.parametrize("labels", [(False,) * 3, (False, True, False)])
def test_a_sequence_learns_if_any_of_its_chunks_has_a_label(labels):
    """A last chunk without labels still applies the sum of the chunks before it."""
    learner = sequences()
    xs, ys = data(3)
    state, _ = learner.step(learner.init(), xs, ys, end=True)
    before = state
    for t, label in enumerate(labels):
        part, mask = slice(t, t + 1), jnp.array([label])
        state, info = learner.step(state, xs[part], ys[part], mask=mask, end=t == 2)
    assert (float(info.update_norm) > 0) == any(labels)
    if not any(labels):
        assert_same((state.network, state.opt_state), (before.network, before.opt_state))
