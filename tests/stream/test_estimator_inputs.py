"""Inputs of estimators: nothing is dropped in silence, and refused ones change nothing."""

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
KINDS = {"classifier": stream.Classifier, "regressor": stream.Regressor}


def forecaster(**options):
    return stream.Forecaster(horizon=2, model=FEW, **options)


def learned(kind, rows=3, **options):
    """Return a model after some rows of two members."""
    model = (forecaster if kind == "forecaster" else KINDS[kind])(
        **(options if kind == "forecaster" else {"model": FEW} | options)
    )
    for i in range(rows):
        x = {"who": "ab"[i % 2], "x": float(i)}
        model.learn_one(i % 2, x) if kind == "forecaster" else model.learn_one(x, i % 2)
    return model


X = pd.DataFrame({"who": ["a", "b", "a"], "x": [0.5, 1.5, 2.5]})
NO_NUMBERS = [
    "2%",
    "2,5",
    "1_000",
    "red",
    pd.Timestamp("2024"),
    np.datetime64("2024"),
    [1.0],
    np.ones(2),
    1j,
    {},
]
NO_CLASSES = [[1], {"a": 1}, {1}, np.ones(2), ([1],)]
NO_MEMBERS = [None, math.nan, pd.NA, pd.NaT, np.float32("nan"), [1], np.ones(2)]


def refused():
    """Yield kind, options, the least number of rows before, and a call that is refused."""
    for kind, bad in (("classifier", NO_CLASSES), ("regressor", NO_NUMBERS)):
        for y in bad:
            yield (
                kind,
                {},
                0,
                lambda model, y=y: model.learn_one({"who": "c", "x": 1, "new": "red"}, y),
            )
            yield (
                kind,
                {"member": "who"},
                0,
                lambda model, y=y: model.learn_one({"who": "c", "x": 1}, y),
            )
            yield (
                kind,
                {},
                0,
                lambda model, y=y: model.learn_many(X, pd.Series([0, 1, y], dtype=object)),
            )
        for name in NO_MEMBERS:
            bad_row = {"who": name, "x": 1.0}
            yield kind, {"member": "who"}, 0, lambda model, x=bad_row: model.learn_one(x, 1)
            yield kind, {"member": "who"}, 1, lambda model, x=bad_row: model.predict_one(x)
            frame = pd.DataFrame([{"who": "c", "x": 1.0}, bad_row])
            yield kind, {"member": "who"}, 0, lambda model, X=frame: model.learn_many(X, [0, 1])
        yield kind, {}, 0, lambda model: model.learn_one([1.0], 1)
        yield kind, {}, 0, lambda model: model.predict_one([1.0])
        for many in ("learn_many", "partial_fit"):
            for y in (
                [1, 0],
                [1, 0, 1, 0],
                np.ones((3, 2)),
                pd.DataFrame({"a": [1, 0, 1], "b": 1}),
                1,
                "abc",
                [],
            ):
                yield kind, {}, 0, lambda model, many=many, y=y: getattr(model, many)(X, y)
            yield kind, {}, 0, lambda model, many=many: getattr(model, many)([1.0, 2.0], [1, 0])
    for y in NO_NUMBERS:
        yield "forecaster", {}, 0, lambda model, y=y: model.learn_one(y, {"who": "a", "new": 1})
        yield "forecaster", {}, 0, lambda model, y=y: model.fit(pd.Series([1, 2, y], dtype=object))
        yield (
            "forecaster",
            {},
            0,
            lambda model, y=y: model.update(pd.Series([1, 2, y], dtype=object)),
        )
    for horizon in (-1, 0, 3, 1.5, None):
        yield "forecaster", {}, 0, lambda model, h=horizon: model.forecast(h)
        yield "forecaster", {}, 0, lambda model, h=horizon: model.forecast_interval(h)
    yield "forecaster", {"member": "who"}, 0, lambda model: model.learn_one(1.0, {"who": pd.NA})
    yield "forecaster", {"member": "who"}, 0, lambda model: model.learn_one(1.0)


CALLS = list(refused())


