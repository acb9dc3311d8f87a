"""Threads that share an estimator: no call fails; the result equals some order of the calls."""

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import fast

from foretrace.stream import _river as stream
from foretrace.stream._model_config import ModelConfig

pd = pytest.importorskip("pandas")
FEW = ("baselines", "row")
MAKE = {
    "mixture": lambda: stream.Classifier(model=ModelConfig(experts=FEW)),
    "members": lambda: stream.Classifier(model=ModelConfig(experts=FEW), member="who"),
    "network": lambda: stream.Classifier("tiny"),
    "forecaster": lambda: stream.Forecaster(2, model=ModelConfig(experts=FEW)),
}


def row(i):
    return {"x": float(i % 5), "who": "ab"[i % 2]}, "uvw"[i % 3]


def learn(model, i):
    x, label = row(i)
    model.learn_one(float(i % 7), x) if isinstance(model, stream.Forecaster) else model.learn_one(
        x, label
    )


def ask(model, i):
    x, _ = row(i)
    return model.forecast(2) if isinstance(model, stream.Forecaster) else model.predict_proba_one(x)


def in_threads(*works):
    """Run functions at once, and raise the first error."""
    errors, start = [], threading.Barrier(len(works))

    def run(work):
        start.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def recorded(model):
    """Let a model note the rows that it learns, and return these notes."""
    order, original = [], model._step

    def noting(x, y, *rest):
        order.append((x, y))
        return original(x, y, *rest)

    model._step = noting
    return order


@pytest.mark.parametrize("kind", fast(sorted(MAKE)))
def test_each_row_is_learned_once_in_some_order(kind):
    model, count = MAKE[kind](), 40
    order = recorded(model)
    works = [lambda k=k: [learn(model, i) for i in range(k, count, 4)] for k in range(4)]
    in_threads(*works, lambda: [ask(model, i) for i in range(count)])
    assert sorted(map(repr, order)) == sorted(
        repr((x, float(i % 7) if kind == "forecaster" else y))
        for i, (x, y) in ((i, row(i)) for i in range(count))
    )
    again = MAKE[kind]()
    for x, y in order:
        again.learn_one(y, x) if kind == "forecaster" else again.learn_one(x, y)
    del model._step
    assert ask(model, 0) == ask(again, 0)
    assert model._intake.to_json() == again._intake.to_json()
    for a, b in zip(model.__getstate__()["_state"], again.__getstate__()["_state"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_pickles_made_meanwhile_are_whole():
    model, pickles = MAKE["members"](), []
    learn(model, 0)
    in_threads(
        lambda: [learn(model, i) for i in range(1, 60)],
        lambda: pickles.extend(pickle.dumps(model) for _ in range(12)),
        lambda: pickles.extend(pickle.dumps(copy.deepcopy(model)) for _ in range(12)),
    )
    for one in map(pickle.loads, pickles):
        count = one._intake.target.counts.total() + one._intake.target.num_labels
        again = MAKE["members"]()
        for i in range(count):
            learn(again, i)
        assert ask(one, 7) == ask(again, 7)


@settings(max_examples=5)
@given(
    st.lists(
        st.sampled_from(["learn", "ask", "batch", "leave", "pickle", "refused"]),
        min_size=2,
        max_size=6,
    )
)
def test_whatever_threads_do_at_once(works):
    model = MAKE["members"]()
    learn(model, 0), learn(model, 1)
    X = pd.DataFrame({"who": "a", "x": [1.0, 2.0, 3.0]})

    def refused():
        with pytest.raises(TypeError, match="cannot be hashed"):
            model.learn_one({"who": "c", "x": 1.0}, [])

    def leave():
        model.learn_one({"who": threading.get_ident(), "x": 1.0}, "u")
        model.leave(threading.get_ident())

    what = {
        "learn": lambda: learn(model, 2),
        "ask": lambda: ask(model, 2),
        "batch": lambda: model.learn_many(X, ["u", "v", "w"]),
        "leave": leave,
        "pickle": lambda: pickle.dumps(model),
        "refused": refused,
    }
    in_threads(*(what[work] for work in works))
    learned = 2 + works.count("learn") + 3 * works.count("batch") + works.count("leave")
    assert (
        model._intake.target.num_labels == learned and list(model._intake.streams.table)[0] in "ab"
    )
    assert sum(ask(model, 0).values()) == pytest.approx(1)
