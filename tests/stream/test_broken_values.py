"""Broken values, such as sentinels: what one costs the predictions of the rows after it."""

import copy

import numpy as np
import pytest

from foretrace.stream import Regressor

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
