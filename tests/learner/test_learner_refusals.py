"""Refusals of the room: a call, the kind of its error, and the words that name the fault."""

import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import make_network
from tiers import fast

import foretrace as ft

pytestmark = pytest.mark.usefixtures("standard_promotion", "without_shape_checks")

KEY = jax.random.key(0)
SQUARED, CROSS = ft.losses.squared_error, ft.losses.softmax_cross_entropy
XS, YS = jnp.ones((3, 2)), jnp.zeros(3, int)
SERIES = jnp.ones((12, 5, 1))
BLOCKS = partial(make_network, "mingru", 1)


def learner(network=None, rows=False, **options):
    """Return a learner of classes, or one of numbers by the second-order step."""
    network = make_network(depth=2) if network is None else network
    options = {"rule": ft.ONLINE, "warn": False} | options
    if rows:
        options = {"head": ft.heads.least_squares()} | options
        optimizer, loss = ft.kalman(), SQUARED
    else:
        optimizer, loss = optax.sgd(0.1), CROSS
    return ft.Learner(network, **{"optimizer": optimizer, "loss": loss} | options)


def modules(outputs=3, **options):
    cells = options.pop("cells", (ft.SetReset.factory(state_size=2),))
    return ft.ModuleNetwork(2, outputs, cells=cells, key=KEY)


def step(one=None, x=XS, y=YS, **arguments):
    one = learner() if one is None else one
    return one.step(jax.eval_shape(one.init), x, y, **arguments)


def fit(ys=SERIES, **options):
    network = ft.Network(1, 1, model_size=2, depth=1, cell=ft.MinGRU.factory(), key=KEY)
    options = {"loss": SQUARED, "progress": False, "key": KEY} | options
    return ft.fit(network, options.pop("xs", SERIES), ys, **options)


def table(values):
    return pytest.importorskip("pandas").DataFrame(values)


