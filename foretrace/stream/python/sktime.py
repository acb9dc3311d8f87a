"""The forecaster as an estimator of sktime that continues to learn."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace._runs.signals import Uninterrupted
from foretrace.stream.model.model_config import ModelConfig, Size
from foretrace.stream.python.arrays import check_lengths, frame_rows
from foretrace.stream.python.next_steps import NextSteps

if TYPE_CHECKING:
    import pandas as pd

try:
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
except ImportError as error:
    raise ImportError(
        "foretrace.stream.SktimeForecaster needs sktime: pip install 'foretrace[sktime]'"
    ) from error


class SktimeForecaster(BaseForecaster):
    """Forecaster of sktime that learns value by value, as a mixture or as a network.

    `fit(y[:n]).update(y[n:])` equals `fit(y)`, bit for bit. Each value is learned once, in the
    order of the index. `update` skips values up to the last learned value, so windows may overlap.
    It warns if no value is later than the last learned value, or if some values are earlier than
    the first one. The cutoff never moves back. Exogenous variables X are learned with the value of
    the same index. Of their future values, only those of `known` columns are used. If y has several
    columns or is hierarchical, sktime makes a model for each series.

    Args:
        horizon: number of steps ahead that are learned. Default: the largest step of `fh`, which
            `fit` then needs.
        size: short form of `model=ModelConfig(size=size)`, such as "small". Give only one of the
            two.
        model: experts, network, learning rule and optimiser. Default: a mixture of cheap experts.
        features: number of inputs for X. Default: as many as the first row needs, and some for
            features that appear later.
        at_least: lower bound of forecasts and of the ends of their intervals, such as 0 for counts.
            Default: none.
        known: columns of X that are known in advance. `predict` takes their future values, without
            gaps from the first step on.

    Raises:
        ValueError: an option is out of range; or, in `fit` and `update`, the index of y has
            repetitions.

    >>> import pandas as pd
    >>> from foretrace.stream import ModelConfig, SktimeForecaster
    >>> y = pd.Series([1.0, 2.0] * 20)
    >>> forecaster = SktimeForecaster(model=ModelConfig(experts=("baselines",)))
    >>> forecaster.fit(y, fh=[1, 2]).predict().index.tolist()
    [40, 41]
    """

    _tags = {
        "authors": ["foretrace"],
        "maintainers": ["foretrace"],
        "python_dependencies": ["jax"],
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "requires-fh-in-fit": True,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:update": True,
    }
    _config = {"remember_data": False}  # the model has the learned state

    def __init__(
        self,
        horizon: int | None = None,
        size: Size | None = None,
        model: ModelConfig | None = None,
        features: int | None = None,
        at_least: float | None = None,
        known: Sequence[str] | None = None,
    ):
        self.horizon = horizon
        self.size = size
        self.model = model
        self.features = features
        self.at_least = at_least
        self.known = known
        self._X = self._y = None  # where sktime stores data if `remember_data` is turned on
        super().__init__()
        if horizon is not None:
            self._new_model(horizon)  # raises an error if an option is out of range
            self.set_tags(**{"requires-fh-in-fit": False})

    def _new_model(self, horizon: int) -> NextSteps:
        options: dict[str, Any] = {"at_least": self.at_least, "known": self.known}
        return NextSteps(horizon, self.size, self.model, self.features, **options)

    def _fit(self, y: "pd.Series", X: "pd.DataFrame | None", fh: Any) -> "SktimeForecaster":
        horizon = self.horizon
        if horizon is None:
            horizon = int(max(fh.to_relative(self.cutoff).to_numpy().max(), 1))
        self._learner, self._last, self._name = self._new_model(horizon), None, y.name
        self._first = y.index[0]
        return self._update(y, X)

    def _set_cutoff_from_y(self, y: Any) -> None:
        """Move the cutoff to the last value, but never backwards."""
        before = getattr(self, "_learned_to", self.cutoff)
        super()._set_cutoff_from_y(y)
        if before is not None and self.cutoff[0] < before[0]:
            self._set_cutoff(before)

    def _update(
        self, y: "pd.Series", X: "pd.DataFrame | None" = None, update_params: bool = True
    ) -> "SktimeForecaster":
        if not update_params:
            warnings.warn(
                "SktimeForecaster: update_params=False has no effect: a value cannot be remembered "
                "without being learned",
                stacklevel=3,
            )
        try:
            self._learn(y, X)
        except Exception:
            if self._last is not None:  # sktime has already moved the cutoff
                self._set_cutoff(self._cutoff_at(y.index))
            raise
        self._learned_to = self.cutoff
        return self

    def _cutoff_at(self, index: "pd.Index") -> "pd.Index":
        """Return the cutoff at the last value that was learned."""
        before = getattr(self, "_learned_to", None)
        if before is not None and before[0] == self._last:
            return before
        here = index[index == self._last][-1:]
        if hasattr(here, "inferred_freq"):  # of dates; the slice has lost it
            here.freq = self.cutoff.freq
        return here

    def _learn(self, y: "pd.Series", X: "pd.DataFrame | None") -> None:
        """Learn the values that come after the last one that was learned."""
        if lacking := {*(self.known or ())} - {*(() if X is None else X.columns)}:
            raise ValueError(f"known={self.known}: X has no column {min(lacking)!r}")
        if not y.index.is_unique:
            again = y.index[y.index.duplicated()][0]
            raise ValueError(
                f"the index of y repeats {again}; each value is learned once: leave out what is "
                "repeated"
            )
        if self._last is not None:
            given, y = y, y[y.index > self._last]
            if y.empty or given.index[0] < self._first:
                warnings.warn(
                    f"SktimeForecaster: update passes over {len(given) - len(y)} values up to "
                    f"{self._last}, the last one that was learned; values are learned in the order "
                    "of the index: fit again to learn earlier ones",
                    stacklevel=4,
                )
        rows = [{}] * len(y) if X is None else frame_rows(X.loc[y.index])
        check_lengths(rows, y)
        for value, x, index in zip(y, rows, y.index, strict=True):
            with Uninterrupted():  # if this ends early, learned values are not learned again
                self._learner.learn_one(value, x)
                self._last = index

    def _predict(self, fh: Any, X: "pd.DataFrame | None") -> "pd.Series":
        import pandas as pd

        steps, index = self._steps(fh)
        values = np.array(self._learner.forecast(self._learner.horizon, self._next(fh, X)))[steps]
        return pd.Series(values, index=index, name=self._name)

    def _predict_interval(
        self, fh: Any, X: "pd.DataFrame | None", coverage: Sequence[float]
    ) -> "pd.DataFrame":
        import pandas as pd

        steps, index = self._steps(fh)
        xs = self._next(fh, X)
        ends = [self._ends(share, xs)[steps] for share in coverage]
        columns = pd.MultiIndex.from_product([self._get_varnames(), coverage, ["lower", "upper"]])
        return pd.DataFrame(np.concatenate(ends, axis=1), index=index, columns=columns)

    def _ends(self, share: float, xs: list[dict[Any, Any]] | None) -> np.ndarray:
        horizon = self._learner.horizon
        if share == 0:  # the median
            return np.repeat(np.array(self._learner.forecast(horizon, xs))[:, None], 2, axis=1)
        return np.array(self._learner.forecast_interval(horizon, share, xs))

    def _next(self, fh: Any, X: "pd.DataFrame | None") -> list[dict[Any, Any]] | None:
        """Return the known features of the next steps, or None."""
        if X is None or not self.known:
            return None
        steps = ForecastingHorizon(range(1, self._learner.horizon + 1), freq=fh.freq)
        return frame_rows(X.reindex(steps.to_absolute_index(self.cutoff)))

    def _steps(self, fh: ForecastingHorizon) -> tuple[np.ndarray, "pd.Index"]:
        """Return the positions of the requested steps in the forecast, and their index labels.

        Raises:
            ValueError: a requested step is beyond the learned horizon.
        """
        steps = fh.to_relative(self.cutoff).to_numpy()
        last = self._learner.horizon
        bad = steps[(steps < 1) | (steps > last)]
        if len(bad):
            raise ValueError(
                f"fh={bad[0]}: steps 1 to {last} after the last value are learned; choose among "
                "these, or make the model with a greater `horizon`"
            )
        return steps - 1, fh.to_absolute_index(self.cutoff)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return options for the checks of sktime."""
        few = ModelConfig(experts=("baselines", "lags"))
        return [
            {"model": few},
            {"horizon": 30, "model": ModelConfig(experts=("baselines",)), "features": 8},
        ]
