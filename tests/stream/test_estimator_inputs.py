"""Inputs of estimators: nothing is dropped in silence, and refused ones change nothing."""

import itertools
import math
import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from streams import FEW

from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.python import river as stream

pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")
ROW = {"who": "c", "x": 1.0, "new": "red"}
X = pd.DataFrame({"who": ["a", "b", "a"], "x": [0.5, 1.5, 2.5]})
EYE = np.eye(3)
KINDS = {
    "classifier": stream.Classifier,
    "regressor": stream.Regressor,
    "forecaster": lambda **options: stream.Forecaster(2, **options),
    "of members": lambda **options: stream.Regressor(member="who", **options),
}


def learned(kind, rows):
    """Return a model after some rows, of two members if it has any."""
    model = KINDS[kind](model=FEW, features=2)
    for i in range(rows):
        x = {"x": float(i)} | ({"who": "ab"[i % 2]} if kind == "of members" else {})
        model.learn_one(i % 2, x) if kind == "forecaster" else model.learn_one(x, i % 2)
    return model


def objects(y):
    """Return two good targets and another one."""
    return pd.Series([0, 1, y], dtype=object)


NUMBER = "expected a number, or None or NaN where it is missing"
CLASS = "which cannot be hashed"
NO_NAME = "the row has no 'who'|'who'.*cannot be hashed"
REFUSED = [
    ("classifier", "learn_one", (ROW, ([1],)), f"^y[= ].*{CLASS}"),
    ("classifier", "learn_many", (X, objects({1})), rf"^y\[2\][= ].*{CLASS}"),
    *(
        ("regressor", "learn_one", (ROW, y), f"^y[= ].*{NUMBER}")
        for y in ("2%", pd.Timestamp("2024"), np.ones(2), 1j)
    ),
    ("regressor", "learn_many", (X, objects("2,5")), rf"^y\[2\][= ].*{NUMBER}"),
    ("regressor", "predict_one", ([1.0],), "x is a list, expected a dictionary"),
    ("regressor", "learn_many", (X, [1, 0]), "X has 3 rows and y 2; give one"),
    ("regressor", "partial_fit", (EYE, [1, 0, 1, 0]), "X has 3 rows and y 4; give one"),
    ("regressor", "partial_fit", (EYE, np.ones((3, 2))), r"shape \(3, 2\), expected one colu"),
    ("regressor", "partial_fit", (EYE, "abc"), "y is .*, expected one target for each row"),
    ("regressor", "partial_fit", ([1.0, 2.0], [1, 0]), r"X has the shape \(2,\), expected rows"),
    ("regressor", "partial_fit", (sparse.csr_array(EYE), [0, 1, 0]), "^X is a sparse .*toarray"),
    ("regressor", "learn_many", (EYE, sparse.dok_matrix(EYE)), "^y is a sparse .*toarray"),
    ("regressor", "predict_many", (sparse.csr_matrix(EYE),), "^X is a sparse .*toarray"),
    ("forecaster", "learn_one", ("red", ROW), f"^y[= ].*{NUMBER}"),
    ("forecaster", "forecast", (3,), "steps 1 to 2 are learned"),
    ("forecaster", "forecast_interval", (1.5,), "steps 1 to 2 are learned"),
    ("of members", "learn_one", ({"who": pd.NA, "x": 1.0}, 1), NO_NAME),
    ("of members", "learn_one", ({"who": [1], "x": 1.0}, 1), NO_NAME),
    ("of members", "learn_many", (pd.DataFrame([ROW, {"x": 1.0}]), [0, 1]), NO_NAME),
]


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_names_what_it_was_given_and_changes_nothing(kind, rows):
    model = learned(kind, rows)
    before = pickle.dumps(model)
    for of, method, arguments, words in REFUSED:
        if of == kind:
            with pytest.raises((ValueError, TypeError), match=words):
                getattr(model, method)(*arguments)
            assert pickle.dumps(model) == before, (method, arguments)


