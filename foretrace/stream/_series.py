"""Series at a time, with the verbs and the conventions of sktime: `fit`, `update`, `predict`, `predict_interval`.

Everything goes through `learn_one` and `forecast`, value by value: `fit(a)` and `update(b)` are one stream of a and b,
bit for bit. What comes in as pandas goes out as pandas, with the index continued. pandas is imported only then.

    model = ft.stream.Forecaster(horizon=24).fit(y)
    model.predict([1, 24])            # values 1 and 24 steps after the last one
    model.update(more).predict()      # the next 24 values
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from foretrace._rows.intervals import check_coverage
from foretrace._runs.lock import locked
from foretrace._runs.signals import Uninterrupted
from foretrace.stream._arrays import check_lengths, frame_rows, targets_of

if TYPE_CHECKING:
    import pandas as pd


class Form(NamedTuple):
    """What a series came as, so that forecasts go out alike.

    Args:
        kind: array, series or frame.
        name: name of the series or of the column.
        last: last index; None for an array.
        step: what leads from one index to the next: a number, or an offset of pandas; None if it is not known.
    """

    kind: str
    name: Hashable
    last: Any
    step: Any


_Row = tuple[Any, dict[Any, Any], Any]
"""A value, what else is known of its step, and its index; None for an array."""


class SeriesMethods:
    """Verbs of sktime for a forecaster that learns value by value."""

    horizon: int
    member: Hashable | None

    if TYPE_CHECKING:

        def _forget(self) -> None: ...
        def _check(self, rows: Sequence[Any], targets: Sequence[Any]) -> None: ...
        def _learn_value(self, y: Any, x: Any) -> None: ...
        def _say_news(self, stacklevel: int = 5) -> None: ...
        def forecast(self, horizon: int) -> list[float]: ...
        def forecast_interval(self, horizon: int, coverage: float) -> list[tuple[float, float]]: ...

    def _begin_series(self) -> None:
        self._form: Form | None = None
        self._fh: Any = None

    @locked
    def fit(self, y: Any, X: Any = None, fh: Any = None) -> Self:
        """Begin anew and learn a series.

        Args:
            y: values: an array, a list, a pandas Series or a DataFrame of one column; NaN where one is missing.
            X: what else is known of each step: a DataFrame or an array with as many rows.
            fh: steps ahead that `predict` returns by default. Default: all that are learned.

        Raises:
            ValueError: y and X do not fit each other, or more steps ahead are asked for than are learned; or the model
                was made with `member`. What was learned before is then as it was.
        """
        rows, form = self._rows_of(y, X, None)
        if fh is not None:
            self._steps(fh, form)
        self._forget()
        self._fh = fh
        return self._learn_rows(rows, form)

    @locked
    def update(self, y: Any, X: Any = None) -> Self:
        """Learn the values that follow those so far; each value is learned once.

        Args:
            y: values, of the kind that was given to `fit`.
            X: what else is known of each step.

        Raises:
            ValueError: y and X do not fit each other, or y does not begin behind the last value; or the model was made
                with `member`.
        """
        rows, form = self._rows_of(y, X, self._form)
        return self._learn_rows(rows, form)

    @locked
    def predict(self, fh: Any = None, X: Any = None) -> Any:
        """Return the values at steps ahead of the last one, of the kind that y was.

        Args:
            fh: steps ahead: a number, some numbers, or later indices of the series; 1 is the next value. Whole numbers
                are steps, unless they are an absolute horizon of sktime. Default: those given to `fit`, else all that
                are learned.
            X: not used: a forecast is made from the rows before it.

        Raises:
            ValueError: nothing was learned, or a step is asked for that is not learned.
        """
        form, steps = self._asked(fh)
        values = np.array(self.forecast(self.horizon))[np.array(steps) - 1]
        if form.kind == "array":
            return values
        import pandas as pd

        index = _continued(form, steps)
        if form.kind == "series":
            return pd.Series(values, index=index, name=form.name)
        return pd.DataFrame({form.name: values}, index=index)

    @locked
    def predict_interval(self, fh: Any = None, X: Any = None, coverage: float | Sequence[float] = 0.9) -> Any:
        """Return intervals that hold the values at steps ahead with the given probabilities.

        Args:
            fh: steps ahead; see `predict`.
            X: not used.
            coverage: share of the values to hold, at most 0.99, or several.

        Returns:
            A DataFrame with columns (name, coverage, "lower") and (name, coverage, "upper") as in sktime; for arrays an
            array with these columns.

        Raises:
            ValueError: as for `predict`, or a coverage is out of range.
        """
        coverages = [coverage] if isinstance(coverage, int | float) else list(coverage)
        for share in coverages:
            check_coverage(share)
        form, steps = self._asked(fh)
        ends = [np.array(self.forecast_interval(self.horizon, share))[np.array(steps) - 1] for share in coverages]
        values = np.concatenate(ends, axis=1)
        if form.kind == "array":
            return values
        import pandas as pd

        name = 0 if form.name is None else form.name
        columns = pd.MultiIndex.from_product([[name], coverages, ["lower", "upper"]])
        return pd.DataFrame(values, index=_continued(form, steps), columns=columns)

    @property
    def cutoff(self) -> Any:
        """Index of the last value that was learned; None before any, and for arrays.

        A value that `learn_one` takes is one step behind it; without a constant step the index stays.
        """
        return None if self._form is None else self._form.last

    def _check_one_stream(self) -> None:
        if self.member is not None:
            raise ValueError(
                f"member={self.member!r}: a series at a time belongs to one stream; learn members by learn_one(y, x)"
            )

    def _learn_rows(self, rows: Iterable[_Row], form: Form) -> Self:
        for value, x, index in rows:
            with Uninterrupted():  # whatever ends this early, the cutoff is that of the last value that was learned
                self._learn_value(value, x)
                self._form = form._replace(last=index)
        self._say_news()
        return self

    def _rows_of(self, y: Any, X: Any, before: Form | None) -> tuple[list[_Row], Form]:
        """Return what `_rows_of` of this file does, once no row of it is refused."""
        self._check_one_stream()
        rows, form = _rows_of(y, X, before)
        self._check([x for _, x, _ in rows], [value for value, *_ in rows])
        return rows, form

    def _form_of_next(self) -> Form | None:
        """Return the form behind a value that comes alone: one step on, where the step is known."""
        form = self._form
        return form if form is None or form.step is None else form._replace(last=form.last + form.step)

    def _asked(self, fh: Any) -> tuple[Form, list[int]]:
        if self._form is None:
            raise ValueError("predict: no series was learned; call fit(y) first")
        return self._form, self._steps(self._fh if fh is None else fh, self._form)

    def _steps(self, fh: Any, form: Form) -> list[int]:
        """Return steps ahead as numbers from 1 on."""
        if fh is None:
            return list(range(1, self.horizon + 1))
        absolute = hasattr(fh, "to_relative") and not fh.is_relative
        if absolute and form.kind == "array":
            raise ValueError(
                f"fh={fh!s}: an array has no index in which an absolute horizon could be found; give steps ahead, of "
                "which 1 is the next value, or y as a pandas Series"
            )
        if hasattr(fh, "to_relative"):  # sktime's ForecastingHorizon
            fh = fh.to_pandas() if absolute else fh.to_numpy()
        values = [fh] if np.ndim(fh) == 0 else list(fh)
        indexed = absolute or not all(isinstance(value, int | np.integer) for value in values)
        if form.kind != "array" and values and indexed:
            later = list(_continued(form, list(range(1, self.horizon + 1))))
            steps = [later.index(value) + 1 if value in later else None for value in values]
        else:
            steps = [int(v) if isinstance(v, int | np.integer) and 1 <= v <= self.horizon else None for v in values]
        bad = [value for value, step in zip(values, steps, strict=True) if step is None]
        if bad or not values:
            what = bad[0] if bad else fh
            raise ValueError(
                f"fh={what!s}: steps 1 to {self.horizon} after the last value are learned; choose among these, or make "
                "the model with a greater `horizon`"
            )
        return [int(step) for step in steps if step is not None]


def _rows_of(y: Any, X: Any, before: Form | None) -> tuple[list[_Row], Form]:
    """Return values with their features and indices, and the form of the series behind them.

    Raises:
        ValueError: y has other columns than one, an index of text or one that does not rise, X has other rows than
            y, or y goes back behind the last value.
    """
    values, form = targets_of(y), _form_of(y)
    if not values:
        raise ValueError(f"y has the shape {np.shape(y)}, expected one column with at least one value")
    if before is not None:
        form = _behind(form, y, before, len(values))
    indices = [None] * len(values) if form.kind == "array" else list(y.index)
    features = [{}] * len(values) if X is None else _features_of(y, X, form)
    check_lengths(features, values)
    return list(zip(values, features, indices, strict=True)), form


def _features_of(y: Any, X: Any, form: Form) -> list[dict[Any, Any]]:
    """Return what is known of each step.

    Raises:
        ValueError: X has no columns, or another index than y.
    """
    if hasattr(X, "to_frame"):
        X = X.to_frame()
    elif np.ndim(X) == 1:
        X = np.reshape(X, (-1, 1))
    if len(X) == len(y) and form.kind != "array" and hasattr(X, "index") and not X.index.equals(y.index):
        raise ValueError("X has another index than y; give both the same index")
    return frame_rows(X)


def _form_of(y: Any) -> Form:
    if not hasattr(y, "index") or isinstance(y, list | tuple):
        return Form("array", None, None, None)
    if len(y) and y.index.inferred_type in ("string", "mixed", "mixed-integer", "categorical"):
        raise ValueError(
            f"the index of y is text or mixed, such as {y.index[0]!r}, which has no order in time; make dates of it, "
            "y.index = pd.to_datetime(y.index), or give an array"
        )
    back = np.flatnonzero(~np.asarray(y.index[1:] > y.index[:-1], bool))
    if len(back):
        raise ValueError(
            f"the index of y does not rise from {y.index[back[0]]} to {y.index[back[0] + 1]}; sort it by "
            "y.sort_index(), and leave out what is repeated: each value is learned once"
        )
    kind = "frame" if np.ndim(y) == 2 else "series"
    name = y.columns[0] if kind == "frame" else y.name
    return Form(kind, name, y.index[-1] if len(y) else None, _step_of(y.index))


def _step_of(index: "pd.Index") -> Any:
    """Return what leads from one index to the next; None if the index does not tell."""
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return 1
    if isinstance(index, pd.DatetimeIndex):
        found = index.freq or (pd.infer_freq(index) if len(index) >= 3 else None)
        return None if found is None else pd.tseries.frequencies.to_offset(found)
    if isinstance(index, pd.RangeIndex):
        return index.step
    if not pd.api.types.is_integer_dtype(index.dtype):
        return None
    steps = np.unique(np.diff(index.to_numpy(np.int64))) if len(index) > 1 else np.array([1])
    return steps[0].item() if len(steps) == 1 else None


def _behind(form: Form, y: Any, before: Form, count: int) -> Form:
    """Return the form behind an update of a series.

    Raises:
        ValueError: the update is of another kind, or does not begin behind the last value.
    """
    if (form.kind == "array") != (before.kind == "array"):
        raise ValueError(
            f"y came as {form.kind} and what was learned as {before.kind}; update with what `fit` was given"
        )
    if form.kind != "array" and not y.index[0] > before.last:
        raise ValueError(
            f"y begins at {y.index[0]}, but values up to {before.last} were learned, and each is learned once; leave "
            "out what was learned"
        )
    step = form.step if count > 1 and form.step is not None else before.step
    return before._replace(last=form.last, step=step)


def _continued(form: Form, steps: Sequence[int]) -> "pd.Index":
    """Return the indices some steps behind the last one.

    Raises:
        ValueError: the index of the series has no constant step.
    """
    import pandas as pd

    if form.step is None:
        raise ValueError(
            f"the index of y up to {form.last} has no constant step of time or whole numbers, so it cannot be "
            'continued; give y a frequency, such as y.asfreq("h"), or an array'
        )
    found = pd.Index([form.last + step * form.step for step in steps])
    if isinstance(found, pd.DatetimeIndex) and list(steps) == list(range(steps[0], steps[-1] + 1)):
        return pd.DatetimeIndex(found, freq=form.step)
    return found
