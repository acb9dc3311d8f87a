"""Estimators with late labels: each row is learned later with its own memory."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("river")
from river import evaluate, metrics, preprocessing
from river import stream as river_stream

from foretrace.stream import Classifier, ModelConfig, Regressor, StreamConfig, run

FEW = ModelConfig(experts=("baselines", "row", "short"))
ROWS, DELAY = 120, 3


def rows(classes):
    """Return rows whose target depends in part on the target of two rows before."""
    draw = np.random.default_rng(0).integers(0, 5, ROWS + 2)
    for i in range(ROWS):
        y = int(draw[i] + draw[i + 2] % 2)
        yield {"x": float(draw[i + 2]), "z": i % 3}, "uvwxyz"[y] if classes else float(y)


def answers(model, classes, protocol):
    """Return the prediction for each row when each label comes `protocol` rows late.

    A function of a row gives each label a delay of its own; the rows then have an id.
    """
    found, table = [None] * ROWS, list(rows(classes))
    if callable(protocol):
        table = [(x, y, {"id": f"row {i}"}) for i, (x, y) in enumerate(table)]
    for i, x, y, *more in river_stream.simulate_qa(table, None, protocol):
        named = more[0] if more else {}
        if y is None:
            found[i] = (model.predict_proba_one if classes else model.predict_one)(x, **named)
        else:
            model.learn_one(x, y, **named)
    return found


def of_command(tmp_path, classes):
    table = list(rows(classes))
    lines = ["x,z,y", *(f"{x['x']},{x['z']},{y}" for x, y in table)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    task, found = "classification" if classes else "regression", []
    config = StreamConfig(
        str(tmp_path / "a.csv"), target="y", task=task, delay=DELAY, model=FEW, look_ahead=ROWS
    )
    result = run(config, tmp_path / "run", on_prediction=found.append)
    return result, found


@pytest.mark.parametrize("protocol", [DELAY, 1, lambda x, y: 1 + int(3 * x["x"] + x["z"]) % DELAY])
@pytest.mark.parametrize("classes", [True, False])
def test_predictions_are_those_of_the_command_however_early_labels_come(
    tmp_path, classes, protocol
):
    """Also if labels come in another order than their rows, which have an id then."""
    _, expected = of_command(tmp_path, classes)
    kind, options = (Classifier, {"classes": 16}) if classes else (Regressor, {})
    found = answers(kind(model=FEW, features=4, delay=DELAY, **options), classes, protocol)
    for mine, line in zip(found, expected, strict=True):
        if classes:
            assert mine.keys() == line["probabilities"].keys()
            for label, share in line["probabilities"].items():
                assert mine[label] == pytest.approx(share, abs=1e-9)
        else:
            assert mine == pytest.approx(line["y"], abs=1e-9)


@pytest.mark.parametrize("classes", [True, False])
def test_progressive_validation_has_the_score_of_the_command(tmp_path, classes):
    """River also leaves out the rows without an answer, and gets the last labels at the end."""
    result, expected = of_command(tmp_path, classes)
    kind, options = (Classifier, {"classes": 16}) if classes else (Regressor, {})
    model = kind(model=FEW, features=4, delay=DELAY, **options)
    metric, name = (metrics.Accuracy(), "accuracy") if classes else (metrics.MAE(), "mae")
    evaluate.progressive_val_score(rows(classes), model, metric, delay=DELAY)
    ys, found = [y for _, y in rows(classes)], [line["y"] for line in expected]
    scores = [
        float(y == mine) if classes else abs(y - mine)
        for y, mine in zip(ys, found, strict=True)
        if mine is not None
    ]
    assert np.mean(scores[:-DELAY]) == pytest.approx(result.scores[name])
    assert metric.get() == pytest.approx(np.mean(scores), abs=1e-9)


def test_in_a_pipeline_a_label_is_given_to_the_row_as_it_was_asked():
    """A pipeline transforms the row of a label again, by the statistics of then."""
    piped = preprocessing.StandardScaler() | Regressor(model=FEW, features=4, delay=DELAY)
    model, scaler, asked = Regressor(model=FEW, features=4, delay=DELAY), None, {}
    scaler = preprocessing.StandardScaler()
    for i, x, y in river_stream.simulate_qa(rows(False), None, DELAY):
        if y is None:
            asked[i] = scaler.transform_one(x)
            assert piped.predict_one(x) == model.predict_one(asked[i])
        else:
            piped.learn_one(x, y)
            scaler.learn_one(x)
            model.learn_one(asked.pop(i), y)
    counted = metrics.MAE()
    piped = preprocessing.StandardScaler() | Regressor(model=FEW, delay=5)
    evaluate.progressive_val_score(rows(False), piped, counted, delay=5)
    assert counted.get() < 1.5


def num_taken(model):
    """Return the number of rows that the model's only stream has had, up to a few."""
    return int(model._intake.mixture.packing.unpack(model._state).turns[0])