REFUSALS = [
    # What a call of a learner is given.
    (lambda: step(x=jnp.zeros((3, 4, 2)), y=jnp.zeros((3, 4), int)), "batch_size=None"),
    (lambda: step(x=jnp.zeros((3, 3))), "the 2 inputs of the network"),
    (lambda: step(y=jnp.zeros(5, int)), "ys has shape (5,)"),
    (lambda: step(mask=jnp.ones(2, bool)), "mask has shape (2,)"),
    (lambda: step(x=XS.at[0].set(jnp.nan)), "xs holds nan"),
    (lambda: step(x=np.zeros((0, 2)), y=np.zeros(0, int)), "at least one step"),
    (lambda: step(y=YS + 3), "ys holds the label 3"),
    (lambda: step(y=YS[0], last=True), "whole_sequences=True"),
    (lambda: step(learner(modules(), True), y=jnp.full((3, 3), jnp.nan)), "y holds nan"),
    (lambda: step(learner(modules(), True), y=jnp.zeros((3, 4))), "squared_error: y has shape"),
    (lambda: step(learner(modules(), True), y=jnp.zeros(3)), "squared_error: y has shape"),
    (
        lambda: step(learner(modules(), True), y=jnp.ones((3, 3)), mask=jnp.array([1, -0.5, 1])),
        "mask holds -0.5 at (1,), expected weights of at least 0",
    ),
    (lambda: learner().init(0), "init(key=0) must be a PRNG key"),
    (lambda: learner().step(make_network(), XS, YS), "state is a Network, expected what init()"),
    (lambda: learner().predict(jax.eval_shape(learner().init), [[1.0, 1.0]]), "xs is a list"),
    # Options of a learner.
    (lambda: learner(accumulate=True, whole_sequences=True), "whole_sequences"),
    (lambda: learner(accumulate=True, mean_loss=True), "mean_loss=True divides"),
    (lambda: learner(segment=3), "Learner(segment=3)"),
    (lambda: learner(segment=0, whole_sequences=True), "Learner(segment=0)"),
    (lambda: learner(batch_size=0), "batch_size=0"),
    (lambda: learner(rule="NONSENSE"), "'NONSENSE' is unknown"),
    (lambda: learner(rule=3), "rule must be a LearningRule or one of"),
    (lambda: learner(optimizer=1e-3), "Learner(optimizer=0.001) must be an Optax optimiser"),
    (lambda: learner(optimizer=ft.adamw), "Learner(optimizer=<function adamw"),
    (lambda: learner(loss="mse"), "loss='mse' must be a function"),
    (lambda: learner("lru"), "Learner(network=str) must be a foretrace.Network"),
    (lambda: learner(head="squares"), "must be a head, such as ft.heads.least_squares"),
    (lambda: learner(make_network("gru"), rule="rtrl(depth=1, modules=2)"), "independent modules"),
    (
        lambda: learner(rule="online(depth=1, modules=2)", whole_sequences=True),
        "on whole sequences nothing is carried",
    ),
    # Options that do not go with rows.
    (lambda: learner(modules(), True, accumulate=True), "accumulate=…) does not go with ft.kalman"),
    (lambda: learner(modules(), True, whole_sequences=True), "whole_sequences"),
    (lambda: learner(modules(), True, mean_loss=True), "mean_loss"),
    (lambda: learner(modules(), True, loss=ft.losses.huber), "use ft.losses.squared_error for"),
    (
        lambda: learner(modules(), True, loss=ft.losses.SoftmaxCrossEntropy(ignore_label=-1)),
        "without a label to ignore",
    ),
    (lambda: learner(modules(), True, rule="online(depth=1)"), "between layers is for ft.Network"),
    (lambda: learner(BLOCKS(dropout=0.5), True), "dropout=0"),
    (lambda: learner(BLOCKS(), True, rule="online(depth=1, modules=2)"), "samples them"),
    # Numbers out of their range.
    (lambda: ft.kalman(prior=0.0), "kalman(prior=0.0) must be a finite number above 0"),
    (lambda: ft.kalman(process_noise=-1.0), "kalman(process_noise=-1.0) must be a finite number"),
    (lambda: ft.kalman(state_correction=0.0), "kalman(state_correction=0.0)"),
    (lambda: ft.heads.least_squares(forget=1.1), "least_squares(forget=1.1)"),
    (lambda: ft.heads.least_squares(prior=0.0), "least_squares(prior=0.0)"),
    (lambda: ft.ModuleNetwork(3, 1, cells=(), key=KEY), "needs at least one"),
    (lambda: ft.adamw(-1.0), "learning_rate"),
    (lambda: ft.adamw(float("nan")), "learning_rate"),
    (lambda: ft.adamw(weight_decay=-0.1), "weight_decay"),
    (lambda: ft.adamw(clip=0.0), "clip"),
    (lambda: ft.adamw(eps=0.0), "eps"),
    (lambda: ft.adamw(steps=10, warmup_steps=10), "warmup_steps"),
    (lambda: ft.bounded(optax.sgd(1.0), 0), "bounded(overshoot=0)"),
    (
        lambda: step(learner(accumulate=True, optimizer=ft.bounded(optax.sgd(1.0))), end=True),
        "accumulate=True, where the loss of the whole sequence is not known",
    ),
    # Arguments of `fit`.
    (lambda: fit(SERIES[:3]), "as many sequences"),
    (lambda: fit(mask=jnp.ones((12, 4), bool)), "mask has shape (12, 4), expected (12, 5)"),
    (lambda: fit(epochs=0), "epochs=0"),
    (lambda: fit(validation=1.0), "validation=1.0"),
    (lambda: fit(validation=0, patience=1), "patience"),
    (lambda: fit(patience=0), "patience=0"),
    (lambda: fit(1e200 * SERIES, validation=0), "updates of epoch 1 were refused, because loss"),
    (
        lambda: fit(xs=table({"a": [1.0], "b": ["x"]})),
        "fit: xs is a DataFrame whose values are not all numbers, expected an array",
    ),
    (lambda: fit(xs=table({"a": [1.0, 2.0]})), "the rows of one table are a stream"),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_the_fault_is_named(call, words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        call()


FOREIGN = {
    "network.blocks.norm.scale is float64[1, 4], expected float64[2, 4]": {
        "network": partial(make_network, depth=1)
    },
    "network.blocks.cell.W_z is missing, expected float64[2, 4, 4]": {},
    "carry.e": {"rule": ft.SPATIAL},
    "carry.h is complex128[2, 2, 3], expected complex128[2, 3]": {"batch_size": 2},
    "opt_state": {"optimizer": optax.adam(0.1)},
    "grads": {"accumulate": True},
    "carry.h is missing": {"whole_sequences": True},
    " has the right arrays, but was made with other options": {
        "network": partial(make_network, depth=2, dropout=0.5)
    },
}


@pytest.mark.parametrize("words", fast(list(FOREIGN), 3))
def test_the_state_of_another_learner_is_named(words):
    options = FOREIGN[words]
    own = learner(make_network("mingru", depth=2)) if "W_z" in words else learner()
    foreign = learner(options["network"]()) if "network" in options else learner(**options)
    state = jax.eval_shape(foreign.init)
    words = re.escape(f"state{words}" if words[0] == " " else f"state.{words}")
    for call in (lambda: own.step(state, XS, YS), lambda: own.predict(state, XS)):
        with pytest.raises(ValueError, match=f"{words}.*init"):
            call()


def test_parameters_of_another_dtype_are_named():
    own = learner()
    narrow = jax.tree.map(lambda p: p.astype(jnp.float32), own.network)
    with pytest.raises(ValueError, match=r"weight is float32\[4, 2\], expected float64\[4, 2\]"):
        own.step(own.init()._replace(network=narrow), XS, YS)


def test_structural_zeros_are_named():
    with pytest.warns(ft.UntrainedParameters, match="nu_log, blocks.cell.theta_log is structural"):
        learner(rule=ft.SPATIAL, warn=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner(rule=ft.SPATIAL)
        learner(warn=True)
