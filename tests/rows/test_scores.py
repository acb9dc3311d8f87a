"""Means of scores, and gains over baselines, from the sums of a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foretrace.stream.model.score import OF_CLASSES, OF_NUMBERS, of_row, sums_of
from foretrace.stream.model.tallies import tally
from foretrace.stream.read.scores import BINS, Tallies, means, not_better, of_classes

EXPERTS = ("a", "b")


def summed(names, rows, errors=(0.0, 0.0)):
    """Return the sums of rows of scores by name, as the program adds them."""
    scores = jnp.array([[row.get(name, 0.0) for name in names] for row in rows])
    of_each = jax.vmap(lambda row: of_row(names, row, jnp.array(errors)))
    total = np.asarray(jax.jit(of_each)(scores)).sum(axis=0)
    return dict(zip(sums_of(names, EXPERTS), total.tolist(), strict=True))


@pytest.mark.exact
def test_sums_are_those_of_rows_with_scores():
    draw = np.random.default_rng(0)
    rows = [dict(zip(OF_NUMBERS, draw.normal(size=8) ** 2, strict=True)) for _ in range(50)]
    sums = summed(OF_NUMBERS, [*rows, {"mae": np.nan}], (0.5, 2.0))
    assert sums["rows"] == 50 and (sums["a"], sums["b"]) == (25.0, 100.0)
    found = means(OF_NUMBERS, sums)
    for name, value in found.items():
        each = [row[name.removesuffix("rmse") + "mse" if "rmse" in name else name] for row in rows]
        mean = np.mean(each)
        assert value == pytest.approx(np.sqrt(mean) if "rmse" in name else mean, rel=1e-12)
    assert sums["squared"] == pytest.approx(sum(row["mae"] ** 2 for row in rows), rel=1e-12)
    assert means(OF_NUMBERS, dict.fromkeys(sums, 0.0)) == {}


@pytest.mark.exact
def test_the_calibration_error_compares_probability_and_accuracy_in_bins():
    rows = [{"accuracy": float(i < 3), "confidence": 0.95} for i in range(4)]
    rows += [{"accuracy": 1.0, "confidence": 0.55}, {"accuracy": 1.0, "confidence": 1.0}]
    sums = summed(OF_CLASSES, rows)
    gaps = abs(3 - 4 * 0.95 + 1 - 1.0) + abs(1 - 0.55)
    assert means(OF_CLASSES, sums)["calibration_error"] == pytest.approx(gaps / 6, rel=1e-12)


@pytest.mark.parametrize(("better", "found"), [(0.0, ["no_change_"]), (0.5, [])])
def test_a_gain_within_its_standard_error_is_none(better, found):
    draw = np.random.default_rng(0)
    pairs = zip(draw.normal(size=500), draw.normal(size=500) + better, strict=True)
    rows = [{"mae": mine, "no_change_mae": last, "mean_mae": 0.0} for mine, last in pairs]
    assert not_better(OF_NUMBERS, summed(OF_NUMBERS, rows)) == found


def test_labels_in_one_bin_have_the_precision_of_its_middle():
    """One label is above all else; below, two labels and two other rows share a bin."""
    tallies, half = Tallies(np.zeros((3, 1)), np.zeros((1, 2, BINS))), BINS // 2
    tallies.by_odds[0, :, half + 7] = 0, 1
    tallies.by_odds[0, :, half + 2] = 2, 2
    (line,) = of_classes([], {"up": 0.5}, tallies)
    assert (line["labels"], line["predicted"], line["recall"]) == (3, 5, 1.0)
    # The mean place of a label in its bin is 1.5 of 2, the mean place of a row 2.5 of 4.
    middle = (1 + 1.5) / (1 + 2.5)
    assert line["average_precision"] == pytest.approx((1 + 2 * middle) / 3, rel=1e-12)


def test_an_alarm_of_a_class_that_has_not_come_counts_no_label_without_room():
    tallies = Tallies(jnp.zeros((3, 2)), jnp.zeros((1, 2, BINS)))
    index, watched, two = jnp.array(-1.0), jnp.array([-1.0]), jnp.array(2.0)
    found = tally(tallies, index, jnp.zeros(2), two, watched, (0.3,))
    assert found.by_odds.sum(axis=2).tolist() == [[1.0, 0.0]]  # a row with another label
    assert found.of_classes[0].tolist() == [0.0, 0.0]
