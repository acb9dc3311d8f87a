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
