"""The forecasting boards see no value before its time, and score the windows of the protocol."""

import numpy as np
import pytest

from benchmarks.streams import forecasting

HORIZON, SEASON = 3, 7


def table(rows=90):
    draw = np.random.default_rng(0)
    return np.cumsum(draw.normal(size=(rows, 2)), axis=0)


@pytest.mark.parametrize(
    "way",
    [pytest.param(w, marks=[pytest.mark.full] * (w == "foretrace")) for w in forecasting.WAYS],
)
def test_no_forecast_sees_the_future(way):
    first, other = table(), table()
    other[60:] = 100 - other[60:]
    one, two = (forecasting.forecast(way, values, HORIZON, SEASON) for values in (first, other))
    assert one.shape == (90, 2, HORIZON)
    np.testing.assert_array_equal(one[:60], two[:60])
    assert np.abs(one[60:70] - two[60:70]).max() > 1


def test_the_windows_are_those_whose_targets_are_all_test_rows():
    values = table(20)
    exact = np.full((20, 2, HORIZON), np.nan)
    # A window counts from row 9, whose first target is row 10, to row 16, whose last one is row 19.
    for t in range(9, 17):
        exact[t] = values[t + 1 : t + 1 + HORIZON].T
    assert forecasting.errors(exact, values, 10) == (0.0, 0.0)
    exact[16, 0, 2] += 4
    assert forecasting.errors(exact, values, 10) == pytest.approx(
        (16 / (8 * 2 * 3), 4 / (8 * 2 * 3))
    )


def test_least_squares_are_those_of_all_targets_so_far():
    values = table(200)
    found = forecasting.forecast("least squares on 96 differences", values, HORIZON, SEASON)
    steps = np.diff(values, axis=0, prepend=values[:1])
    padded = np.concatenate([np.zeros((95, 2)), steps])
    made = [(t, c) for t in range(150 - HORIZON + 1) for c in range(2)]
    x = np.array([padded[t : t + 96, c] for t, c in made])
    y = np.array([values[t + 1 : t + 1 + HORIZON, c] - values[t, c] for t, c in made])
    weights = np.linalg.solve(x.T @ x + np.eye(96), x.T @ y)
    np.testing.assert_allclose(
        found[150, 1] - values[150, 1], padded[150:246, 1] @ weights, rtol=1e-8
    )
