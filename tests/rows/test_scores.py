"""Means of scores, of several models at once, and gains over baselines."""

import json

import numpy as np
import pytest

from foretrace._rows.scores import ArrayScores, Gains, Scores

NAMES = ("a", "b")


def test_scores_of_several_models_are_those_of_each():
    draw = np.random.default_rng(0).normal(size=(50, 2))
    scores, each = ArrayScores(NAMES), Scores()
    assert scores.total() == {}
    for row in draw:
        scores.add(row)
        each.add(dict(zip(NAMES, row.tolist(), strict=True)))
    assert scores.total() == each.total() and scores.rows == 50
    again = ArrayScores(NAMES)
    again.restore(json.loads(json.dumps(scores.to_json())))
    again.add(draw[0])
    assert again.rows == 51 and again.total() != each.total()
    assert again.to_json()[1] == [
        total + x for total, x in zip(scores.to_json()[1], draw[0], strict=True)
    ]


@pytest.mark.parametrize(
    ("better", "found"), [(0.0, ["no_change_"]), (-0.5, ["no_change_"]), (0.5, [])]
)
def test_a_gain_within_its_standard_error_is_none(better, found):
    gains, draw = Gains(), np.random.default_rng(0)
    for mine, last in zip(draw.normal(size=500), draw.normal(size=500) + better, strict=True):
        gains.add({"mae": mine, "no_change_mae": last, "mean_mae": 0.0})
    again = Gains()
    again.restore(json.loads(json.dumps(gains.to_json())))
    assert gains.not_better() == again.not_better() == found


def test_classes_are_compared_with_both_baselines():
    gains = Gains()
    for i in range(400):
        gains.add(
            {
                "accuracy": float(i % 10 > 0),
                "no_change_accuracy": i % 2,
                "majority_accuracy": float(i % 10 > 0),
            }
        )
    assert gains.not_better() == ["majority_"]
