"""The learner: effects of a call, and all ways of feeding it agree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import LOSS, apart, make_network
from tiers import fast

import foretrace as ft

pytestmark = pytest.mark.usefixtures("standard_promotion")


DEEP = "online(depth=2)"


def make_learner(rule=ft.ONLINE, optimizer=None, network=None, **options):
    network = make_network(depth=2) if network is None else network
    # The gradient is applied as it is: what is held, and when, has a test of its own.
    options = {"train_encoder": True} | options
    return ft.Learner(
        network, rule=rule, optimizer=optimizer or optax.sgd(0.1), loss=LOSS, **options
    )


def data(*front, seed=1):
    random = np.random.default_rng(seed)
    return jnp.asarray(random.normal(size=(*front, 2))), jnp.asarray(random.integers(0, 3, front))


@pytest.mark.parametrize(
    ("rule", "exact", "dropout"),
    fast([(ft.ONLINE, ft.ONLINE, 0.0), (ft.ONLINE, ft.ONLINE, 0.5), (DEEP, ft.BPTT, 0.0)]),
)
def test_accumulated_chunks_make_the_update_of_the_whole_sequence(rule, exact, dropout):
    """With one dropout mask for all of them; with credit in depth it is the exact one."""
    xs, ys = data(6)
    learner = make_learner(rule, accumulate=True, network=make_network(depth=2, dropout=dropout))
    state = learner.init()
    for i in range(0, 6, 2):
        state, info = learner.step(state, xs[i : i + 2], ys[i : i + 2], end=i == 4)
        assert (float(info.update_norm) > 0) == (i == 4)
    assert apart((state.carry, state.grads), (learner.init().carry, learner.init().grads)) == 0
    whole = make_learner(exact, whole_sequences=True)
    plain, _ = whole.step(whole.init(), xs, ys)
    assert (apart(state.network, plain.network) < 1e-10) == (dropout == 0)
    if dropout:
        expected, _ = learner.step(learner.init(), xs, ys, end=True)
        assert apart(state.network, expected.network) < 1e-12


@pytest.mark.parametrize(
    ("rule", "steps", "options", "trained"),
    fast(
        [
            (ft.ONLINE, 2, {}, False),
            (ft.HYBRID, 2, {}, True),
            (ft.HYBRID, 1, {}, False),
            (ft.HYBRID, 2, {"train_encoder": False}, False),
            (ft.ONLINE, 2, {"whole_sequences": True}, True),
            (ft.ONLINE, 2, {"accumulate": True}, True),
            (ft.ONLINE.with_depth(2), 2, {}, True),
        ],
        number=2,
    ),
)
def test_what_gets_no_error_of_later_steps_is_held(rule, steps, options, trained):
    learner = make_learner(
        rule, ft.adamw(0.1, weight_decay=0.1), **{"train_encoder": None} | options
    )
    state = learner.init()
    # Twice: the first step of a stream has no past.
    for i in range(2):
        xs, ys = data(steps, seed=i)
        state, info = learner.step(state, xs, ys, end=learner.accumulate)
    pair = state.network, learner.network
    moved = jax.tree.map(lambda p, q: bool(np.any(np.asarray(p) != np.asarray(q))), *pair)
    assert info.accepted and {*jax.tree.leaves((moved.encoder, moved.blocks.norm))} == {trained}
    assert moved.decoder.linear.weight and moved.blocks.cell.B_re and moved.blocks.glu.linear.weight


@pytest.mark.parametrize("rule", fast(["online", "online(depth=1)", "online(depth=1, modules=1)"]))
def test_predict_advances_the_carry_as_learning_does_and_learns_nothing(rule):
    xs, ys = data(4)
    learner = make_learner(rule, optimizer=optax.sgd(0.0))
    outputs, predicted = learner.predict(learner.init(), xs)
    learned, info = learner.step(learner.init(), xs, ys)
    assert apart(outputs, info.outputs) < 1e-12
    assert apart(predicted.carry, learned.carry) < 1e-12
    assert apart(predicted.network, learner.network) == 0
    cheap, after = learner.predict(learner.init(), xs, sensitivity=False)
    assert apart(cheap, outputs) < 1e-12
    assert apart(after.carry._replace(e=None), predicted.carry._replace(e=None)) < 1e-12
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(after.carry.e))


def test_predict_of_whole_sequences_carries_nothing():
    xs, _ = data(4)
    learner = make_learner(whole_sequences=True)
    outputs, state = learner.predict(learner.init(), xs)
    assert state.carry is None
    assert apart(outputs, ft.forward(learner.network, None, xs)[0]) < 1e-12


def test_a_state_with_a_key_of_another_kind_is_its_own():
    learner = make_learner()
    assert learner.step(learner.init(jax.random.key(0, impl="rbg")), *data(4))[1].accepted


def test_a_state_may_be_donated_from_the_first_on():
    network, key = make_network("gru", depth=1), jax.random.key(3)
    learner = make_learner(optimizer=ft.adamw(), network=network)
    state = learner.init(key)
    for leaf in jax.tree.leaves(state):
        leaf.delete()  # what a program does to its donated arguments
    assert not any(leaf.is_deleted() for leaf in (*jax.tree.leaves(network), key))
    assert int(learner.init(key).step) == 0


def test_a_mesh_of_jax_is_taken_as_it_comes():
    (xs, ys), found = data(2, 3), []
    for mesh in (None, jax.make_mesh((1,), ("b",))):
        learner = make_learner(batch_size=2, mesh=mesh)
        found.append(learner.step(learner.init(), xs, ys)[0].network)
    assert apart(*found) < 1e-6
