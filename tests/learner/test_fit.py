"""`fit` trains on arrays, `run` on an iterable; their errors name the fault."""

from functools import partial

import gradients
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import apart

import foretrace as ft

pytestmark = pytest.mark.usefixtures("standard_promotion")


XS = jnp.asarray(np.random.default_rng(1).normal(size=(12, 5, 1)))
LOSS = ft.losses.squared_error


make_network = partial(gradients.make_network, "mingru", inputs=1, outputs=1)


def fitted(ys, network=None, **options):
    options = {"loss": LOSS, "progress": False, "batch_size": 4} | options
    network = make_network(depth=1) if network is None else network
    return ft.fit(network, XS, ys, key=jax.random.key(2), **options)


@pytest.mark.full
def test_the_loss_falls_and_the_best_network_comes_back():
    found = fitted(0.5 * XS, epochs=8, validation=0.25, optimizer=optax.adam(1e-2))
    assert found.losses[-1] < 0.5 * found.losses[0]
    assert len(found.validation_losses) == 8
    assert min(found.validation_losses) < found.validation_losses[0]


def test_whole_sequences_are_learned_by_backpropagation_through_time():
    """Also in a layer below another one, where the online rule is not exact (`tests/laws`)."""
    network = make_network(depth=2)
    grads = ft.gradient(network, None, XS, XS, rule=ft.BPTT, loss=LOSS, mean_loss=True)[1]
    want = jax.tree.map(lambda p, grad: np.asarray(p) - 0.1 * np.asarray(grad), network, grads)
    options = {"optimizer": optax.sgd(0.1), "epochs": 1, "batch_size": 12, "validation": 0}
    assert apart(fitted(XS, network=network, **options).network, want) < 1e-10


@pytest.mark.full
def test_training_stops_after_patience():
    # Steps of zero length: the validation loss never falls below that of the first epoch.
    found = fitted(XS, epochs=50, patience=2, optimizer=optax.sgd(0.0))
    assert len(found.losses) == 3


def test_run_is_step_after_step():
    learner = ft.Learner(make_network(depth=1), rule=ft.ONLINE, optimizer=optax.sgd(0.1), loss=LOSS)
    rows = [(x, x) for x in XS[0]]
    *_, (state, info) = learner.run(learner.init(), rows)
    want = learner.init()
    for x, y in rows:
        want, found = learner.step(want, x[None], y[None])
    assert int(state.step) == 5 and float(info.loss) == float(found.loss)
    assert apart(state.network, want.network) == 0


@pytest.mark.full
def test_a_validation_loss_that_is_not_finite_is_an_error():
    # The loss is finite on the one sequence that is trained on, and NaN on some of the eleven
    # others.
    def loss(output, y):
        return jnp.where(y[0] > 5, jnp.nan, LOSS(output, y))

    with pytest.raises(ValueError, match="validation loss of epoch 1 is nan"):
        fitted(XS.at[6:].set(10.0), loss=loss, validation=0.99, epochs=1)


def test_an_update_that_is_refused_is_not_passed_over():
    ys = XS.at[0].set(1e200)
    with pytest.warns(RuntimeWarning, match=r"fit: 1 of 3 updates of epoch 1 were refused"):
        found = fitted(ys, validation=0, epochs=1)
    assert np.isfinite(found.losses).all()


def test_targets_of_sequences_may_have_as_many_numbers_as_there_are_steps():
    network = ft.Network(
        1, 5, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(1)
    )
    ys = jnp.cumsum(XS[..., 0], axis=1)
    one = fitted(ys, network=network, epochs=1)  # squared_error takes five numbers for five
    assert one.losses == fitted(ys, network=network, epochs=1, last=True).losses

    def broad(output, y):
        return ((output - y) ** 2).sum()

    at_steps, at_end = (
        fitted(ys, network=network, epochs=1, loss=broad, last=last).losses for last in (None, True)
    )
    assert at_steps != at_end
