"""River estimators on top of the online learner: `ft.stream.Classifier`, `Regressor`, `Forecaster`.

They learn row by row like every other model of river, and remember earlier rows. They work wherever
river's models do: in pipelines, with metrics, in `evaluate.progressive_val_score`, and with drift
detectors. They need river: `pip install '.[river]'`.

    model = ft.stream.Classifier(size="small")
    for x, y in stream:
        y_hat = model.predict_one(x)
        model.learn_one(x, y)

`learn_one` updates the memory of the model with the row. `predict_one` returns the prediction as if
this row came next, and changes nothing. The first row determines the number of inputs. Features
that appear later use the inputs that are still free (`features`), and a warning names the first
feature that finds none. The first value of a feature determines whether it is a number, a date or a
category. Calls that are refused change nothing, and threads may share a model.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from foretrace._runs.thread_lock import locked
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.model.intervals import bounded, check_coverage
from foretrace.stream.model.model_config import ModelConfig, Size
from foretrace.stream.model.state import Mixed
from foretrace.stream.python.arrays import Row, array_rows, frame_rows, labels_array, targets_of
from foretrace.stream.python.estimator import OnlineEstimator
from foretrace.stream.python.next_steps import NextSteps
from foretrace.stream.read.encode import WORDS
from foretrace.stream.read.target import ClassTarget, NumberTarget, class_room
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predict import shares_of

if TYPE_CHECKING:
    import pandas as pd


try:
    from river import base
    from river.time_series.base import Forecaster as RiverForecaster
except ImportError as error:
    raise ImportError("foretrace.stream needs river: pip install 'foretrace[river]'") from error

LABELS = "earlier labels"
"""Name of the earlier labels in the importance of features."""


class RowEstimator(OnlineEstimator):
    """Common part of classifier and regressor, in which each row has a label."""

    predict_one: Any

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"model": ModelConfig("small", depth=1, model_size=16)}

    @property
    def surprise(self) -> float:
        """How unusual the last learned label was: -log10 of its probability by its error's rank.

        About one label in 1,000 has a surprise above 3 by chance. NaN before about 100 errors (of
        the label's member) are known, and after a missing label.
        """
        return float(np.ravel(self._surprise)[0])

    @locked
    def learn_one(self, x: Row | None, y: Any, id: Hashable = None) -> None:
        """Learn from the next row and its label, or from a late label of an earlier row.

        With an `id`, y is the label of the row that was predicted under this id, and x may be None.
        With a `delay` and no id, y is the label of the oldest row that has no label yet. The label
        is learned at once. If the same label is given again, nothing changes.

        Every value except None, NaN and "" can be a class, also " " or "?". None, NaN and ""
        mean that the label is missing. Equal labels (1, 1.0 and True) are one class, which is
        predicted in the form of its first label.

        Raises:
            TypeError: the row is not a dictionary, or the label or the id cannot be hashed. Nothing
                has changed.
            ValueError: the label of a regressor is neither a number nor missing, the row with this
                id has another label, or no row waits. Nothing has changed.
            KeyError: no row with this id waits, because it was never predicted or was dropped.
        """
        self._learn_row(x, y, id)

    @locked
    def learn_many(self, X: "pd.DataFrame", y: Iterable[Any]) -> None:
        """Learn from rows in order, like `learn_one`. If a row is refused, learn from none of them.

        Raises:
            ValueError: X and y differ in length, or a target of a regressor is neither a number nor
                missing.
            TypeError: a label cannot be hashed.
        """
        self._learn_all(frame_rows(X), targets_of(y))

    @locked
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from the rows of an array in order; features are named by their column numbers.

        Args:
            X: rows.
            y: labels of the rows.
            classes: all classes that may occur later. The first call reserves an output for each.

        Raises:
            ValueError, TypeError: as in `learn_many`.
        """
        self._learn_all(array_rows(X), targets_of(y), () if classes is None else list(classes))
        return self

    @locked
    def feature_importance(self, X: "pd.DataFrame", y: Iterable[Any]) -> dict[Hashable, float]:
        """Return the importance of each feature, and of earlier labels, for the predictions.

        The values of one feature are permuted, which changes the predictions. The importance of the
        feature is its fraction of the squared changes of all features. Nothing is learned. Before
        the first label, the result is empty.

        Args:
            X: two or more rows, which follow the rows learned so far.
            y: labels of these rows.

        Raises:
            ValueError, TypeError: as in `learn_many`; or there is only one row.
        """
        rows, labels = frame_rows(X), targets_of(y)
        self._check(rows, labels)
        if self._intake is None or self._state is None:
            return {}
        if any(LABELS in row for row in rows):
            raise ValueError(f"a feature is named {LABELS!r}, as the share of labels is; rename it")
        rows = [{**row, LABELS: label} for row, label in zip(rows, labels, strict=True)]
        names = {name: None for row in rows for name in row if name != self.member}
        return shares_of(self._intake, self._state, rows, names, LABELS)

    def _prediction(self, answer: Mixed | None) -> Any:
        """Return the label or number of an answer."""
        raise NotImplementedError

    @locked
    def predict(self, X: Any) -> np.ndarray:
        """Return the predictions for the rows of an array, each as if it were next."""
        return labels_array([self._prediction(self._as_next(x)) for x in array_rows(X)])


class Classifier(RowEstimator, base.MiniBatchClassifier):
    """Classifier that learns online and remembers earlier rows, as a mixture or as a network.

    Args:
        size: short form of `model=ModelConfig(size=size)`, such as "small". Give only one of the
            two.
        model: experts, network, learning rule and optimiser. Default: a mixture of cheap experts.
        features: number of inputs without those for `words`. A number needs 2 inputs, a category
            16, a date 7. A feature that finds no free inputs is left out, with a warning. Default:
            as many as the first row needs and some for later features, at least 64 in total.
        classes: maximum number of classes. A warning names the first label beyond it. Default: 16,
            or twice the number of labels in the first call of `learn_many` or `partial_fit` if that
            is more. With the default, a later class doubles the maximum, with a warning.
        previous: whether the last known label is an input.
        member: feature that names the sensor, user or place of a row. Each member has its own
            memory, and all members share the experts and the network. The feature is not an input.
            Default: all rows belong to one stream.
        members: maximum number of members. A further member replaces the member that was seen least
            recently.
        delay: number of rows between a row and its label, like --delay of the command. With a
            delay, `predict_one` adds a row, and `learn_one` gives the label of the oldest row that
            has none. Call `learn_one` before `predict_one` of the row `delay` + 1 rows later, as
            `evaluate.progressive_val_score(…, delay=…)` does. If labels arrive in another order,
            give an `id` with both the prediction and the label.
        waiting: maximum number of rows that wait for labels, which may arrive at any time and in
            any order. `predict_one(x, id="a1")` adds the row, and `learn_one(None, y, id="a1")`
            gives its label. If a further row arrives, the oldest row is dropped. 0 (default) means
            that rows do not wait.
        experts: your own experts, by name, in addition to the experts of the model.
        words: number of inputs for each text. A feature is a text if its value in the first row has
            eight words or more. With 0, it is a category.

    >>> model = Classifier(size="small", features=4, classes=2)
    >>> for i in range(20):
    ...     model.learn_one({"x": i % 2}, i % 2 == 0)
    >>> sorted(model.predict_proba_one({"x": 1}))
    [False, True]
    """

    def __init__(
        self,
        size: Size | None = None,
        model: ModelConfig | None = None,
        features: int | None = None,
        classes: int | None = None,
        previous: bool = True,
        member: Hashable | None = None,
        members: int = StreamConfig.members,
        delay: int = 0,
        words: int = WORDS,
        waiting: int = 0,
        experts: Mapping[str, type[AbstractExpert]] | None = None,
    ):
        self.classes = classes
        options = size, model, features, previous, member, members, delay, words
        super().__init__(*options, waiting=waiting, experts=experts)

    _predicts_classes = True

    @property
    def _multiclass(self) -> bool:
        return True

    def _new_target(self, labels: Sequence[Any]) -> ClassTarget:
        room = class_room(labels) if self.classes is None else self.classes
        return ClassTarget(room, as_text=False, grows=self.classes is None)

    @locked
    def predict_proba_one(self, x: Row, id: Hashable = None, **_: Any) -> dict[Any, float]:
        """Return the probability of every label seen so far, as if this row were the next one.

        Args:
            x: features of the row.
            id: identifier of the row, by which `learn_one` finds it later. It is used only if
                `waiting` or `delay` is set.
        """
        return self._probabilities(self._answer(x, id))

    def _prediction(self, answer: Mixed | None) -> Any:
        shares = self._probabilities(answer)
        return max(shares, key=shares.__getitem__) if shares else None

    def _probabilities(self, answer: Mixed | None) -> dict[Any, float]:
        if answer is None or self._intake is None:
            return {}
        target, count = self._intake.target, answer.num_classes
        assert isinstance(target, ClassTarget) and count is not None
        shares = target.probabilities(np.asarray(answer.newest), int(count)).tolist()
        return dict(zip(target.classes[: len(shares)], shares, strict=True))

    @locked
    def predict_proba_many(self, X: "pd.DataFrame") -> "pd.DataFrame":
        """Return the probabilities for rows, each as if it were next."""
        import pandas as pd

        return pd.DataFrame(
            [self._probabilities(self._as_next(x)) for x in frame_rows(X)],
            index=getattr(X, "index", None),
        )


class Regressor(RowEstimator, base.MiniBatchRegressor):
    """Regressor that learns online and remembers earlier rows, as a mixture or as a network.

    Args:
        size: short form of `model=ModelConfig(size=size)`, such as "small". Give only one of the
            two.
        model: experts, network, learning rule and optimiser. Default: a mixture of cheap experts.
        features: number of inputs without those for `words`. A number needs 2 inputs, a category
            16, a date 7. A feature that finds no free inputs is left out, with a warning. Default:
            as many as the first row needs and some for later features, at least 64 in total.
        previous: whether the last known target is an input.
        member: feature that names the sensor, user or place of a row. Each member has its own
            memory, and all members share the experts and the network. The feature is not an input.
            Default: all rows belong to one stream.
        members: maximum number of members. A further member replaces the member that was seen least
            recently.
        delay: number of rows between a row and its label, like --delay of the command. With a
            delay, `predict_one` adds a row, and `learn_one` gives the label of the oldest row that
            has none. Call `learn_one` before `predict_one` of the row `delay` + 1 rows later, as
            `evaluate.progressive_val_score(…, delay=…)` does. If labels arrive in another order,
            give an `id` with both the prediction and the label.
        waiting: maximum number of rows that wait for labels, which may arrive at any time and in
            any order. `predict_one(x, id="a1")` adds the row, and `learn_one(None, y, id="a1")`
            gives its label. If a further row arrives, the oldest row is dropped. 0 (default) means
            that rows do not wait.
        experts: your own experts, by name, in addition to the experts of the model.
        words: number of inputs for each text. A feature is a text if its value in the first row has
            eight words or more. With 0, it is a category.
        at_least: lower bound of predictions and of the ends of their intervals, such as 0 for
            counts. Default: none.
        expert_columns: features that hold predictions of the row's number by other models; each is
            an expert of the mixture, and no input.

    >>> model = Regressor(size="small", features=4)
    >>> for i in range(20):
    ...     model.learn_one({"x": i % 2}, i % 2)
    >>> round(model.predict_one({"x": 1})) in (0, 1)
    True
    """

    def _new_target(self, labels: Sequence[Any]) -> NumberTarget:
        return NumberTarget(strict=True, at_least=self.at_least)

    @locked
    def predict_one(self, x: Row, id: Hashable = None) -> float:
        """Return the prediction as if this row were next; before the first label, 0.

        Args:
            x: features of the row.
            id: identifier of the row, by which `learn_one` finds it later. It is used only if
                `waiting` or `delay` is set.
        """
        return self._prediction(self._answer(x, id))

    def _prediction(self, answer: Mixed | None) -> float:
        found = math.nan if answer is None else float(answer.newest[0])
        return 0.0 if math.isnan(found) else found

    @locked
    def predict_interval_one(
        self, x: Row, coverage: float = 0.9, id: Hashable = None
    ) -> tuple[float, float]:
        """Return the ends of an interval that contains the target with this probability.

        The intervals are calibrated by the errors of the predictions so far, without any assumption
        on the data.

        Args:
            x: features of the row.
            coverage: fraction of the targets that should lie in the intervals, at most 0.99.
            id: identifier of the row, as in `predict_one`.

        Returns:
            The lower and the upper end; before any learning, minus and plus infinity.

        Raises:
            ValueError: the coverage is out of range.
        """
        check_coverage(coverage)
        answer = self._answer(x, id)
        if answer is None or self._intake is None or self._state is None:
            return -math.inf, math.inf
        if np.isnan(answer.newest).any():  # rows were learned, but no label
            return -math.inf, math.inf
        name = None if self.member is None else x[self.member]
        margins = self._intake.margins(self._state, name, coverage)
        _, low, high = bounded(np.asarray(answer.newest), margins, self.at_least)
        return float(low[0]), float(high[0])

    @locked
    def predict_many(self, X: "pd.DataFrame") -> "pd.Series":
        """Return the predictions for rows, each as if it were next."""
        import pandas as pd

        return pd.Series(
            [self._prediction(self._as_next(x)) for x in frame_rows(X)],
            index=getattr(X, "index", None),
            dtype="float64",
        )


class Forecaster(NextSteps, RiverForecaster):
    """Forecaster of a series' next steps, learned online as a mixture or as a network.

    The last target is an input. `SktimeForecaster` learns a whole series in one call.

    Args:
        horizon: number of steps ahead that are learned. No forecast reaches further.
        size: short form of `model=ModelConfig(size=size)`, such as "small". Give only one of the
            two.
        model: experts, network, learning rule and optimiser. Default: a mixture of cheap experts.
        features: number of inputs without those for `words`. A number needs 2 inputs, a category
            16, a date 7. A feature that finds no free inputs is left out, with a warning. Default:
            as many as the first row needs and some for later features, at least 64 in total.
        member: feature that names the sensor, user or place of a row. Each member has its own
            memory, and all members share the experts and the network. The feature is not an input.
            Default: all rows belong to one stream.
        members: maximum number of members. A further member replaces the member that was seen least
            recently.
        at_least: lower bound of forecasts and of the ends of their intervals, such as 0 for counts.
            Default: none.
        known: numeric features that are known in advance, such as a promotion. `forecast` takes
            their values at the steps ahead as `xs`. A value of the series is then learned `horizon`
            values later.
        words: number of inputs for each text. A feature is a text if its value in the first row has
            eight words or more. With 0, it is a category.
        experts: your own experts, by name, in addition to the experts of the model.

    >>> model = Forecaster(horizon=2, size="small", features=4)
    >>> for i in range(20):
    ...     model.learn_one(i % 2)
    >>> len(model.forecast(2))
    2
    """

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"model": ModelConfig("small", depth=1, model_size=16)}
