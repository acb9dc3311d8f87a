"""Units, last labels and late labels are those of a plain definition, row by row."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_mixture import assert_same
from tiers import fast

from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.arrivals import Arrivals, Outliers
from foretrace.stream.model.score import OF_CLASSES, OF_NUMBERS, score_class, score_numbers
from foretrace.stream.read.row import RawRow

NUMBERS, CLASSES = Shape(2, (0,), 1), Shape(2, (0,), 9, classes=True)


def units(arrived):
    return arrived.columns, arrived.target, arrived.outliers


def _floats(raw):
    return jax.tree.map(lambda one: jnp.asarray(one, float), raw)


@functools.cache
def program(shape):
    """Return what is known of a stream before its first row, and the compiled step of a row."""
    arrivals = Arrivals(shape)

    def step(arrived, raw):
        first, then = arrivals.take, arrivals.label
        if shape.horizon:  # the number of a row is known before the steps after it are predicted
            told, arrived = then(arrived, raw.y, True)
        row, arrived = first(arrived, raw, jnp.array(True))
        if not shape.horizon:
            told, arrived = then(arrived, raw.y, True)
        return row, told, arrived, Outliers(row.outliers, told.is_outlier)

    arrived = arrivals.init()
    stream = jax.tree.map(lambda leaf: leaf[0], arrived.streams)
    return arrived._replace(streams=stream), jax.jit(step)


class Followed:
    """Rows of a stream, each with a label that comes `delay` rows later."""

    def __init__(self, shape, delay=0):
        shape = dataclasses.replace(shape, delay=delay + shape.horizon)
        self.arrived, self.next = program(shape)
        self.delay, self.labels = delay, []

    def push(self, x, label):
        """Return the row, the label that came, and which numbers are outliers."""
        self.labels.append(label)
        y = self.labels[-1 - self.delay] if len(self.labels) > self.delay else np.nan
        raw = _floats(RawRow(np.array([x, 0.0]), np.array([1.0, 0.0]), y))
        row, told, self.arrived, outliers = self.next(self.arrived, raw)
        return jax.tree.map(np.asarray, (row, told, outliers))


@pytest.mark.parametrize("delay", fast([3, 0, 1]))
def test_late_classes_reach_their_rows(delay):
    followed, labels = Followed(CLASSES, delay), [0, 1, 1, 2, np.nan, 1, 3, 0, 0, 0, 0, 4]
    for i, label in enumerate(labels):
        row, told, _ = followed.push(0.0, float(label))
        came = labels[: max(i - delay, 0)]
        seen = [y for y in came if y == y]
        last = seen[-1] if seen else -1
        most = max(set(seen), key=lambda y: (seen.count(y), -_last_at(seen, y)), default=-1)
        assert row.moments.tolist() == [len(set(seen)), 1]
        assert row.baselines.tolist() == [last, most]
        due = labels[i - delay] if i >= delay else np.nan
        assert told.known == told.is_scored == (due == due)
        assert not told.known or told.label == told.feature == due
    _, told, _ = Followed(CLASSES).push(0.0, -1.0)  # a class without room
    assert told.is_scored and not told.known


def _last_at(seen, label):
    """Return when a label last came: of two that came as often, the first one to do so leads."""
    return [i for i, y in enumerate(seen) if y == label][-1]


@pytest.mark.parametrize(("horizon", "delay"), fast([(3, 2), (0, 2), (1, 0), (0, 0)]))
def test_numbers_and_what_was_known_of_them_are_those_of_the_definition(horizon, delay):
    shape = dataclasses.replace(NUMBERS, outputs=max(horizon, 1), ahead=horizon > 0)
    followed, ys = Followed(shape, delay), [2.0, 4.0, np.nan, 9.0, 5.0, 5.0, 7.0, 1.0, 3.0, 8.0]
    for i, y in enumerate(ys):
        row, told, _ = followed.push(0.0, y)
        # With a horizon the row's own number, or that of `delay` rows before, is known.
        known = [one for one in ys[: max(i - delay + (horizon > 0), 0)] if one == one]
        mean, scale = (np.mean(known), np.std(known) or 1.0) if known else (0.0, 1.0)
        np.testing.assert_allclose(row.moments, [mean, scale], rtol=1e-12)
        np.testing.assert_allclose(row.baselines, [known[-1], mean] if known else [0.0, np.nan])
        first = i - delay - horizon  # the row whose label is complete
        label = ys[first + 1 : first + 1 + horizon] if horizon else ys[first : first + 1]
        assert (told.known and first >= 0) == (first >= 0 and not np.isnan(label).any())
        assert first < 0 or not told.known or told.label.tolist() == label


def settled(**options):
    """Return a stream whose column and labels have mean 0 and deviation 1."""
    followed = Followed(dataclasses.replace(NUMBERS, **options))
    for i in range(2 * TUNED.settled):
        followed.push((-1.0) ** i, (-1.0) ** i)
    return followed


def test_numbers_are_in_units_of_the_column_and_missing_ones_are_flagged():
    followed = settled()
    row, told, outliers = followed.push(2.0, np.nan)
    assert row.x[0] == pytest.approx(2, abs=0.1) and row.x[1] == 0
    assert not outliers.columns.any() and not outliers.label and not told.known
    row, *_ = followed.push(np.nan, 0.0)
    assert row.x.tolist() == [0, 1]
    constant = Followed(NUMBERS)
    for _ in range(100):
        assert constant.push(5.0, 1.0)[0].x[0] == 0
    assert constant.push(6.0, 1.0)[0].x[0] == TUNED.outlier


def test_outliers_follow_the_policy():
    clip, mask = settled(), settled(masks=True)
    before = mask.arrived
    for followed in (clip, mask):
        row, told, outliers = followed.push(1e9, -1e9)
        assert outliers.columns.tolist() == [True, False] and outliers.label
        assert followed.arrived.outliers.tolist() == [1, 1, 0]
    assert row.x.tolist() == [0, 1] and not told.known
    row, told, _ = settled().push(1e9, -1e9)
    assert 5 < row.x[0] <= 10 and row.x[1] == 0 and told.known
    assert abs(clip.arrived.target.all.mean[0]) < 1
    assert clip.arrived.streams.last == -1e9 and mask.arrived.streams.last == -1
    assert_same(units(before)[:2], units(mask.arrived)[:2])


def test_scores_by_hand():
    log, score = np.log([0.5, 0.3, 0.2]), jax.jit(score_class)

    def of_class(label, count, last, most):
        found = score(np.array(label), log, np.array(count), np.array([last, most]))
        return dict(zip(OF_CLASSES, found.tolist(), strict=True))

    assert all(np.isnan(value) for value in of_class(0.0, 0.0, -1.0, -1.0).values())
    new = of_class(1.0, 1.0, 0.0, 0.0)  # b is new, a is said
    assert new["accuracy"] == 0 and new["log_loss"] == pytest.approx(-np.log(0.3))
    assert new["confidence"] == 1 and new["no_change_accuracy"] == 0
    again = of_class(0.0, 3.0, 1.0, 0.0)
    assert again["accuracy"] == 1 and again["confidence"] == pytest.approx(0.5)
    assert (again["no_change_accuracy"], again["majority_accuracy"]) == (0, 1)
    without_room = of_class(-1.0, 2.0, -1.0, 0.0)
    assert without_room["log_loss"] == pytest.approx(-np.log(1e-15))
    assert sum(without_room[name] for name in OF_CLASSES if "accuracy" in name) == 0

    label, output = np.array([2.0, 4.0]), np.array([1.0, 4.5])
    margins, baselines = np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([2.0, 6.0])
    found = jax.jit(score_numbers)(label, output, baselines, margins)
    scores = dict(zip(OF_NUMBERS, found.tolist(), strict=True))
    assert scores["mae"] == 0.75 and scores["mse"] == (1 + 0.25) / 2
    assert scores["no_change_mae"] == 1 and scores["mean_mae"] == 3
    # Label 2 is above its interval, 1 +- .5; label 4 is in 3.5 ... 4.5.
    assert scores["coverage"] == 0.5 and scores["width"] == 1.0
