"""Inputs of estimators: nothing is dropped in silence, and refused ones change nothing."""

import contextlib
import itertools
import math
import pickle
import warnings

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from streams import FEW

from foretrace.stream import _river as stream
from foretrace.stream._model_config import ModelConfig

pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")
KINDS = {
    "classifier": stream.Classifier,
    "regressor": stream.Regressor,
    "forecaster": lambda **options: stream.Forecaster(2, **options),
}
WITH_ROWS = ("classifier", "regressor")


def learned(kind, rows, **options):
    """Return a model after some rows of two members."""
    model = KINDS[kind](model=FEW, **options)
    for i in range(rows):
        x = {"who": "ab"[i % 2], "x": float(i)}
        model.learn_one(i % 2, x) if kind == "forecaster" else model.learn_one(x, i % 2)
    return model


ROW = {"who": "c", "x": 1.0, "new": "red"}
X = pd.DataFrame({"who": ["a", "b", "a"], "x": [0.5, 1.5, 2.5]})
NO_NUMBERS = ["2%", "2,5", "1_000", "red", pd.Timestamp("2024"), np.datetime64("2024")]
NO_NUMBERS += [[1.0], np.ones(2), 1j, {}]
NO_CLASSES = [[1], {"a": 1}, {1}, np.ones(2), ([1],)]
NO_MEMBERS = [None, math.nan, pd.NA, pd.NaT, np.float32("nan"), [1], np.ones(2)]
EYE, TWO = np.eye(3), pd.DataFrame({"a": [1, 0, 1], "b": 1})
SPARSE = [
    getattr(sparse, f"{form}_{kind}") for form in ("csr", "dok") for kind in ("array", "matrix")
]
NUMBER = "expected a number, or None or NaN where it is missing"
CLASS = "which cannot be hashed"


