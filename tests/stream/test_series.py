"""The verbs of sktime: one stream bit for bit, several horizons, the index continued, intervals, harmless errors."""

import numpy as np
import pytest
from tiers import fast

from foretrace.stream import _river as stream
from foretrace.stream._model_config import ModelConfig

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.usefixtures("standard_promotion")
FEW = ModelConfig(experts=("baselines", "short"))
BASELINES = ModelConfig(experts=("baselines",))


class Horizon:
    """What is read of sktime's ForecastingHorizon."""

    def __init__(self, values, is_relative):
        self.values, self.is_relative = pd.Index(values), is_relative

    def to_relative(self, cutoff=None):
        raise NotImplementedError

    def to_pandas(self):
        return self.values

    def to_numpy(self):
        return self.values.to_numpy()


def series(count=80, index=None):
    draw = np.random.default_rng(0)
    values = 10 + np.sin(np.arange(count) / 3) + 0.1 * draw.normal(size=count)
    index = pd.date_range("2024-01-01", periods=count, freq="h") if index is None else index
    return pd.Series(values, index=index, name="load")


def make():
    return stream.Forecaster(horizon=4, features=8, model=FEW)


def test_fit_and_update_are_one_stream_bit_for_bit():
    y = series()
    X = pd.DataFrame({"hour": y.index.hour.astype(float), "day": y.index.day.astype(str)}, index=y.index)
    whole = make().fit(y, X)
    parts = make().fit(y[:30], X[:30]).update(y[30:31], X[30:31]).update(y[31:], X[31:])
    singly = make()
    for value, x in zip(y, X.to_dict("records"), strict=True):
        singly.learn_one(value, x)
    for other in (parts.predict(), parts.predict_interval(coverage=[0.5, 0.9])):
        assert other.index.equals(pd.date_range(y.index[-1], periods=5, freq="h")[1:])
    pd.testing.assert_series_equal(whole.predict(), parts.predict(), check_exact=True)
    intervals = whole.predict_interval(coverage=[0.5, 0.9])
    pd.testing.assert_frame_equal(intervals, parts.predict_interval(coverage=[0.5, 0.9]), check_exact=True)
    assert whole.predict().tolist() == singly.forecast(4)
    assert intervals.columns.tolist() == [("load", c, end) for c in (0.5, 0.9) for end in ("lower", "upper")]
    assert intervals["load"][0.9].to_numpy().tolist() == [list(ends) for ends in singly.forecast_interval(4)]
    again = whole.fit(y, X)  # begins anew
    pd.testing.assert_series_equal(again.predict(), parts.predict(), check_exact=True)


@pytest.mark.full
def test_the_index_is_continued_and_horizons_chosen():
    y = series()
    model = make().fit(y, fh=[1, 3])
    assert model.predict().index.tolist() == [y.index[-1] + pd.Timedelta(hours=h) for h in (1, 3)]
    assert model.predict().name == "load" and model.predict(2).shape == (1,)
    assert model.predict([4, 1]).tolist() == model.predict([1, 4]).tolist()[::-1]
    assert model.predict(y.index[-1:] + pd.Timedelta(hours=3)).tolist() == model.predict(3).tolist()
    assert model.predict_interval(2).shape == (1, 2)
    model.update(series(3, model.predict([1, 2, 3]).index))
    assert model.cutoff == y.index[-1] + pd.Timedelta(hours=3)
    assert model.predict(1).index[0] == model.cutoff + pd.Timedelta(hours=1)


