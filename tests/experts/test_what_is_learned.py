"""What each expert is for: a table of streams, and how far it and others are off at their end."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from test_mixture import CLASSES, FEW, packed, run
from tiers import fast

from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.mixture import mixture


def stored(draw):
    """A number is stored where two conditions hold together."""
    xs, rows = draw.normal(size=(4000, 4)), np.arange(4000)
    last = np.maximum.accumulate(np.where((xs[:, 0] > 1) & (xs[:, 1] > 1), rows, 0))
    return xs, xs[last, 2]


def distant(draw, reach):
    """The class is that of a row long ago."""
    classes = draw.integers(0, 4, 4000)
    numbers = np.stack([(classes - 1.5) / 1.12, draw.normal(size=4000)], axis=1)
    return numbers, np.roll(classes, reach)


def functions(draw):
    """Whether a sum of functions of single numbers is large."""
    xs = draw.normal(size=(1500, 2))
    sums = np.abs(xs[:, 0]) + 0.3 * np.tanh(4 * xs[:, 1])
    return xs, (sums > 0.8).astype(int)


def cues(draw, every=60, count=300):
    """A cue behind all lags; its label is whether its two bits differ."""
    bits, labels = draw.integers(0, 2, (count, 2)), np.full(count * every, np.nan)
    xs = np.zeros((count * every, 2))
    xs[::every], labels[every::every] = 9.0 * (2 * bits - 1), (bits[:, 0] ^ bits[:, 1])[:-1]
    return xs, labels


def corners(draw):
    """Two numbers have the same sign."""
    xs = draw.uniform(-1, 1, (600, 2))
    return xs, (xs[:, 0] * xs[:, 1] > 0).astype(int)


def later_column(draw):
    """The label is a number in a place that no column used when the stream began."""
    xs = np.zeros((300, 64))
    xs[:, 40] = draw.normal(size=300)
    return xs, xs[:, 40]


def months(draw):
    """A level that walks, and a season of twelve rows."""
    walk, season = np.cumsum(0.2 * draw.normal(size=240)), 2 * draw.normal(size=12)
    return np.zeros((240, 1)), walk + np.resize(season, 240) + 0.5 * draw.normal(size=240)


def signs(draw, lag=0):
    """The class is the sign of a number; behind a lag, of the number of another row."""
    xs = draw.normal(size=(500, 2))
    return np.roll(xs, lag, axis=0), (xs[:, 0] > 0).astype(int)


def colours(draw):
    """The class is the category of eight rows before, beside a number of noise."""
    drawn = draw.integers(0, 4, 3000)
    return np.column_stack([draw.normal(size=3000), np.eye(5)[1 + drawn]]), np.roll(drawn, 8)


BY_ROW, LATE = dataclasses.replace(CLASSES, previous=False), dataclasses.replace(CLASSES, delay=3)
OF_FOUR = dataclasses.replace(BY_ROW, outputs=4)
OF_COLOURS = Shape(6, (0,), 4, classes=True, previous=False, categories=((1, 5),))
OF_NUMBERS = Shape(4, (0, 1, 2, 3), 1, previous=False)
MEMORY, DISTANT = ("row", "memory"), ("row", "steps", "distant")
LAGS, NEAR = ("lags", "wide", "events"), ("row", "neighbours")
STORED = {"memory": 0.3, "mixture": 0.31, "row from mean": -0.6}
SEASONS = {"seasonal 0.15 0.4": 0.55, "season": -0.7, "lags from mean": -0.58, "last": -2}
CASES = {
    # One program for two cases.
    "distant": (OF_FOUR, partial(distant, reach=20), DISTANT, {"mixture": 0.05, "row": -0.5}),
    "steps": (OF_FOUR, functions, DISTANT, {"steps": 0.1, "row": -0.25}),
    "a later column": (Shape(64, (0, 2), 1, used=4), later_column, ("row",), {"mixture": 0.2}),
    "labels of another row": (LATE, partial(signs, lag=4), ("row",), {"mixture": -0.3}),
    "categories of earlier rows": (OF_COLOURS, colours, ("lags",), {"mixture": 0.05}),
    # The full tier.
    "memory": (OF_NUMBERS, stored, MEMORY, STORED),
    "late labels": (LATE, signs, FEW[1:], {"mixture": 0.1}),
    "neighbours": (CLASSES, corners, NEAR, {"row neighbours": 0.12, "neighbours": -0.2}),
    "distant, 500": (OF_FOUR, partial(distant, reach=500), DISTANT, {"mixture": 0.05}),
    "seasonal": (Shape(1, (), 1), months, ("lags", "seasonal"), SEASONS),
    "events": (BY_ROW, cues, LAGS, {"mixture": 0.1, "lags": -0.25, "wide": -0.25}),
}
"""Shape, rows and labels, experts, and bounds of mean errors: from below where negative."""


@pytest.mark.parametrize("name", fast(list(CASES), 5))
def test_an_expert_learns_what_it_is_for_and_others_cannot(name):
    shape, make, experts, bounds = CASES[name]
    xs, labels = make(np.random.default_rng(0))
    known = ~np.isnan(labels)
    labels = np.nan_to_num(labels).astype(int if shape.classes else float)
    model = mixture(shape, ("baselines", *experts))
    _, step = run(model, packed(shape, xs, labels.tolist(), known=known), 500)
    scored = np.flatnonzero(~np.isnan(step.scores[:, 0]))
    scored = scored[-len(scored) // 4 :]
    of_mixture = step.scores[scored, 0].mean()
    errors = dict(zip(model.pure.names, step.errors[scored].mean(axis=0), strict=True))
    errors["mixture"] = 1 - of_mixture if shape.classes else of_mixture
    for expert, bound in bounds.items():
        assert errors[expert] < bound if bound > 0 else errors[expert] > -bound, errors
