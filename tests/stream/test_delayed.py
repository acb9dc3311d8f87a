"""Estimators with late labels: each row is learned later with its own memory."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("river")
from river import preprocessing
from river import stream as river_stream
from streams import LAGS
from tiers import fast

from foretrace.stream import Classifier, Regressor, StreamConfig, run

ROWS, DELAY = 120, 3
KINDS = {"classification": Classifier, "regression": Regressor}


def make(kind=Classifier, **options):
    return kind(model=LAGS, **{"features": 4, "delay": DELAY} | options)


def rows(task):
    """Return rows whose target depends in part on the target of two rows before."""
    draw = np.random.default_rng(0).integers(0, 5, ROWS + 2)
    for i in range(ROWS):
        y = int(draw[i] + draw[i + 2] % 2)
        yield (
            {"x": float(draw[i + 2]), "z": i % 3},
            float(y) if task == "regression" else "uvwxyz"[y],
        )


def asked(model, x, **named):
    return getattr(model, "predict_proba_one", model.predict_one)(x, **named)


@pytest.fixture(scope="module", params=fast(KINDS))
def by_command(request, tmp_path_factory):
    """Return a task, and the predictions of the command for its rows."""
    path, found = tmp_path_factory.mktemp("late") / "a.csv", []
    pd.DataFrame([x | {"y": y} for x, y in rows(request.param)]).to_csv(path, index=False)
    options = {"target": "y", "task": request.param}
    config = StreamConfig(str(path), **options, delay=DELAY, model=LAGS)
    run(config, path.with_suffix(""), on_prediction=found.append)
    return request.param, found


def test_with_labels_in_order_predictions_are_those_of_the_command(by_command):
    task, expected = by_command
    model, table, found = make(KINDS[task]), [*rows(task)], []
    for i, (x, _) in enumerate(table):
        found.append(asked(model, x))
        if i >= DELAY:
            model.learn_one(*table[i - DELAY])
    for mine, line in zip(found, expected, strict=True):
        given = line.get("probabilities", line["y"])
        assert mine == pytest.approx(0.0 if given is None else given, abs=1e-9)


@pytest.mark.parametrize("options", [{"delay": 40}, {"delay": 0, "waiting": 40}], ids=str)
def test_a_label_is_learned_at_once_whatever_the_order(options):
    """Labels of up to 20 rows ago, by id: their rows are known long before the delay is over."""
    model, right, table = make(previous=False, **options), [], [*rows("classification")] * 3
    late = np.random.default_rng(0).permutation(np.arange(len(table)) % 20)
    due = {}
    for i, (x, y) in enumerate(table):
        right.append(model.predict_one(x, id=i) == y)
        due.setdefault(i + late[i], []).append((i, y))
        for id, label in due.pop(i, ()):
            model.learn_one(None, label, id=id)
    assert np.mean(right[-100:]) > 1.5 * np.mean(right[:40])


def test_in_a_pipeline_a_label_is_given_to_the_row_as_it_was_asked():
    """A pipeline transforms the row of a label again, by the statistics of then."""
    piped, model = preprocessing.StandardScaler() | make(), make()
    scaler, transformed = preprocessing.StandardScaler(), {}
    for i, x, y in river_stream.simulate_qa(rows("classification"), None, DELAY):
        if y is None:
            transformed[i] = scaler.transform_one(x)
            assert piped.predict_proba_one(x) == asked(model, transformed[i])
        else:
            piped.learn_one(x, y)
            scaler.learn_one(x)
            model.learn_one(transformed.pop(i), y)


def num_taken(model):
    """Return the number of rows that the model's only stream has had, up to a few."""
    return int(model._intake.mixture.packing.unpack(model._state).arrived.streams.num_rows[0])


@pytest.mark.parametrize("value", [pd.NA, [1.0]], ids=repr)
@pytest.mark.parametrize("named", [False, True])
def test_rows_of_any_values_wait(value, named):
    """The same object is the same row, until it changes; an equal one is another."""
    model = make(features=4 if value is pd.NA else None)
    x, other = ({"x": value, "z": 1.0} for _ in range(2))
    again = {"id": pd.NA} if named else {}
    assert asked(model, x, **again) == asked(model, x, **again) and num_taken(model) == 1
    if named:  # as a pipeline asks: by an object of its own
        asked(model, dict(x, z=2.0), **again)
        assert num_taken(model) == 1
    asked(model, other)
    assert num_taken(model) == 2
    model.learn_one(copy.deepcopy(x), "a")
    model.learn_one({"x": 7.0, "z": 1.0}, "b")  # as a pipeline gives it
    other["z"] = 2.0
    asked(model, other)
    assert num_taken(model) == 3
    asked(model, {}), asked(model, {})
    assert model._intake.target.num_labels == 2


