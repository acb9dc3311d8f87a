"""What stands beside an agent in the table of the load is what its name says."""

import numpy as np
import pytest

from foretrace.rl import Series

MEMORY, DISCOUNT = 0.8, 0.9


@pytest.fixture
def load(benchmark):
    return benchmark("agents.predictions")


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """x_t = 0.8 x_{t-1} + noise, whose value is 0.8 x_t / (1 - 0.9 * 0.8) on average."""
    noise, xs = np.random.default_rng(0).normal(size=3000), [0.0]
    for n in noise:
        xs.append(MEMORY * xs[-1] + n)
    path = tmp_path_factory.mktemp("series") / "x.csv"
    path.write_text("\n".join(["x", *map(str, xs)]))
    return Series(str(path), "x", scaling_rows=len(xs))


def test_errors_are_shares_of_the_variance(load, series):
    steps = series.row_count - 1
    values, known = series.values(DISCOUNT)
    found = load.errors(series, DISCOUNT, steps, values[:steps] + 2.0)
    assert found["mean"] == pytest.approx(4 / series.spread(DISCOUNT), rel=1e-3)
    constant = load.errors(series, DISCOUNT, steps, load.constant(series, DISCOUNT, steps))["mean"]
    last = np.arange(int(0.9 * steps), steps)
    assert constant == pytest.approx(
        values[last][known[last]].var() / series.spread(DISCOUNT), rel=1e-3
    )
    np.testing.assert_allclose(
        load.last_value(series, DISCOUNT, steps), series.cumulants()[:steps] * 10
    )


def test_windows_hold_the_last_rows_and_nothing_else(load, series):
    seen = np.array([x for x, _ in zip(load.windows(series, 3, 9), range(10), strict=True)])
    assert seen.shape == (10, 4) and (seen[:, 3] == 1).all()
    np.testing.assert_array_equal(seen[1:, 1:3], seen[:-1, :2])
    column = series.table.rows[:10, 0]
    np.testing.assert_allclose(
        seen[9, 0], (column[9] - column.mean()) / column.std(ddof=1), rtol=1e-6
    )


def test_linear_predictions_find_the_value_of_a_process_that_is_linear(load, series):
    steps = 2900
    cumulants = series.cumulants()[:steps]
    best = MEMORY * (cumulants - cumulants.mean()) / (1 - DISCOUNT * MEMORY)
    late = slice(2000, steps)
    for found in (
        load.least_squares_td(series, DISCOUNT, steps, 2, 0.8),
        load.linear_td(series, DISCOUNT, steps, 1, 0.8, 1e-2),
    ):
        assert np.corrcoef(found[late], best[late])[0, 1] > 0.9
        assert np.mean((found - best)[late] ** 2) < 0.3 * best[late].var()
