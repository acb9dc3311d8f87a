"""Numbers predicted from the last known one: what is learned, what is scored, what is missing or an outlier."""

import json

import numpy as np
import pytest

from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import Baseline, NumberTarget, number_predictions
from foretrace._rows.running import MEMORY, SETTLED
from foretrace._rows.scores import score_numbers
from foretrace._rows.target import NumberContext


def make_labels(mode, **options):
    target = NumberTarget(max(options.get("horizon", 0), 1), mode=mode)
    return DelayedLabels(Encoder(), target, **options)


def walk(count, keep=1.0, seed=0):
    rng, y, ys = np.random.default_rng(seed), 100.0, []
    for _ in range(count):
        y = 100 + keep * (y - 100) + rng.normal()
        ys.append(y)
    return ys


@pytest.mark.parametrize("options", [{}, {"delay": 2}, {"horizon": 3}, {"horizon": 2, "delay": 1}])
def test_an_output_of_zero_is_no_change_and_the_label_is_the_change_in_its_scale(options):
    changes, ys = make_labels("change", **options), walk(60)
    for y in ys:
        changes.push({}, y)
    dues = changes.pop_resolved(100)
    late, square = options.get("delay", 0) + (not options.get("horizon")), 0.0
    for n, due in enumerate(dues):
        last = ys[n - late] if n >= late else None
        assert due.context.last == last
        found = score_numbers(due, np.zeros(len(due.targets)))
        if last is None:
            assert found["mae"] == found["mean_mae"]
            continue
        assert found["mae"] == pytest.approx(found["no_change_mae"], rel=1e-12)
        change = np.asarray(due.targets) - last
        square = square + (change**2 - square) / (n - late + 1)
        np.testing.assert_allclose(due.label, change / np.sqrt(square), rtol=1e-9)
        # Had the network known its label, and the scale of now been that of then, it would have been right.
        context = due.context._replace(scale=np.sqrt(square))
        np.testing.assert_allclose(number_predictions(context, due.label), due.targets, rtol=1e-9)


@pytest.mark.parametrize(("keep", "weight"), [(1.0, 0.99), (0.8, 0.8), (0.0, 0.0)])
def test_the_weight_of_the_last_number_is_found(keep, weight):
    guess = make_labels("auto")
    for y in walk(3000, keep):
        guess.push({}, y)
    assert guess.target.baseline.weight[0] == pytest.approx(weight, abs=0.04)


def test_values_are_learned_from_the_running_mean():
    target = NumberTarget()
    for y in (1.0, 3.0, 5.0):
        target.learn(y)
    assert target.context() == NumberContext(
        3.0,
        5.0,
        3.0,
        target.moments.scale,
        target.moments.scale,
        target.intervals.margins(target.moments.scale).tolist(),
    )
    assert target.describe(np.ones(1)) == [3.0 + target.moments.scale]


def test_an_outlier_is_no_baseline_and_its_residual_is_clipped():
    changes = make_labels("change")
    for y in walk(2 * SETTLED, keep=0.5):
        changes.push({}, y)
    for y in (1e25, None, "inf", 100.0):
        changes.push({}, y)
    *_, outlier, missing, infinite, back = changes.pop_resolved(1000)
    assert 5 < outlier.label[0] <= 10 and missing.label is None and infinite.label is None
    assert abs(back.context.base[0]) < 1e3 and abs(back.label[0]) <= 10 and np.isfinite(back.context.scale).all()
    assert changes.target.baseline.scale[0] < 100


@pytest.mark.parametrize("mode", ["change", "auto"])
def test_labels_of_changes_go_on_from_its_state(mode):
    ys = [None if i % 7 == 3 else y for i, y in enumerate(walk(80))]
    one, two = (make_labels(mode, horizon=2, delay=3) for _ in range(2))
    for y in ys[:40]:
        one.push({}, y)
    two.restore(json.loads(json.dumps(one.to_json())))
    for y in ys[40:]:
        np.testing.assert_array_equal(one.push({}, y), two.push({}, y))
    assert one.to_json() == two.to_json() and one.pop_resolved(100) == two.pop_resolved(100)


def test_the_scale_stays_exact_after_a_billion_rows():
    baseline = Baseline(1, "auto", 10.0)
    baseline.restore([MEMORY, [[MEMORY, 0.0, 4.0, 0, [0, 0.0, 0.0]]], [2.0], 4.0])
    baseline.learn([2.0], [1.0], 2.0)
    assert baseline.count == MEMORY and baseline.scale[0] == 2.0 and baseline.weight[0] == 0.5
