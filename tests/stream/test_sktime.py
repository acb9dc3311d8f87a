"""The estimator of sktime: its own checks, one stream bit for bit, overlaps, intervals."""

import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sktime")
pd = pytest.importorskip("pandas")

from foretrace.stream import ModelConfig, SktimeForecaster, run  # noqa: E402
from foretrace.stream.python.next_steps import NextSteps  # noqa: E402

FEW = ModelConfig(experts=("baselines", "lags"))
BASELINES = ModelConfig(experts=("baselines",))


def series(count=80):
    draw = np.random.default_rng(0)
    values = 10 + np.sin(np.arange(count) / 3) + 0.1 * draw.normal(size=count)
    return pd.Series(values, pd.date_range("2024-01-01", periods=count, freq="h"), name="load")


def make(**options):
    return SktimeForecaster(**{"horizon": 4, "features": 8, "model": FEW} | options)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sktimes_own_checks(monkeypatch):
    """They are about the estimator, and say nothing of its experts."""
    from sktime.utils.estimator_checks import check_estimator

    cheap = [{"model": BASELINES}, {"horizon": 30, "model": BASELINES, "features": 8}]
    monkeypatch.setattr(SktimeForecaster, "get_test_params", lambda parameter_set="default": cheap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(SktimeForecaster, raise_exceptions=False, verbose=False)
    assert len(found) > 500 and {k: v for k, v in found.items() if v != "PASSED"} == {}


def said(model):
    """Return forecasts and intervals of a model."""
    fh = [1, 2, 3, 4]
    intervals = model.predict_interval(fh, coverage=[0.5, 0.9])
    return model.predict(fh).to_dict(), intervals.to_dict()


def test_fit_and_update_are_one_stream_bit_for_bit():
    y = series()
    hours, days = y.index.hour.astype(float), y.index.day.astype(str)
    X = pd.DataFrame({"hour": hours, "day": days}, index=y.index)
    whole = make().fit(y, X)
    parts = make().fit(y[:30], X[:30]).update(y[30:31], X[30:31])
    # Windows may overlap: what was learned is passed over.
    parts = pickle.loads(pickle.dumps(parts)).update(y[20:], X)  # of X, only rows of y count
    assert getattr(parts, "_y", None) is None  # memory does not grow
    singly = NextSteps(4, features=8, model=FEW)
    for value, x in zip(y, X.to_dict("records"), strict=True):
        singly.learn_one(value, x)
    found, intervals = said(whole)
    assert (found, intervals) == said(parts) and [*found.values()] == singly.forecast(4)
    assert [*found] == [*pd.date_range(y.index[-1], periods=5, freq="h")[1:]]
    ends = zip(*(intervals["load", 0.9, end].values() for end in ("lower", "upper")), strict=True)
    assert [*ends] == singly.forecast_interval(4)
    assert said(whole.fit(y, X)) == said(parts)  # begins anew


@pytest.mark.parametrize("older", [slice(30, 50), slice(0, 70)])
def test_older_values_are_named_and_leave_cutoff_and_forecast(older):
    """Those of 10 to 59 were learned; 60 to 69 are new."""
    y = pd.DataFrame({"a": series(), "b": 2 * series()})
    model, same = (make().fit(y[10:60]) for _ in range(2))
    passed = min(older.stop, 60) - older.start
    words = f"passes over {passed} values up to {y.index[59]}, the last one that was learned"
    with pytest.warns(UserWarning, match=words):
        model.update(y[older])
    if older.stop > 60:
        same.update(y[60:70])
    assert model.cutoff.equals(same.cutoff) and model.cutoff[0] == y.index[max(older.stop, 60) - 1]
    found = model.predict([1, 4])
    assert found.equals(same.predict([1, 4])) and found.index[0] > model.cutoff[0]
    assert model.fit(y[:20]).cutoff[0] == y.index[19]


BAD = [
    (lambda model, y: model.predict([1, 5]), "fh=5: steps 1 to 4 after the last value are learned"),
    (lambda model, y: model.update(y.iloc[[41, 41]]), "the index of y repeats|input data type"),
]


def test_errors_leave_the_model_as_it_was():
    """A value is missing; a quantile of .5 is the prediction."""
    y = series()
    y.iloc[10] = np.nan
    model = make().fit(y[:40])
    before = model.predict([1, 2]).tolist()
    assert np.isfinite(before).all()
    assert model.predict_quantiles([2], alpha=[0.5]).to_numpy().item() == before[1]
    for call, words in BAD:
        with pytest.raises((ValueError, TypeError), match=words):
            call(model, y)
    assert model.predict([1, 2]).tolist() == before
    with pytest.warns(UserWarning, match="update_params=False has no effect"):
        model.update(y[40:50], update_params=False)


@pytest.mark.full
def test_known_values_of_the_next_rows_count_in_a_run_in_river_and_in_sktime(tmp_path):
    """Sales rise by half on days with a promotion; rows without sales are to come."""
    draw, known = np.random.default_rng(0), {"horizon": 3, "known": ("promo",)}
    days = pd.date_range("2024-01-01", periods=207, freq="D")
    promo = (draw.uniform(size=207) < 0.3).astype(float)
    sales = pd.Series(100 * (1 + promo / 2) + draw.normal(size=207), days)
    X, few = pd.DataFrame({"promo": promo}, days), ModelConfig(experts=("baselines", "row"))
    table = X.assign(sales=sales.where(days < days[200])).reset_index(drop=True)
    result = run(table, tmp_path / "run", target="sales", model=few, **known)
    found = [row["sales"] for row in result.forecast]
    np.testing.assert_allclose(found, sales[200:203], rtol=0.05)
    assert result.rows == 200 and result.forecast[0]["row"] == 200
    rows, model = X.to_dict("records"), NextSteps(model=few, features=8, **known)
    for y, x in zip(sales[:200], rows[:200], strict=True):
        model.learn_one(y, given := dict(x))
        given.clear()  # the caller may fill it again
    np.testing.assert_allclose(model.forecast(3, rows[200:203]), found, rtol=1e-6)
    for wrong in ({"promo": "yes"}, {"promo+1": 1}):
        with pytest.raises(ValueError, match="promo"):
            model.forecast(3, [wrong] * 3)
    # Nothing has changed; values that are not given are missing.
    assert abs(model.forecast(1)[0] - found[0]) > 1
    np.testing.assert_allclose(model.forecast(3, rows[200:]), found, rtol=1e-6)
    other = SktimeForecaster(model=few, features=8, **known).fit(sales[:150], X[:150])
    with pytest.raises(ValueError, match="X has no column 'promo'"):
        other.update(sales[150:200])
    other.update(sales[150:200], X[150:200])
    np.testing.assert_allclose(other.predict([1, 2, 3], X=X[200:203]), found, rtol=1e-6)
    ends = other.predict_interval([1, 3], X=X[200:203], coverage=[0.9]).to_numpy()
    lows = [(row["sales_low"], row["sales_high"]) for row in result.forecast]
    np.testing.assert_allclose(ends, [lows[0], lows[2]], rtol=1e-6)


def test_a_refused_update_leaves_the_cutoff_at_the_last_value_that_was_learned():
    index = pd.date_range("2024-01-01", periods=60, freq="D")
    y = pd.Series(np.arange(60) % 7.0, index)
    promo = pd.DataFrame({"promo": np.arange(60) % 2.0}, index)
    model = SktimeForecaster(horizon=2, model=FEW, known=["promo"])
    model.fit(y[:40], X=promo[:40])
    with pytest.raises(ValueError, match="X has no column 'promo'"):
        model.update(y[40:45])
    assert model.cutoff[0] == index[39]
    broken = promo[40:45].astype(object)
    broken.iloc[2, 0] = "yes"
    with pytest.raises(ValueError, match="yes"):
        model.update(y[40:45], X=broken)
    assert model.cutoff[0] == model._last == index[41]
    model.update(y[40:50], X=promo[40:50])
    assert model.cutoff[0] == index[49]