@given(st.sampled_from(CALLS), st.integers(0, 3))
def test_a_refused_call_changes_nothing(case, more):
    kind, options, least, call = case
    model = learned(kind, least + more, **options)
    before, attributes = pickle.dumps(model), dict(model.__dict__)
    with pytest.raises((ValueError, TypeError)) as caught:
        call(model)
    assert pickle.dumps(model) == before and model.__dict__ == attributes
    assert len(str(caught.value)) > 20 and "ambiguous" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "y", "message"),
    [
        ("regressor", "2%", r"^y='2%', expected a number, or None or NaN where it is missing"),
        ("classifier", [1], r"^y=\[1\] is a list, which cannot be hashed"),
    ],
)
def test_the_error_names_argument_value_and_expectation(kind, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        learned(kind).learn_one({"x": 1.0}, y)
    with pytest.raises((ValueError, TypeError), match=message.replace("y=", r"y\[1\]=")):
        learned(kind).learn_many(X[:2], pd.Series([1, y]))
    with pytest.raises(ValueError, match=r"X has 3 rows and y 2; give one"):
        learned(kind).learn_many(X, [1, 0])
    with pytest.raises(ValueError, match=r"y has the shape \(3, 2\), expected one column"):
        learned(kind).partial_fit(np.ones((3, 1)), np.ones((3, 2)))


VALUES = [0.0, 3.0, 1.0, 2.0, math.nan, 1.0]
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
    "masked": np.ma.masked_invalid,
    "nothing": lambda y: [None if value != value else value for value in y],
}


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
@given(data=st.data())
def test_targets_of_any_shape_teach_the_same(kind, data):
    shape = SHAPES[data.draw(st.sampled_from(sorted(SHAPES)))]
    rows = np.arange(12.0).reshape(6, 2)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    flat, many, one = (KINDS[kind](model=FEW) for _ in range(3))
    flat.partial_fit(rows, np.array(VALUES))
    assert (
        many.partial_fit(rows, shape(np.array(VALUES))).predict(rows).tolist()
        == flat.predict(rows).tolist()
    )
    assert many._intake.target.counts == flat._intake.target.counts == {"missing targets": 1}
    frames = KINDS[kind](model=FEW)
    frames.learn_many(frame, shape(np.array(VALUES)))
    for x, y in zip(frame.to_dict("records"), VALUES, strict=True):
        one.learn_one(x, np.array([y]))
    assert frames.predict_many(frame).tolist() == one.predict_many(frame).tolist()
    assert one._intake.target.counts == {"missing targets": 1}


SPARSE = [
    f"{form}_{kind}"
    for form in "bsr coo csc csr dia dok lil".split()
    for kind in ("array", "matrix")
]


@given(
    st.sampled_from(["partial_fit", "learn_many", "predict", "predict_many", "y"]),
    st.sampled_from(SPARSE),
)
def test_a_sparse_matrix_is_refused_by_its_name(call, form):
    model, dense = learned("regressor"), np.eye(3)
    X, before = getattr(sparse, form)(dense), pickle.dumps(model)
    with pytest.raises(
        TypeError, match=rf"^[Xy] is a sparse {form} of shape \(3, \d\), .*\.toarray\(\)"
    ):
        if call == "y":
            model.partial_fit(dense, X)
        elif call.startswith("predict"):
            getattr(model, call)(X)
        else:
            getattr(model, call)(X, [0, 1, 0])
    assert pickle.dumps(model) == before


def test_a_frame_with_sparse_columns_is_a_frame():
    dense = pd.DataFrame(np.eye(3), columns=["a", "b", "c"])
    models = stream.Regressor(model=FEW), stream.Regressor(model=FEW)
    for model, X in zip(models, (dense, dense.astype("Sparse[float]")), strict=True):
        model.learn_many(X, [0.0, 1.0, 0.0])
    assert models[0].predict_many(dense).tolist() == models[1].predict_many(dense).tolist()


def test_no_feature_of_the_first_row_is_dropped():
    """As many numbers and texts as there may be, some without a value yet."""
    kinds = itertools.cycle([1.0, "red", None, pd.Timestamp("2024-05-01"), math.nan])
    row = {f"f{i}": value for i, value in zip(range(80), kinds, strict=False)}
    row |= {"later number": None, "later text": None}
    model = stream.Regressor(model=FEW)
    model.learn_one(row, 1.0)
    model.learn_one(
        row | {"later number": 2.0, "later text": "red"} | {f"f{i}": "red" for i in (2, 7, 12)}, 1.0
    )
    encoder = model._intake.encoder
    assert set(encoder.columns) == set(row) and not encoder.counts["values of columns without room"]
    kinds = {name: kind for name, (kind, _) in encoder.columns.items()}
    assert (
        kinds["later number"] == "numeric" and kinds["later text"] == kinds["f2"] == "categorical"
    )
    places = sorted(
        (at, {"categorical": 16, "time": 7}.get(kind, 2)) for kind, at in encoder.columns.values()
    )
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(places))
    assert model._get_params()["features"] is None and model.clone()._intake is None


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
    model.learn_one({"a": 1.0}, 1.0)
    model.learn_one({"a": 1.0, "b": 2.0}, 1.0)
    with pytest.warns(
        UserWarning, match=r"Regressor: 'c' finds no room in 4 inputs.*raise `features`"
    ) as caught:
        model.learn_one({"a": 1.0, "c": 2.0}, 1.0)
    assert [record.filename for record in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"c": 2.0, "d": 1.0}, 1.0)
        pickle.loads(pickle.dumps(model)).learn_one({"c": 2.0}, 1.0)
    assert model._get_params()["features"] == 4


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


@pytest.mark.full
@pytest.mark.parametrize("size", ["auto", "tiny"])
def test_nothing_in_a_row_makes_an_answer_nan(size):
    model = stream.Regressor(size, features=48)
    nothing = [None, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan"), np.float16("nan")]
    for i in range(24):
        day = [pd.Timestamp("2024-01-01"), np.datetime64("2024-01-02T03"), *nothing][i % 8]
        x = {"day": day, "x": [1.0, *nothing][i % 7], "late": None if i < 12 else "ab"[i % 2]}
        assert math.isfinite(model.predict_one(x))
        model.learn_one(x, [1.0, *nothing, 2.0][i % 8])
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