@pytest.mark.full
@pytest.mark.parametrize(
    ("index", "following"),
    fast(
        [
            (pd.RangeIndex(10, 50), [50, 51]),
            (pd.RangeIndex(0, 80, 2), [80, 82]),
            (pd.Index(range(5, 45)), [45, 46]),
            (
                pd.period_range("2020-01", periods=40, freq="M"),
                pd.period_range("2023-05", periods=2, freq="M").tolist(),
            ),
            (pd.date_range("2020-01-31", periods=40, freq="ME"), pd.to_datetime(["2023-05-31", "2023-06-30"]).tolist()),
        ]
    ),
)
def test_every_regular_index(index, following):
    model = stream.Forecaster(horizon=2, features=4, model=BASELINES)
    y = series(40, index)
    assert model.fit(y[:39]).update(y[39:]).predict().index.tolist() == following
    frame = model.fit(y.to_frame()).predict()
    assert frame.columns.tolist() == ["load"] and frame.index.tolist() == following


@pytest.mark.full
def test_arrays_come_out_as_arrays():
    y, X = series().to_numpy(copy=True), np.arange(160.0).reshape(80, 2)
    model = make().fit(y[:50], X[:50]).update(y[50:].tolist(), X[50:])
    assert isinstance(model.predict(), np.ndarray) and model.predict([1, 4]).shape == (2,)
    assert model.predict_interval(coverage=[0.5, 0.9]).shape == (4, 4) and model.cutoff is None
    assert model.predict().tolist() == make().fit(y, X).predict().tolist()
    y[10] = np.nan
    assert np.isfinite(make().fit(y).predict()).all()