VALUES = np.array([0.0, 3.0, 1.0, 2.0, math.nan, 1.0])
SHAPES = {
    "generator": lambda y: (value for value in y),
    "jax": lambda y: jnp.asarray(y)[:, None],
    "objects": lambda y: np.array([np.array([value]) for value in y], object),
    "series": pd.Series,
    "frame": lambda y: pd.DataFrame({"target": y}),
    "nullable": lambda y: pd.Series(y).astype("Float64"),
    "masked": lambda y: np.ma.array(np.nan_to_num(y, nan=7.0), mask=np.isnan(y)),
}


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_rows_and_targets_of_any_shape_teach_the_same(kind):
    """Row by row, by an array, a frame, or a frame with sparse columns."""
    rows = np.arange(6.0)[:, None] % 4
    frame, one = pd.DataFrame(rows, columns=["a"]), KINDS[kind](model=FEW, features=2)
    for x, value in zip(frame.to_dict("records"), VALUES, strict=True):
        one.learn_one(x, None if math.isnan(value) else np.array([value]))
    expected = one.predict_many(frame).tolist()
    for name, y in SHAPES.items():
        array, many = (KINDS[kind](model=FEW, features=2) for _ in range(2))
        assert array.partial_fit(rows, y(VALUES)).predict(rows).tolist() == expected, name
        many.learn_many(frame.astype("Sparse[float]") if name == "frame" else frame, y(VALUES))
        assert many.predict_many(frame).tolist() == expected, name


def test_no_feature_of_the_first_row_is_dropped():
    """As many numbers and texts as there may be, some without a value yet: no warning comes."""
    kinds = itertools.cycle([1.0, "red", None, pd.Timestamp("2024-05-01"), math.nan])
    row = {f"f{i}": value for i, value in zip(range(80), kinds, strict=False)}
    row |= {"later number": None, "later text": None}
    model = stream.Classifier(model=FEW)
    model.learn_one(row, 1.0)
    later = {"later number": 2.0, "later text": "red"} | {f"f{i}": "red" for i in (2, 7, 12)}
    model.learn_one(row | later, 1.0)
    assert {*model._intake.encoder.columns} == {*row}
    assert model._get_params()["features"] is None and model.clone()._intake is None


@pytest.mark.filterwarnings("ignore:.*no prediction is below at_least=1")
def test_no_number_that_is_predicted_lies_below_the_bound():
    model = stream.Forecaster(1, model=FEW, features=2, at_least=1)
    for i in range(9):
        model.learn_one((i % 3) / 9, {"x": 1.0})
    assert model.forecast(1)[0] == model.forecast_interval(1, 0.8)[0][0] == 1


def test_a_text_of_the_first_row_is_learned_by_its_words():
    draw, right = np.random.default_rng(0), []
    model = stream.Classifier(model=ModelConfig(experts=("row", "words")), words=16)
    for i in draw.integers(0, 2, 150):
        text = " ".join(draw.permutation([*"abcdefgh", "up" if i % 2 else "down"]))
        right.append(model.predict_one({"text": text, "who": 1}) == ("up" in text))
        model.learn_one({"text": text, "who": 1}, "up" in text)
    assert np.mean(right[50:]) > 0.95


def test_a_later_feature_without_room_is_told_once():
    model = stream.Regressor(features=2, model=FEW)
    model.learn_one({"a": 1.0}, 1.0)
    words = r"Regressor: 'c' finds no room in 2 inputs.*raise `features`"
    with pytest.warns(UserWarning, match=words) as caught:
        model.learn_one({"a": 1.0, "c": 2.0}, 1.0)
    assert [record.filename for record in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"c": 2.0, "d": 1.0}, 1.0)
        pickle.loads(pickle.dumps(model)).learn_one({"c": 2.0}, 1.0)


def test_batches_make_room_for_their_classes():
    X, y = np.zeros((20, 1)), np.arange(20)
    assert len(stream.Classifier(model=FEW).partial_fit(X, y).predict_proba_one({0: 0.0})) == 20
    announced = stream.Classifier(model=FEW).partial_fit(X[:2], y[:2], classes=y)
    assert len(announced.partial_fit(X[2:], y[2:]).predict_proba_one({0: 0.0})) == 20


@pytest.mark.parametrize("kind", [stream.Classifier, stream.Regressor, stream.Forecaster])
def test_a_clone_has_the_options_of_the_model_or_other_ones(kind):
    given = ModelConfig("small", cell="gru", rule="rtrl", depth=1)
    model, other = kind(model=given, features=4), ModelConfig(experts=("row",))
    assert model.clone()._get_params() == model._get_params()
    assert model._get_params()["model"] == given and model._get_params()["size"] is None
    assert model.clone({"model": other}).model == other and model.model == given
    assert model.clone({"model": None, "size": "auto"})._get_params()["size"] == "auto"