NO_ROW = "no row waits for its label among the last that a prediction was asked for, 4 at most"
NO_ID = "no row of the id '{}' waits"
REFUSED = [
    (({"x": 5}, []), {}, TypeError, "cannot be hashed"),
    (({"x": 5}, "a"), {"id": [1]}, TypeError, r"^id=\[1\] is a list"),
    (({"x": 1}, "a"), {"id": "1"}, KeyError, NO_ID.format(1) + " .* at most 4 rows wait"),
    ((None, "a"), {}, ValueError, r"learn_one\(None, y\) needs the `id`"),
]


def test_a_label_without_its_row_is_refused_and_changes_nothing():
    model = make()
    for i in range(6):
        model.predict_one({"x": i, "nan": float("nan")}, id=f"{i}")

    def refuse(given, named, error, words):
        before = pickle.dumps(model)
        with pytest.raises(error, match=words):
            model.learn_one(*given, **named)
        assert pickle.dumps(model) == before

    for case in REFUSED:
        refuse(*case)
    model.learn_one(None, "b", id="5")
    before = pickle.dumps(model)
    model.learn_one(None, "b", id="5")  # once more
    assert pickle.dumps(model) == before
    refuse((None, "c"), {"id": "5"}, ValueError, "id '5' has the label 'b', and is given 'c'")
    model.learn_one({"x": 3}, "c")
    model.learn_one({"x": 4}, "a")
    model.learn_one({"x": 4}, "a")
    refuse(({"x": 5}, "b"), {}, ValueError, NO_ROW)
    assert dict(model._intake.room.told) == {"5": "b", "2": "c", "3": "a", "4": "a"}
    with pytest.raises(ValueError, match="id='4' has its label already"):
        model.predict_one({"x": 4}, id="4")


def test_labels_in_another_order_are_told_once():
    model = make()
    for i in range(3):
        model.predict_one({"x": i, "z": 1.0})
    with pytest.warns(UserWarning, match="x equals a later one; give .* an `id`") as caught:
        model.learn_one({"x": 2, "z": 1.0}, 1.0)
    assert [record.filename for record in caught] == [__file__]
    model.learn_one({"x": 2, "z": 1.0}, 1.0)


def test_members_have_their_own_late_rows_which_leave_with_them():
    model = make(delay=2, member="m", members=2)
    for i in range(4):
        for name in "ab":
            model.predict_one({"m": name, "x": float(i)}, id=f"{name}{i}")
    model.learn_one({"m": "a", "x": 2.0}, 1.0, id="a2")
    model.reset("b")
    model.predict_one({"m": "b", "x": 9.0}, id="b9")
    model.learn_one(None, 1.0, id="b3")  # from before the new start: it teaches
    model.learn_one(None, 1.0, id="b9")
    model.predict_one({"m": "c", "x": 0.0})  # takes the place of a
    with pytest.raises(KeyError, match="no row of the id 'a3' waits"):
        model.learn_one(None, 1.0, id="a3")
    for i in range(20):
        model.predict_one({"m": f"n{i}", "x": 0.0})
    assert len(model._intake.room) <= 2 * (model.delay + 1)


@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_rows_of_an_array_are_predicted_without_being_taken_and_label_those_that_wait(kind):
    model = make(kind)
    found = list(rows("regression" if kind is Regressor else "classification"))
    frame, ys = pd.DataFrame([x for x, _ in found[:20]]), [y for _, y in found[:20]]
    model.learn_many(frame, pd.Series(ys))  # no row waits: rows with their labels
    many = model.predict_many if kind is Regressor else model.predict_proba_many
    once, again = many(frame), many(frame)
    assert once.equals(again) and not model._intake.room.rows
    assert len(model.predict(frame.to_numpy())) == 20 and not model._intake.room.rows
    for x, _ in found[20:23]:
        asked(model, x)
    assert len(model._intake.room) == 3
    later = pd.DataFrame([x for x, _ in found[20:23]])
    model.learn_many(later, pd.Series([y for _, y in found[20:23]]))
    assert not model._intake.room.rows and not model._intake.room.counts


def test_rows_before_a_reset_or_a_leave_wait_no_longer():
    model = make(Regressor, member="s", members=2)
    for t in range(3):
        model.predict_one({"s": "a", "x": float(t)})
    model.reset("a")
    model.predict_one({"s": "a", "x": 9.0})
    (one,) = model._intake.room.rows.values()
    assert "9.0" in one.text
    model.leave("a")
    with pytest.raises(ValueError, match="no row waits for its label"):
        model.learn_one({"s": "a", "x": 9.0}, 9.0)


def test_a_delay_excludes_labels_at_any_time():
    with pytest.raises(ValueError, match="delay=3 beside waiting=5"):
        make(Regressor, waiting=5)
