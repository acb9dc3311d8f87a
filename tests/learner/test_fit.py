"""`fit` trains on arrays, `run` on an iterable; their errors name the fault."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft

pytestmark = pytest.mark.usefixtures("default_promotion")


def make_network():
    return ft.Network(1, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0))


XS = jax.random.normal(jax.random.key(1), (12, 5, 1))


def fitted(ys, **options):
    options = {
        "loss": ft.losses.squared_error,
        "progress": False,
        "key": jax.random.key(2),
        "batch_size": 4,
    } | options
    return ft.fit(make_network(), XS, ys, **options)


@pytest.mark.full
def test_the_loss_falls_and_the_best_network_comes_back():
    found = fitted(0.5 * XS, epochs=8, validation=0.25, optimizer=optax.adam(1e-2))
    assert found.losses[-1] < 0.5 * found.losses[0]
    assert (
        len(found.validation_losses) == 8
        and min(found.validation_losses) < found.validation_losses[0]
    )


def test_whole_sequences_are_learned_by_backpropagation_through_time():
    """Also in a layer below another one, where the online rule is not exact (`tests/laws`)."""
    network = ft.Network(
        1, 1, model_size=3, depth=2, cell=ft.LRU.factory(state_size=2), key=jax.random.key(0)
    )
    options = {
        "loss": ft.losses.squared_error,
        "optimizer": optax.sgd(0.1),
        "epochs": 1,
        "batch_size": 12,
    }
    options |= {"validation": 0, "progress": False, "key": jax.random.key(2)}
    _, grads, _ = ft.gradient(
        network, None, XS, XS, rule=ft.BPTT, loss=options["loss"], mean_loss=True
    )
    want = jax.tree.map(lambda parameter, grad: parameter - 0.1 * grad, network, grads)

    found = ft.fit(network, XS, XS, **options)
    apart = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), found.network, want)
    assert max(jax.tree.leaves(apart)) < 1e-10


@pytest.mark.full
def test_training_stops_after_patience():
    # Steps of zero length: the validation loss never falls below that of the first epoch.
    found = fitted(XS, epochs=50, patience=2, optimizer=optax.sgd(0.0))
    assert len(found.losses) == 3


@pytest.mark.full
def test_one_target_for_each_sequence_is_that_of_its_last_step():
    there = jnp.arange(5)[None] < jnp.array([3, 5] * 6)[:, None]
    last = there & ~jnp.roll(there, -1, axis=1).at[:, -1].set(False)
    targets = XS[:, 0]
    options = {"validation": 0, "epochs": 1, "optimizer": optax.sgd(0.0)}
    found = fitted(targets, mask=there, **options).losses
    np.testing.assert_allclose(
        found, fitted(jnp.repeat(targets[:, None], 5, 1), mask=last, **options).losses
    )


def test_run_is_step_after_step():
    learner = ft.Learner(
        make_network(), rule=ft.ONLINE, optimizer=optax.sgd(0.1), loss=ft.losses.squared_error
    )
    rows = [(x, x) for x in XS[0]]
    *_, (state, info) = learner.run(learner.init(), rows)
    want = learner.init()
    for x, y in rows:
        want, found = learner.step(want, x[None], y[None])
    assert int(state.step) == 5 and float(info.loss) == float(found.loss)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), state.network, want.network))


@pytest.mark.full
def test_a_validation_loss_that_is_not_finite_is_an_error():
    # The loss is finite on the one sequence that is trained on, and NaN on some of the eleven
    # others.
    def loss(output, y):
        return jnp.where(y[0] > 5, jnp.nan, ft.losses.squared_error(output, y))

    with pytest.raises(ValueError, match="validation loss of epoch 1 is nan"):
        fitted(XS.at[6:].set(10.0), loss=loss, validation=0.99, epochs=1)


def test_an_update_that_is_refused_is_not_passed_over():
    ys = XS.at[0].set(1e200)
    with pytest.warns(RuntimeWarning, match=r"fit: 1 of 3 updates of epoch 1 were refused"):
        found = fitted(ys, validation=0, epochs=1)
    assert np.isfinite(found.losses).all()
