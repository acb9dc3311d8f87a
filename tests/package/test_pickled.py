"""What pickle, joblib, process pools and copies do with public objects: the table of save.md."""

import copy
import pickle
import shutil
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from gradients import assert_same
from learners import make_learner
from tiers import slower

import foretrace as ft
from foretrace import experiment, rl, stream

cloudpickle = pytest.importorskip("cloudpickle")
pytest.importorskip("river")
pytest.importorskip("sktime")
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "save.md").read_text()
TABLE = {
    cells[0]: [cell == "yes" for cell in cells[1:]]
    for line in PAGE.split("| object |")[1].split("\n\n")[0].splitlines()[2:]
    if (cells := [cell.strip() for cell in line.strip("|").split("|")])
}
ROW, STEP = {"x": 1.0}, (jnp.float32(np.ones((1, 3))), jnp.float32(np.ones((1, 1))))
learner = partial(make_learner, outputs=1)


@cache
def agent():
    return rl.Agent(learner().network, rl.ValuePrediction(), rule=ft.ONLINE)


@cache
def estimators():
    few = stream.ModelConfig(experts=("baselines",))
    models = (
        stream.Classifier(model=few),
        stream.Regressor("small"),
        stream.Forecaster(2, model=few),
    )
    for i in range(5):
        for model in models[:2]:
            model.learn_one({"x": float(i)}, i % 2)
        models[2].learn_one(float(i))
    return models


def pipelines():
    from river import preprocessing

    return [preprocessing.StandardScaler() | estimators()[1]]


def sktime():
    import pandas as pd

    few = stream.ModelConfig(experts=("baselines",))
    return [stream.SktimeForecaster(2, model=few).fit(pd.Series([1.0, 2.0, 4.0] * 4))]


def native():
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return [ft.native(learner())]


def networks():
    key = jax.random.key(0)
    own = ft.FromModule.factory(module=make_module, call=call_module, state_size=3)
    cell = CELLS["lru"](3, key=key)
    return [learner().network, ft.ModuleNetwork(2, 1, key=key), cell, own, *CELLS.values()]


def make_module(size, *, key):
    return {"w": jax.random.normal(key, (3, size))}


def call_module(module, h, x):
    return jnp.tanh(module["w"] @ x + h)


def states():
    state, info = learner().step(learner().init(), *STEP)
    return [state, info, state.carry, agent().init()]


OBJECTS = {
    "`Classifier`, `Regressor`, `Forecaster`": estimators,
    "pipeline of river with an estimator": pipelines,
    "`SktimeForecaster`": sktime,
    "`Network`, `ModuleNetwork`, cell, `factory` of a cell": networks,
    "`LearnerState`, `Info`, `Carry`, `AgentState`": states,
    "`LearningRule`, loss, head, `ft.kalman`": lambda: [
        *(ft.ONLINE, ft.HYBRID.with_depth(2), ft.losses.squared_error),
        *(ft.losses.SoftmaxCrossEntropy(ignore_label=-1), ft.heads.least_squares(), ft.kalman()),
    ],
    "task, environment, configuration of a command": lambda: [
        *(experiment.Copy(), experiment.Config(), rl.RLConfig(), rl.MemoryChain(length=2)),
        *(stream.ModelConfig("small"), stream.StreamConfig("a.csv", target="y")),
    ],
    "`ft.adamw`, Optax optimiser": lambda: [ft.adamw(1e-3), optax.adam(1e-3)],
    "`Learner`, `Agent`": lambda: [learner(), learner(optimizer=ft.kalman()), agent()],
    "`ft.native`": native,
}


OF_STREAMS = list(OBJECTS)[:3]
"""Objects that `tests/stream` pickles in the fast tier."""


@cache
def made(row):
    return OBJECTS[row]()


def answer(one):
    """Return an object's answer after it has learned one thing more; without, its parts."""
    if isinstance(one, stream.SktimeForecaster):
        return one.update(one.predict([1])).predict([1, 2])
    if isinstance(one, stream.Forecaster):
        one.learn_one(9.0)
        return one.forecast(2)
    if hasattr(one, "learn_one"):
        one.learn_one(ROW, 1)
        return one.predict_one(ROW)
    if isinstance(one, ft.Learner):
        return one.step(one.init(), *STEP)[1]
    if isinstance(one, ft.LearnerState):
        return learner().step(one, *STEP)
    if callable(one) and getattr(one, "func", None) is not None:
        return jax.tree.map(str, jax.eval_shape(partial(one, 3), key=jax.random.key(1)))
    return one


def assert_equal(a, b):
    assert type(a) is type(b)
    pairs = zip(jax.tree.leaves(answer(a)), jax.tree.leaves(answer(b)), strict=True)
    for one, other in pairs:
        if isinstance(one, jax.Array | np.ndarray):
            assert_same(one, other)
        elif isinstance(one, int | float | str):
            assert one == other


WAYS = {
    "pickle": (0, lambda one: pickle.loads(pickle.dumps(one))),
    "deepcopy": (2, copy.deepcopy),
    "cloudpickle": (1, lambda one: pickle.loads(cloudpickle.dumps(one))),
}


@pytest.mark.parametrize("way", slower(WAYS, ("deepcopy", "cloudpickle")))
@pytest.mark.parametrize("row", slower(TABLE, OF_STREAMS))
def test_objects_are_saved_as_the_table_says(row, way):
    column, sent = WAYS[way]
    for one in made(row):
        if TABLE[row][column]:
            assert_equal(one, sent(one))
            continue
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught:
            sent(one)
        if isinstance(one, ft.Native):
            assert "pickle native.state(), and make it again" in str(caught.value)


def test_the_table_names_every_kind_of_object():
    assert list(TABLE) == list(OBJECTS)
