"""Estimators with late labels: each row is learned later with its own memory."""

import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("river")
from river import evaluate, metrics
from river import stream as river_stream

from foretrace.stream import Classifier, ModelConfig, Regressor, StreamConfig, run

pytestmark = pytest.mark.usefixtures("standard_promotion")
FEW = ModelConfig(experts=("baselines", "row", "short"))
ROWS, DELAY = 120, 3


def rows(classes):
    """Return rows whose target depends in part on the target of two rows before."""
    draw = np.random.default_rng(0).integers(0, 5, ROWS + 2)
    for i in range(ROWS):
        y = int(draw[i] + draw[i + 2] % 2)
        yield {"x": float(draw[i + 2]), "z": i % 3}, "uvwxyz"[y] if classes else float(y)


def answers(model, classes, delay, protocol=None):
    """Return the prediction for each row when each label comes `delay` rows late."""
    found = [None] * ROWS
    for i, x, y in river_stream.simulate_qa(rows(classes), None, protocol or delay):
        if y is None:
            found[i] = model.predict_proba_one(x) if classes else model.predict_one(x)
        else:
            model.learn_one(x, y)
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


@pytest.mark.parametrize("protocol", [None, 1])
@pytest.mark.parametrize("classes", [True, False])
def test_predictions_are_those_of_the_command_however_early_labels_come(
    tmp_path, classes, protocol
):
    _, expected = of_command(tmp_path, classes)
    kind, options = (Classifier, {"classes": 16}) if classes else (Regressor, {})
    found = answers(kind(model=FEW, features=4, delay=DELAY, **options), classes, DELAY, protocol)
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


def test_asking_again_is_the_same_row_and_an_equal_row_is_another():
    model, x = Regressor(model=FEW, features=4, delay=2), {"x": 1.0}
    assert model.predict_one(x) == model.predict_one(x)
    model.predict_interval_one(x)
    assert model._intake.num_steps == 1
    model.predict_one({"x": 1.0})
    assert model._intake.num_steps == 2
    x["x"] = 2.0
    model.predict_one(x)
    assert model._intake.num_steps == 3


def test_a_label_without_its_row_is_refused_and_changes_nothing():
    model = Classifier(model=FEW, features=4, delay=2)
    for i in range(6):
        model.predict_one({"x": i, "nan": float("nan")})
    before = pickle.dumps(model._intake)
    for x, y in (({"x": 1}, "a"), ({"x": 1, "nan": float("nan")}, "a"), ({"x": 5}, [])):
        with pytest.raises((ValueError, TypeError), match="last 2 rows|hash"):
            model.learn_one(x, y)
    assert pickle.dumps(model._intake) == before
    model.learn_one({"x": 5, "nan": float("nan")}, "a")
    with pytest.raises(ValueError, match="has its label already"):
        model.learn_one({"x": 5, "nan": float("nan")}, "a")


def test_members_have_their_own_late_rows_and_a_new_start_drops_them():
    model = Regressor(model=FEW, features=4, delay=2, member="m", members=2)
    for i in range(4):
        for name in "ab":
            model.predict_one({"m": name, "x": float(i)})
    model.learn_one({"m": "a", "x": 2.0}, 1.0)
    model.reset("b")
    model.predict_one({"m": "b", "x": 9.0})
    with pytest.raises(ValueError, match="not among the last"):
        model.learn_one({"m": "b", "x": 3.0}, 1.0)
    model.learn_one({"m": "b", "x": 9.0}, 1.0)
    model.predict_one({"m": "c", "x": 0.0})  # takes the place of a
    with pytest.raises(ValueError, match="not among the last"):
        model.learn_one({"m": "a", "x": 3.0}, 1.0)
    for i in range(20):
        model.predict_one({"m": f"n{i}", "x": 0.0})
    assert len(model._asked) <= 3


def test_rows_that_came_with_their_labels_may_be_learned_first():
    early, late = (Regressor(model=FEW, features=4, delay=DELAY) for _ in range(2))
    table = list(rows(False))
    early.learn_many(pd.DataFrame([x for x, _ in table]), [y for _, y in table])
    for x, y in table:
        late.predict_one(x)
        late.learn_one(x, y)
    assert early.predict_one({"x": 1.0, "z": 0}) == late.predict_one({"x": 1.0, "z": 0})


def test_a_pickled_model_goes_on():
    model, table = Classifier(model=FEW, features=4, delay=DELAY), list(rows(True))
    for x, _ in table[:20]:
        model.predict_one(x)
    again = pickle.loads(pickle.dumps(model))
    for one in (model, again):
        for x, y in table[17:20]:
            one.learn_one(x, y)
    assert model.predict_proba_one(table[20][0]) == again.predict_proba_one(table[20][0])


@pytest.mark.parametrize("delay", [-1, 1.5])
def test_a_delay_is_a_whole_number(delay):
    with pytest.raises(ValueError, match="delay="):
        Regressor(delay=delay)
