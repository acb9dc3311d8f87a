"""Broken values, such as sentinels: what one costs the predictions of the rows after it."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretrace._runs.metrics import read_metrics
from foretrace.stream import Regressor, run

BROKEN = (-9999.0, 999999.0, 1e30, -1e300)


def made(rows=420):
    """Return rows, and labels between 8 and 32."""
    draw = np.random.default_rng(0)
    a, z, noise = draw.normal(size=(3, rows))
    rows = [{"a": x, "z": y} for x, y in np.stack([a, z], 1).tolist()]
    return rows, (20 + 3 * a - 2 * z + 0.2 * noise).tolist()


@pytest.fixture(scope="module")
def learned():
    """Return a model that has learned the rows of `made` but for the last hundred."""
    model, (rows, labels) = Regressor(), made()
    for x, y in zip(rows[:320], labels[:320], strict=True):
        model.learn_one(x, y)
    return model


def errors(model, broken_row=None, broken_label=None):
    """Return the error of row 320, where a value may be broken, and those of the rows after it."""
    model, (rows, labels) = copy.deepcopy(model), made()
    found = []
    for at in range(320, 420):
        x, y = rows[at], labels[at]
        if at == 320:
            x, y = {**x, "a": broken_row or x["a"]}, broken_label or y
        found.append(abs(model.predict_one(x) - labels[at]))
        model.learn_one(x, y)
    return found[0], np.array(found[1:])


def test_a_broken_value_moves_no_prediction_of_later_rows(learned):
    plain = errors(learned)[1]
    for value in BROKEN:
        _, after = errors(learned, broken_label=value)
        assert after.mean() <= 1.05 * plain.mean() and after.max() < 2, value
        broken, after = errors(learned, broken_row=value)
        # The row itself is predicted within the range of the labels.
        assert after.mean() <= 1.05 * plain.mean() + 0.01 and after.max() < 2, value
        assert broken < 24, value


def test_a_broken_label_is_not_repeated():
    """Where nothing but the last label tells the next one, the one before it does."""
    walk = 100 + np.cumsum(np.random.default_rng(1).normal(size=300))
    model = Regressor()
    for at, y in enumerate(walk.tolist()):
        if at == 281:
            assert abs(model.predict_one({}) - walk[279]) < 20
        model.learn_one({}, -1e6 if at == 280 else y)


@pytest.mark.parametrize("at", [0, 5, 12])
def test_a_stream_recovers_from_a_broken_label_among_its_first(at):
    model, (rows, labels) = Regressor(), made()
    labels[at] = 1e6
    found = []
    for x, y in zip(rows, labels, strict=True):
        found.append(abs((model.predict_one(x) or 0.0) - y))
        model.learn_one(x, y)
    assert np.mean(found[-60:]) < 1.5


def streamed(labels, **options):
    """Return the errors of each row of a run against the labels of `made`, and its result."""
    rows, truth = made(len(labels))
    frame, found = pd.DataFrame(rows).assign(y=labels), []
    with tempfile.TemporaryDirectory() as folder:
        run(frame, f"{folder}/run", on_prediction=found.append, target="y", **options)
        last = read_metrics(Path(folder, "run", "metrics.jsonl"))[-1]
    return np.abs([one["y"] or 0.0 for one in found] - np.array(truth)), last


@pytest.mark.parametrize("share, length", [(0.2, 1), (0.02, 10)])
def test_marks_of_missing_values_are_missing_labels(share, length, capsys):
    """However many there are, and however many in a row."""
    begins = np.random.default_rng(3).uniform(size=1000) < share
    hit = np.convolve(begins, np.ones(length))[:1000] > 0
    hit[:40] = False
    truth = np.array(made(1000)[1])
    errors, last = streamed(np.where(hit, -9999.0, truth), show_progress=True)
    plain, _ = streamed(truth)
    good = ~hit & (np.arange(1000) >= 200)
    assert errors[good].mean() <= 1.1 * plain[good].mean() and errors[good].max() < 2
    assert last["counts"]["sentinel targets"] == hit.sum() - 1  # all but the first
    assert last["scored"] == 1000 - hit.sum()  # no prediction for the first row
    assert "taken as missing" in capsys.readouterr().err


def test_a_far_level_is_learned_after_thirty_rows_and_at_once_where_it_is_asked_for():
    labels = np.array(made(500)[1])
    labels[300:] = 5000.0
    for options, missing in (({}, 29), ({"outliers": "clip"}, 0)):
        errors, last = streamed(labels, **options)
        assert last["counts"].get("sentinel targets", 0) == missing - (missing > 0)
        assert (errors[400:] > 4900).all()  # predicted as 5000, far from `made`


def test_an_estimator_warns_of_labels_that_it_takes_as_missing():
    rows, labels = made(500)
    labels[100::20] = [-9999.0] * 20
    model = Regressor()
    with pytest.warns(UserWarning, match="taken as missing.*-9999"):
        for x, y in zip(rows, labels, strict=True):
            model.learn_one(x, y)
