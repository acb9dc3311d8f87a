"""Threads that share an estimator: no call fails; the result equals some order of the calls."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_estimator_laws import MODELS, answer, learn, rows
from tiers import fast

from foretrace.stream.python.estimator import OnlineEstimator
from foretrace.stream.read.slots import SlotTable

pd = pytest.importorskip("pandas")
*ROWS, one, two, three = rows(43)
BATCH = [one, two, three]


def in_threads(*works):
    """Run functions at once, and raise the first error."""
    start = threading.Barrier(len(works))
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(lambda work=work: (start.wait(), work())) for work in works]:
            done.result()


def ask(model):
    """Return what a single call answers for the first row."""
    found = answer(model, ROWS[0][0])
    return found[0] if isinstance(found, tuple) else found


def works_of(model):
    """Return what threads do at once beside learning row by row."""

    def refused():
        with pytest.raises(TypeError, match="cannot be hashed"):
            model.learn_one({"who": "c", "x": 1.0}, [])

    def come_and_go():
        model.learn_one({"who": "new", "x": 1.0}, True)
        model.leave("new")

    xs, ys = zip(*BATCH, strict=True)
    return lambda: model.learn_many(pd.DataFrame(xs), ys), refused, come_and_go


@pytest.mark.parametrize("kind", fast(["classes", "next numbers of members", "network"]))
def test_each_call_is_done_once_in_some_order(kind, monkeypatch):
    """Answers, and pickles that are made meanwhile, are those of some beginning of the calls."""
    model, order, answers, pickles = MODELS[kind](), [], [], []
    step, leave = OnlineEstimator._learn, SlotTable.leave

    def noting(self, pairs, *more):
        order.extend(pairs)
        return step(self, pairs, *more)

    def noting_leave(self, name):
        order.append((name, None))
        return leave(self, name)

    learn(model, *ROWS[0])
    with monkeypatch.context() as patch:
        patch.setattr(OnlineEstimator, "_learn", noting)
        patch.setattr(SlotTable, "leave", noting_leave)
        in_threads(
            *(lambda k=k: [learn(model, *row) for row in ROWS[1 + k :: 4]] for k in range(4)),
            lambda: answers.extend(ask(model) for _ in range(12)),
            lambda: pickles.extend(pickle.dumps(model) for _ in range(6)),
            lambda: pickles.extend(pickle.dumps(copy.deepcopy(model)) for _ in range(6)),
            *(works_of(model) if kind == "classes" else ()),
        )
    learned = sorted(repr(x) for x, y in order if y is not None and x["who"] != "new")
    assert learned == sorted(repr(x) for x, _ in ROWS[1:] + BATCH * (kind == "classes"))
    again = MODELS[kind]()
    learn(again, *ROWS[0])
    beginnings = [ask(again)]
    for x, y in order:
        again.leave(x) if y is None else learn(again, x, y)
        beginnings.append(ask(again))
    answers += [ask(pickle.loads(one)) for one in pickles]
    assert all(one in beginnings for one in answers) and ask(model) == beginnings[-1]
    for a, b in zip(model.__getstate__()["_state"], again.__getstate__()["_state"], strict=True):
        np.testing.assert_array_equal(a, b)
