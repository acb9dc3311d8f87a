"""Means of scores: of several models at once, and from checkpoints as they were written before."""

import json

import numpy as np

from foretrace._rows.scores import ArrayScores, Scores

NAMES = ("a", "b")


def test_scores_of_several_models_are_those_of_each():
    draw = np.random.default_rng(0).normal(size=(50, 2))
    scores, each = ArrayScores(NAMES), Scores()
    assert scores.total() == {}
    for row in draw:
        scores.add(row)
        each.add(dict(zip(NAMES, row.tolist(), strict=True)))
    assert scores.total() == each.total() and scores.rows == 50
    for saved in (scores.to_json(), each.to_json()):  # the latter is what checkpoints of before hold
        again = ArrayScores(NAMES)
        again.restore(json.loads(json.dumps(saved)))
        again.add(draw[0])
        assert again.rows == 51 and again.total() != each.total()
        assert again.to_json()[1] == [total + x for total, x in zip(scores.to_json()[1], draw[0], strict=True)]