@pytest.mark.parametrize(
    "value",
    [pd.NA, pd.NaT, float("nan"), np.ones(2), np.array(2.0), [1.0], None, "a"],
    ids=repr,
)
@pytest.mark.parametrize("named", [False, True])
def test_rows_of_any_values_wait(value, named):
    """The same object is the same row, until it changes; an equal one is another."""
    model, xs = Classifier(model=FEW, delay=2), [{"x": value, "z": 1.0} for _ in range(2)]
    x, again = xs[0], {"id": pd.NA} if named else {}
    assert model.predict_proba_one(x, **again) == model.predict_proba_one(x, **again)
    assert num_taken(model) == 1
    if named:  # as a pipeline asks: by an object of its own
        model.predict_one(dict(x, z=2.0), **again)
        assert num_taken(model) == 1
    model.predict_one(xs[1])
    assert num_taken(model) == 2
    model.learn_one(copy.deepcopy(x), "a")
    model.learn_one({"x": 7.0, "z": 1.0}, "b")  # as a pipeline gives it
    x = xs[1]
    x["z"] = 2.0
    model.predict_one(x)
    assert num_taken(model) == 3
    model.predict_one({}), model.predict_one({})
    assert model._intake.target.num_labels == 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model: model.learn_one({"x": 5}, []), TypeError, "cannot be hashed"),
        (lambda model: model.learn_one({"x": 5}, "a", id=[1]), TypeError, r"^id=\[1\] is a list"),
        (lambda model: model.predict_one({"x": 5}, id=[1]), TypeError, r"^id=\[1\] is a list"),
        (
            lambda model: model.learn_one({"x": 1}, "a", id="1"),
            ValueError,
            "no row of the id '1' waits for its label among the last 2",
        ),
    ],
)
def test_a_label_without_its_row_is_refused_and_changes_nothing(call, error, message):
    model = Classifier(model=FEW, features=4, delay=2)
    for i in range(6):
        model.predict_one({"x": i, "nan": float("nan")}, id=f"{i}")
    before = pickle.dumps(model._intake)
    with pytest.raises(error, match=message):
        call(model)
    assert pickle.dumps(model._intake) == before
    model.learn_one({"x": 5}, "b", id="5")
    with pytest.raises(ValueError, match="no row of the id '5' waits"):
        model.learn_one({"x": 5}, "b", id="5")
    model.learn_one({"x": 4}, "a")
    with pytest.raises(ValueError, match="no row waits for its label among the last 2"):
        model.learn_one({"x": 5}, "b")
    assert [one.value for one in model._intake.streams.pending(None)] == ["a", "b"]


def test_labels_in_another_order_are_told_once():
    model = Regressor(model=FEW, features=4, delay=3)
    for i in range(3):
        model.predict_one({"x": i})
    with pytest.warns(UserWarning, match="x equals a later one; give .* an `id`") as caught:
        model.learn_one({"x": 2}, 1.0)
    assert [record.filename for record in caught] == [__file__]
    model.learn_one({"x": 2}, 1.0)


def test_members_have_their_own_late_rows_and_a_new_start_drops_them():
    model = Regressor(model=FEW, features=4, delay=2, member="m", members=2)
    for i in range(4):
        for name in "ab":
            model.predict_one({"m": name, "x": float(i)}, id=i)
    model.learn_one({"m": "a", "x": 2.0}, 1.0, id=2)
    model.reset("b")
    model.predict_one({"m": "b", "x": 9.0}, id=9)
    with pytest.raises(ValueError, match="no row of the id 3 waits"):
        model.learn_one({"m": "b", "x": 3.0}, 1.0, id=3)
    model.learn_one({"m": "b", "x": 9.0}, 1.0)
    model.predict_one({"m": "c", "x": 0.0})  # takes the place of a
    with pytest.raises(ValueError, match="no row waits"):
        model.learn_one({"m": "a", "x": 3.0}, 1.0)
    for i in range(20):
        model.predict_one({"m": f"n{i}", "x": 0.0})
    waiting = model._intake.streams.waiting.values()
    assert sum(len(one.pending) for one in waiting) <= 2 * model.delay


def test_rows_that_came_with_their_labels_may_be_learned_first():
    early, late = (Regressor(model=FEW, features=4, delay=DELAY) for _ in range(2))
    table = list(rows(False))
    early.learn_many(pd.DataFrame([x for x, _ in table]), [y for _, y in table])
    for x, y in table:
        late.predict_one(x)
        late.learn_one(x, y)
    assert early.predict_one({"x": 1.0, "z": 0}) == late.predict_one({"x": 1.0, "z": 0})