def refused():
    """Yield kind, column of members, method, arguments, and words of the message."""
    for kind, bad, words in (("classifier", NO_CLASSES, CLASS), ("regressor", NO_NUMBERS, NUMBER)):
        for y, member in itertools.product(bad, (None, "who")):
            yield kind, member, "learn_one", (ROW, y), f"^y[= ].*{words}"
            many = (X, pd.Series([0, 1, y], dtype=object))
            yield kind, member, "learn_many", many, rf"^y\[2\][= ].*{words}"
    for kind, name in itertools.product(WITH_ROWS, NO_MEMBERS):
        row = {"who": name, "x": 1.0}
        words = "the row has no 'who'|'who'.*cannot be hashed"
        yield kind, "who", "learn_one", (row, 1), words
        yield kind, "who", "predict_one", (row,), words
        yield kind, "who", "learn_many", (pd.DataFrame([ROW, row]), [0, 1]), words
    for kind in WITH_ROWS:
        yield kind, None, "learn_one", ([1.0], 1), "x is a list, expected a dictionary"
        yield kind, None, "predict_one", ([1.0],), "x is a list, expected a dictionary"
        for method, rows in (("learn_many", X), ("partial_fit", EYE)):
            yield kind, None, method, (rows, [1, 0]), "X has 3 rows and y 2; give one"
            yield kind, None, method, (rows, [1, 0, 1, 0]), "X has 3 rows and y 4; give one"
            yield kind, None, method, (rows, []), "X has 3 rows and y 0; give one"
            for y in (np.ones((3, 2)), TWO):
                yield kind, None, method, (rows, y), r"y has the shape \(3, 2\), expected one colu"
            for y in (1, "abc"):
                yield kind, None, method, (rows, y), "y is .*, expected one target for each row"
            yield kind, None, method, ([1.0, 2.0], [1, 0]), r"X has the shape \(2,\), expected rows"
    for y in NO_NUMBERS:
        yield "forecaster", None, "learn_one", (y, ROW), f"^y[= ].*{NUMBER}"
    for horizon, name in itertools.product((-1, 0, 3, 1.5, None), ("", "_interval")):
        yield "forecaster", None, f"forecast{name}", (horizon,), "steps 1 to 2 are learned"
    yield "forecaster", "who", "learn_one", (1.0, {"who": pd.NA}), "the row has no 'who'"
    yield "forecaster", "who", "learn_one", (1.0,), "the row has no 'who'"
    for made in SPARSE:
        matrix, words = (
            made(EYE),
            rf"^[Xy] is a sparse {made.__name__} of shape \(3, \d\), .*toarray",
        )
        for method, arguments in {
            "partial_fit": (matrix, [0, 1, 0]),
            "learn_many": (EYE, matrix),
            "predict": (matrix,),
            "predict_many": (matrix,),
        }.items():
            yield "regressor", None, method, arguments, words


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("member", [None, "who"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_names_what_it_was_given_and_changes_nothing(kind, member, rows):
    model = learned(kind, rows, member=member)
    before = pickle.dumps(model)
    for *of, method, arguments, words in refused():
        # Before the first row nothing is known, whoever asks.
        if of != [kind, member] or (rows == 0 and of[1] and method == "predict_one"):
            continue
        with pytest.raises((ValueError, TypeError), match=words) as caught:
            getattr(model, method)(*arguments)
        assert len(str(caught.value)) > 20 and "ambiguous" not in str(caught.value)
        assert pickle.dumps(model) == before, (method, arguments)


VALUES = np.array([0.0, 3.0, 1.0, 2.0, math.nan, 1.0])
SHAPES = {
    "column": lambda y: y.reshape(-1, 1),
    "list": lambda y: y.tolist(),
    "nested list": lambda y: y.reshape(-1, 1).tolist(),
    "generator": lambda y: (value for value in y),
    "float32": lambda y: y.astype(np.float32),
    "jax": lambda y: jnp.asarray(y)[:, None],
    "objects": lambda y: np.array([np.array([value]) for value in y], object),
    "series": pd.Series,
    "other index": lambda y: pd.Series(y, index=range(100, 100 + len(y))),
    "frame": lambda y: pd.DataFrame({"target": y}),
    "nullable": lambda y: pd.Series(y).astype("Float64"),
    "masked": lambda y: np.ma.array(np.nan_to_num(y, nan=7.0), mask=np.isnan(y)),
    "nothing": lambda y: [None if value != value else value for value in y],
}


@pytest.mark.parametrize("kind", WITH_ROWS)
def test_rows_and_targets_of_any_shape_teach_the_same(kind):
    """Row by row, by an array, a frame, or a frame with sparse columns."""
    rows = np.arange(12.0).reshape(6, 2) % 5
    frame, one = pd.DataFrame(rows, columns=["a", "b"]), KINDS[kind](model=FEW)
    for x, value in zip(frame.to_dict("records"), VALUES, strict=True):
        one.learn_one(x, None if math.isnan(value) else np.array([value]))
    expected = one.predict_many(frame).tolist()
    for name, y in SHAPES.items():
        array, many = (KINDS[kind](model=FEW) for _ in range(2))
        assert array.partial_fit(rows, y(VALUES)).predict(rows).tolist() == expected, name
        many.learn_many(frame.astype("Sparse[float]") if name == "frame" else frame, y(VALUES))
        assert many.predict_many(frame).tolist() == expected, name


def test_no_feature_of_the_first_row_is_dropped():
    """As many numbers and texts as there may be, some without a value yet: no warning comes."""
    kinds = itertools.cycle([1.0, "red", None, pd.Timestamp("2024-05-01"), math.nan])
    row = {f"f{i}": value for i, value in zip(range(80), kinds, strict=False)}
    row |= {"later number": None, "later text": None}
    model = stream.Regressor(model=FEW)
    model.learn_one(row, 1.0)
    later = {"later number": 2.0, "later text": "red"} | {f"f{i}": "red" for i in (2, 7, 12)}
    model.learn_one(row | later, 1.0)
    assert {*model._intake.encoder.columns} == {*row}
    assert model._get_params()["features"] is None and model.clone()._intake is None


@pytest.mark.filterwarnings("ignore:.*no prediction is below at_least=0.5")
@pytest.mark.parametrize("kind", ["regressor", "forecaster"])
def test_no_number_that_is_predicted_lies_below_the_bound(kind):
    make, bound = stream.Regressor if kind == "regressor" else stream.Forecaster, 0.5
    models, lowest = [make(model=FEW, at_least=least) for least in (None, bound)], []
    for i in range(60):
        y, found = (i % 3) / 2, []
        for model in models:
            if kind == "regressor":
                model.learn_one(ROW, y)
                found.append((model.predict_one(ROW), *model.predict_interval_one(ROW, 0.8)))
            else:
                model.learn_one(y, ROW)
                found.append((*model.forecast(1), *model.forecast_interval(1, 0.8)[0]))
        (free, low, _), (bounded, *ends) = found
        assert min(bounded, *ends) >= bound and ends[0] <= bounded <= ends[1]
        assert bounded == pytest.approx(max(free, bound))
        lowest.append((free, low))
    assert (np.min(lowest, axis=0) < bound).all()


def test_a_text_of_the_first_row_is_learned_by_its_words():
    draw, accuracy = np.random.default_rng(0), {}
    rows = [
        " ".join(draw.permutation([*"abcdefgh", "up" if i % 2 else "down"]))
        for i in draw.integers(0, 2, 150)
    ]
    for words in (0, 16):
        model, right = (
            stream.Classifier(model=ModelConfig(experts=("row", "words")), words=words),
            [],
        )
        for text in rows:
            right.append(model.predict_one({"text": text, "who": 1}) == ("up" in text))
            model.learn_one({"text": text, "who": 1}, "up" in text)
        accuracy[words] = np.mean(right[50:])
    assert accuracy[16] > 0.95 > 0.7 > accuracy[0]


def test_wide_rows_are_learned_as_with_enough_room():
    """The class is the sign of the last of 57 columns, beyond the first 64 inputs."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 57))
    model, right = stream.Classifier(model=ModelConfig(experts=("row", "gradient"))), 0
    for row in rows:
        x, y = {f"c{i:02}": float(v) for i, v in enumerate(row)}, bool(row[-1] > 0)
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    assert right > 0.6 * len(rows)


def test_a_later_feature_without_room_is_told_once():
    model = stream.Regressor(features=4, model=FEW)
    model.learn_one({"a": 1.0, "b": 2.0}, 1.0)
    words = r"Regressor: 'c' finds no room in 4 inputs.*raise `features`"
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


@given(st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=4, unique=True))
def test_labels_are_classes_as_they_are(labels):
    model = stream.Classifier(model=FEW)
    for label in (*labels, " ", "-", "?", "none", "NA"):
        model.learn_one({"x": 1.0}, label)
    assert set(model.predict_proba_one({"x": 1.0})) == {*labels, " ", "-", "?", "none", "NA"}


def test_nothing_in_a_row_makes_an_answer_nan():
    model = stream.Regressor(features=48, model=FEW)
    nothing = [None, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan"), np.float16("nan")]
    numbers = [1.0, *nothing, np.inf, 1e300, "text"]
    for i in range(30):
        day = [pd.Timestamp("2024-01-01"), np.datetime64("2024-01-02T03"), *nothing][i % 8]
        x = {"day": day, "x": numbers[i % 10], "late": None if i < 12 else "ab"[i % 2]}
        told = pytest.warns(UserWarning, match="'x' is a column of numbers and holds 'text'")
        with told if i == 9 else contextlib.nullcontext():  # once
            model.learn_one(x, [1.0, *nothing, 2.0, np.inf][i % 9])
        assert math.isfinite(model.predict_one(x))
    kinds = {name: kind for name, (kind, _) in model._intake.encoder.columns.items()}
    assert kinds == {"day": "time", "x": "numeric", "late": "categorical"}


@pytest.mark.parametrize("kind", [stream.Classifier, stream.Regressor, stream.Forecaster])
def test_a_clone_has_the_options_of_the_model_or_other_ones(kind):
    given = ModelConfig("tiny", cell="gru", rule="rtrl", seed=3)
    model, other = kind(model=given, features=4), ModelConfig(experts=("row",))
    assert model.clone()._get_params() == model._get_params()
    assert model._get_params()["model"] == given and model._get_params()["size"] is None
    assert model.clone({"model": other}).model == other and model.model == given
    assert model.clone({"model": None, "size": "auto"})._get_params()["size"] == "auto"
