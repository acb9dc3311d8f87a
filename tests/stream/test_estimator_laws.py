"""Laws of estimators: a copy goes on exactly, and members are kept apart."""

import copy
import pickle

import numpy as np
import pytest
from streams import FEW, LAGS, TINY
from tiers import fast, slow

from foretrace.stream.python import river as stream

MODELS = {
    "late classes": lambda: stream.Classifier(model=LAGS, delay=3),
    "next numbers of members": lambda: stream.Forecaster(2, model=FEW, member="who"),
    "classes": lambda: stream.Classifier(model=FEW, member="who"),
    "network": lambda: stream.Classifier(model=TINY, member="who", members=2),
}


def rows(count):
    draw = np.random.default_rng(0)
    for i in range(count):
        yield {"x": float(draw.normal()), "who": "ab"[i * i % 3 % 2]}, bool(draw.random() < 0.5)


def learn(model, x, y):
    if isinstance(model, stream.Forecaster):
        model.learn_one(float(y), x)
    else:
        if model.delay:  # a late label needs its row
            answer(model, x)
        model.learn_one(x, y)


def answer(model, x):
    if isinstance(model, stream.Forecaster):
        return model.forecast(2, member=x["who"]), model.forecast_interval(2, member=x["who"])
    return getattr(model, "predict_proba_one", model.predict_one)(x)


@pytest.mark.parametrize("name", fast([*list(MODELS)[:-1], slow("network")]))
def test_what_is_pickled_copied_or_cloned_goes_on_exactly(name):
    model, (*first, last) = MODELS[name](), rows(30)
    for x, y in first[:20]:
        learn(model, x, y)
    whole = model.clone(include_attributes=True)
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), whole]
    for x, y in first[20:]:
        for one in (model, *copies):
            learn(one, x, y)
    assert all(answer(one, last[0]) == answer(model, last[0]) for one in copies)
    begun = model.clone()
    assert begun._get_params() == model._get_params() and begun._intake is None


def test_many_rows_in_a_call_teach_what_each_alone_teaches():
    """The seventeenth class comes in the middle of a chunk of rows."""
    xs, ys = np.arange(70.0)[:, None] % 9, [f"c{i // 3 % 20}" for i in range(70)]
    many, each = (stream.Classifier(model=FEW) for _ in range(2))
    with pytest.warns(UserWarning, match="room for 32"):
        many.partial_fit(xs[:1], ys[:1])
        many.partial_fit(xs[1:], ys[1:])
    with pytest.warns(UserWarning, match="room for 32"):
        for x, y in zip(xs, ys, strict=True):
            each.partial_fit(x[None], [y])
    assert many._intake.shape.outputs == each._intake.shape.outputs == 32
    assert many.surprise == pytest.approx(each.surprise, nan_ok=True)
    found, expected = (answer(one, {0: 1.0}) for one in (many, each))
    assert found == pytest.approx(expected, rel=1e-9) and len(found) == 20


def test_a_pickle_with_other_arrays_is_refused():
    model = MODELS["classes"]()
    for row in rows(3):
        model.learn_one(*row)
    kept, again = model.__getstate__(), stream.Classifier.__new__(stream.Classifier)
    words = "this Classifier was pickled by a version of foretrace that kept"
    for arrays in (kept["_state"][1:], [*kept["_state"][:-1], np.zeros((7, 7))]):
        with pytest.raises(ValueError, match=words):
            again.__setstate__(kept | {"_state": arrays})


@pytest.mark.parametrize("name", fast(["classes", "next numbers of members", "network"]))
def test_an_estimator_keeps_its_members_apart(name):
    model = MODELS[name]()
    for x, y in rows(60):
        learn(model, x, 1000 * y if x["who"] == "b" else y)
    a, b, new = ({"x": 1.0, "who": name} for name in ("a", "b", "new"))
    before, other = answer(model, a), answer(model, b)
    assert before != other and before == answer(model, a)
    if name == "next numbers of members":  # as wide as the errors of each
        own, wide = (np.diff(intervals) for _, intervals in (before, other))
        assert (own < 0.5 * wide).all()
    model.reset("a")
    assert answer(model, b) == other and answer(model, a) == answer(model, new) != before
    model.leave("b")
    assert answer(model, b) == answer(model, a)
    assert "who" not in model._intake.encoder.columns
    with pytest.raises(KeyError, match="'c' is not among the 1 members"):
        model.leave("c")
    with pytest.raises(KeyError, match="is no member"):
        stream.Classifier("small").reset("a")
