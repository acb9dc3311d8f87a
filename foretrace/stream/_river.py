"""River estimators on top of the online learner: `ft.stream.Classifier`, `Regressor`, `Forecaster`.

They learn row by row like every other model of river, remember what came before, and go wherever river's models go:
pipelines, metrics, `evaluate.progressive_val_score`, drift detectors. They need river:
`pip install 'foretrace[river]'`.

    model = ft.stream.Classifier(size="small")
    for x, y in stream:
        y_hat = model.predict_one(x)
        model.learn_one(x, y)

`learn_one` moves the state of the network on to the next row; `predict_one` asks what it would answer if this row
came next, and changes nothing. The first row decides the width of the network; features that appear later take the
room that is left (`features`).
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import NumberTarget, TargetMode
from foretrace._rows.target import ClassTarget
from foretrace.stream._config import Size
from foretrace.stream._estimator import OfMembers, Row, array_rows

if TYPE_CHECKING:
    import pandas as pd


try:
    from river import base
    from river.time_series.base import Forecaster as RiverForecaster
except ImportError as error:
    raise ImportError("foretrace.stream needs river: pip install 'foretrace[river]'") from error


__all__ = ["Classifier", "Forecaster", "Regressor"]


class Classifier(OfMembers, base.MiniBatchClassifier):
    """Recurrent classifier that learns online and remembers what came before.

    Args:
        size: depth, model size and state size: "tiny" 1, 16, 16; "small" 2, 32, 32; "medium" 3, 64, 64; "paper" 4,
            128, 64.
        rule: what is differentiated through time.
        learning_rate: of AdamW.
        clip: largest norm of a gradient; None for no clipping.
        features: inputs of the network: 2 for each number, 16 for each text, 7 for each date. Features that find no
            room are ignored.
        classes: most classes.
        previous: give the last known label as an input.
        seed: of the initial network.
        train_encoder: train the encoder and the norms in front of the recurrences, too. By default if their errors
            are known through the memory of all layers: known at the present step only, they were seen to undo in long
            runs what had been learned.
        credit_depth: through the memory of how many recurrent layers above a parameter its errors travel as well; all
            of them by default if no more than a million numbers are carried for a stream and 256 MiB for all ("tiny",
            "small" with some dozens of members or steps to forecast), else 0, the paper's rule. Memory and time grow
            steeply with it.
        member: feature that says whose row it is: every sensor, user or place has its own memory, all share the
            network. It is no input. None if all rows are of one stream.
        members: most of them; one more takes the place of the one that has been silent longest.

    >>> model = Classifier(size="tiny", features=4, classes=2)
    >>> for i in range(20):
    ...     model.learn_one({"x": i % 2}, i % 2 == 0)
    >>> sorted(model.predict_proba_one({"x": 1}))
    [False, True]
    """

    def __init__(
        self,
        size: Size = "small",
        rule: str = "online",
        learning_rate: float = 1e-3,
        clip: float | None = 1.0,
        features: int = 64,
        classes: int = 16,
        previous: bool = False,
        seed: int = 0,
        train_encoder: bool | None = None,
        credit_depth: int | None = None,
        member: Hashable | None = None,
        members: int = 64,
    ):
        self.size, self.rule, self.learning_rate, self.clip = size, rule, learning_rate, clip
        self.features, self.classes, self.previous, self.seed = features, classes, previous, seed
        self.train_encoder, self.credit_depth = train_encoder, credit_depth
        self.member, self.members = member, members
        self._forget()

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"size": "tiny"}

    def _new_target(self) -> ClassTarget:
        return ClassTarget(self.classes, as_text=False)

    def learn_one(self, x: Row, y: Any) -> None:
        """Learn from the next row and its label."""
        self._learn(x, y)

    def predict_proba_one(self, x: Row, **_: Any) -> dict[Any, float]:
        """Return the probability of every label seen so far, if this row came next."""
        outputs = self._outputs(x)
        if outputs is None or self._intake is None or not isinstance(target := self._intake.target, ClassTarget):
            return {}
        return dict(zip(target.classes.values, target.probabilities(outputs).tolist(), strict=True))

    def learn_many(self, X: "pd.DataFrame", y: Iterable[Any]) -> None:
        """Learn from rows in their order, as `learn_one` does."""
        for x, label in zip(X.to_dict("records"), y, strict=True):
            self.learn_one(x, label)

    def predict_proba_many(self, X: "pd.DataFrame") -> "pd.DataFrame":
        """Return the probabilities for rows, each as if it came next."""
        import pandas as pd

        return pd.DataFrame([self.predict_proba_one(x) for x in X.to_dict("records")], index=X.index)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from the rows of an array, in their order; features are named by their column."""
        for x, label in zip(array_rows(X), np.asarray(y).tolist(), strict=True):
            self.learn_one(x, label)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label for rows of an array, each as if it came next."""
        return np.asarray([self.predict_one(x) for x in array_rows(X)])


class Regressor(OfMembers, base.MiniBatchRegressor):
    """Recurrent regressor that learns online and remembers what came before.

    Args:
        size, rule, learning_rate, clip, features, previous, seed: as those of `Classifier`.
        train_encoder, credit_depth, member, members: as those of `Classifier`.
        predicted: from where: the running mean ("value"), the last known number ("change"), or in between ("auto").

    >>> model = Regressor(size="tiny", features=4)
    >>> for i in range(20):
    ...     model.learn_one({"x": i % 2}, i % 2)
    >>> round(model.predict_one({"x": 1})) in (0, 1)
    True
    """

    def __init__(
        self,
        size: Size = "small",
        rule: str = "online",
        learning_rate: float = 1e-3,
        clip: float | None = 1.0,
        features: int = 64,
        previous: bool = False,
        seed: int = 0,
        train_encoder: bool | None = None,
        credit_depth: int | None = None,
        predicted: TargetMode = "auto",
        member: Hashable | None = None,
        members: int = 64,
    ):
        self.size, self.rule, self.learning_rate, self.clip = size, rule, learning_rate, clip
        self.features, self.previous, self.seed = features, previous, seed
        self.train_encoder, self.predicted = train_encoder, predicted
        self.credit_depth, self.member, self.members = credit_depth, member, members
        self._forget()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"size": "tiny"}

    def _new_target(self) -> NumberTarget:
        return NumberTarget(mode=self.predicted)

    def learn_one(self, x: Row, y: float) -> None:
        """Learn from the next row and its target."""
        self._learn(x, y)

    def predict_one(self, x: Row) -> float:
        """Return what is predicted if this row came next; 0 before anything was learned."""
        outputs = self._outputs(x)
        return 0.0 if outputs is None or self._intake is None else float(self._intake.target.describe(outputs)[0])

    def learn_many(self, X: "pd.DataFrame", y: Iterable[float]) -> None:
        """Learn from rows in their order, as `learn_one` does."""
        for x, target in zip(X.to_dict("records"), y, strict=True):
            self.learn_one(x, target)

    def predict_many(self, X: "pd.DataFrame") -> "pd.Series":
        """Return the predictions for rows, each as if it came next."""
        import pandas as pd

        return pd.Series([self.predict_one(x) for x in X.to_dict("records")], index=X.index, dtype="float64")

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from the rows of an array, in their order; features are named by their column."""
        for x, target in zip(array_rows(X), np.asarray(y).tolist(), strict=True):
            self.learn_one(x, target)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predictions for rows of an array, each as if it came next."""
        return np.asarray([self.predict_one(x) for x in array_rows(X)])


class Forecaster(OfMembers, RiverForecaster):
    """Recurrent forecaster of the next steps of a series, learned online.

    Args:
        horizon: steps ahead that are learned; more cannot be asked for.
        size, rule, learning_rate, clip, features, seed, train_encoder, credit_depth: as those of
            `Classifier`. The last target is an input.
        predicted: as that of `Regressor`.
        member, members: as those of `Classifier`.

    >>> model = Forecaster(horizon=2, size="tiny", features=4)
    >>> for i in range(20):
    ...     model.learn_one(i % 2)
    >>> len(model.forecast(2))
    2
    """

    def __init__(
        self,
        horizon: int = 12,
        size: Size = "small",
        rule: str = "online",
        learning_rate: float = 1e-3,
        clip: float | None = 1.0,
        features: int = 64,
        seed: int = 0,
        train_encoder: bool | None = None,
        credit_depth: int | None = None,
        predicted: TargetMode = "auto",
        member: Hashable | None = None,
        members: int = 64,
    ):
        self.horizon, self.size, self.rule, self.learning_rate = horizon, size, rule, learning_rate
        self.clip, self.features, self.previous, self.seed = clip, features, True, seed
        self.train_encoder, self.predicted = train_encoder, predicted
        self.credit_depth, self.member, self.members = credit_depth, member, members
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._newest: dict[Hashable, np.ndarray] = {}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"size": "tiny"}

    def _new_target(self) -> NumberTarget:
        return NumberTarget(self.horizon, mode=self.predicted)

    def _new_feed(self, encoder: Encoder) -> DelayedLabels:
        return DelayedLabels(encoder, self._new_target(), horizon=self.horizon)

    def leave(self, name: Hashable) -> None:
        """Forget a member: its place is free, and if it comes again it is a new one."""
        super().leave(name)
        self._newest.pop(name, None)

    def learn_one(self, y: float, x: Row | None = None) -> None:
        """Learn the next value of the series (of its member, whom x names), with what else is known of its step."""
        outputs = self._learn({} if x is None else x, y)
        name = None if x is None or self.member is None else x[self.member]
        self._newest.pop(name, None)
        self._newest[name] = outputs  # the latest one last
        if len(self._newest) > self.members:
            del self._newest[next(iter(self._newest))]

    def forecast(self, horizon: int, xs: list[dict] | None = None, *, member: Hashable | None = None) -> list[float]:
        """Return the next values; 0 before anything was learned.

        Args:
            horizon: how many, at most those that are learned.
            xs: features of the steps ahead; they are not used: a forecast is made from what has been.
            member: whose; the one that was learned last if not given.

        Raises:
            ValueError: more than are learned, or a member of a model without members.
        """
        if horizon > self.horizon:
            raise ValueError(f"forecast(horizon={horizon}): only {self.horizon} steps are learned; raise `horizon`")
        if member is not None and self.member is None:
            raise ValueError(f"forecast(member={member!r}): the model was made without `member`")
        name = next(reversed(self._newest), None) if member is None else member
        if self._intake is None or name not in self._newest or not self._intake.turn_to(name):
            return [0.0] * horizon
        return self._intake.target.describe(self._newest[name])[:horizon]