def test_errors_leave_the_model_as_it_was():
    y, model = series(), make()
    with pytest.raises(ValueError, match=r"no series was learned; call fit\(y\) first"):
        model.predict()
    model.fit(y[:40])
    before = model.predict().tolist()
    uneven = y.iloc[[0, 1, 4, 9]]
    wrong = [
        (lambda: model.predict(5), "fh=5: steps 1 to 4 after the last value are learned"),
        (lambda: model.predict([0, 1]), "fh=0: steps 1 to 4"),
        (lambda: model.predict([]), r"fh=\[\]: steps"),
        (lambda: model.predict(y.index[:1]), "fh=2024-01-01 00:00:00: steps"),
        (lambda: model.fit(y, fh=9), "fh=9: steps"),
        (lambda: model.update(y[39:]), "y begins at .* and each is learned once"),
        (lambda: model.update(y[40:].to_numpy()), "y came as array and what was learned as series"),
        (lambda: model.update(y[40:], y[41:].to_frame()), "X has 39 rows and y 40"),
        (lambda: model.update(y[40:], y[:40].to_frame()), "X has another index than y"),
        (lambda: model.fit(np.ones((3, 2))), r"y has the shape \(3, 2\), expected one column"),
        (lambda: model.predict_interval(coverage=0.999), "coverage=0.999 must be above 0"),
        (lambda: stream.Forecaster(2, member="who").fit(y), "learn members by learn_one"),
        (lambda: make().fit(uneven).predict(), "has no constant step.*give y a frequency"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    assert model.predict().tolist() == before


@pytest.mark.full
def test_absolute_horizons_are_indices_also_where_these_are_numbers():
    model = stream.Forecaster(horizon=8, features=4, model=BASELINES)
    model.fit(series(5, pd.RangeIndex(5)))
    for fh, steps in ((Horizon([7], False), [3]), (Horizon([7], True), [7]), (Horizon([5, 12], False), [1, 8])):
        pd.testing.assert_series_equal(model.predict(fh), model.predict(steps), check_exact=True)
        assert model.predict(fh).index.tolist() == [4 + step for step in steps]
    for outside in (4, 13):
        with pytest.raises(ValueError, match=f"fh={outside}: steps 1 to 8 after the last value"):
            model.predict(Horizon([7, outside], False))
    y = series(5)
    dated = model.fit(y).predict(Horizon(y.index[-1:] + pd.Timedelta(hours=2), False))
    assert dated.tolist() == model.predict(2).tolist()
    model.fit(y.to_numpy())
    with pytest.raises(ValueError, match="an array has no index in which an absolute horizon could be found"):
        model.predict(Horizon([7], False))
    assert model.predict(Horizon([7], True)).shape == (1,)


@pytest.mark.full
@pytest.mark.parametrize("index", [None, pd.RangeIndex(0, 10, 2), pd.period_range("2020-01", periods=5, freq="M")])
def test_a_value_that_comes_alone_moves_the_index_on(index):
    y = series(5, index)
    model = stream.Forecaster(horizon=2, features=4, model=BASELINES).fit(y[:3])
    model.learn_one(y.iloc[3])
    assert model.cutoff == y.index[3] and model.predict(1).index[0] == y.index[4]
    with pytest.raises(ValueError, match="and each is learned once"):
        model.update(y[3:])
    whole = stream.Forecaster(horizon=2, features=4, model=BASELINES).fit(y)
    pd.testing.assert_series_equal(model.update(y[4:]).predict(), whole.predict(), check_exact=True)


@pytest.mark.full
def test_the_cutoff_is_that_of_the_last_value_before_an_error(monkeypatch):
    y, model = series(6), stream.Forecaster(horizon=2, features=4, model=BASELINES)
    learn, fail_at = model._learn_value, [3]

    def failing(value, x):
        if value == y.iloc[fail_at[0]]:
            raise KeyboardInterrupt
        learn(value, x)

    monkeypatch.setattr(model, "_learn_value", failing)
    with pytest.raises(KeyboardInterrupt):
        model.fit(y)
    assert model.cutoff == y.index[2]
    fail_at[0] = 5
    with pytest.raises(KeyboardInterrupt):
        model.update(y[3:])
    assert model.cutoff == y.index[4]
    monkeypatch.undo()
    whole = stream.Forecaster(horizon=2, features=4, model=BASELINES).fit(y)
    pd.testing.assert_series_equal(model.update(y[5:]).predict(), whole.predict(), check_exact=True)


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 5])
def test_an_index_that_cannot_be_continued(count):
    model = stream.Forecaster(horizon=2, features=4, model=BASELINES)
    texts = pd.date_range("2024-01-01", periods=count).strftime("%Y-%m-%d")
    with pytest.raises(ValueError, match=r"the index of y is text or mixed, such as '2024-01-01'.*pd.to_datetime"):
        model.fit(series(count, texts))
    for index in (pd.Index(np.arange(count) / 2), pd.to_timedelta(np.arange(count), "h")):
        model.fit(series(count, index))  # learned, but nothing says which index comes next
        assert model.cutoff == index[-1] and len(model.forecast(2)) == 2
        model.learn_one(1.0)
        with pytest.raises(ValueError, match="no constant step of time or whole numbers, so it cannot"):
            model.predict()


@pytest.mark.full
def test_a_model_of_members_is_not_forgotten_by_the_error():
    model = stream.Forecaster(2, features=4, model=BASELINES, member="who")
    for i in range(10):
        model.learn_one(i % 3, {"who": "a"})
    before = model.forecast(2)
    for verb in (model.fit, model.update):
        with pytest.raises(ValueError, match="member='who': a series at a time belongs to one stream"):
            verb(series())
    assert model.forecast(2) == before != [0.0, 0.0]


@pytest.mark.program
@pytest.mark.parametrize("size", ["tiny", "auto"])
def test_intervals_of_estimators_hold_their_share(size):
    draw, model = np.random.default_rng(0), stream.Regressor(size, features=4)
    assert model.predict_interval_one({"x": 1.0}) == (-np.inf, np.inf)
    inside = []
    for _ in range(600):
        x = float(draw.normal())
        low, high = model.predict_interval_one({"x": x}, 0.8)
        y = x + float(draw.exponential())
        inside.append(low <= y <= high)
        before = model.predict_interval_one({"x": x}, 0.95)
        assert before[0] <= low <= high <= before[1]
        model.learn_one({"x": x}, y)
    assert 0.75 < np.mean(inside[50:]) < 0.85
