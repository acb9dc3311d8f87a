"""The next steps of a series, learned value by value, for river and sktime."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from foretrace._experts.intervals import bounded, check_coverage
from foretrace._rows.target import NumberTarget
from foretrace._runs.thread_lock import locked
from foretrace.stream._arrays import Row
from foretrace.stream._config import StreamConfig
from foretrace.stream._estimator import OnlineEstimator
from foretrace.stream._model_config import ModelConfig, Size


class NextSteps(OnlineEstimator):
    """Learn a series value by value, and forecast as many steps ahead as are learned.

    The last value is an input.

    Args:
        horizon: number of steps ahead that are learned; no more can be asked for.
        size, model, features, member, members, at_least: as for `OnlineEstimator`.
    """

    def __init__(
        self,
        horizon: int = 12,
        size: Size | None = None,
        model: ModelConfig | None = None,
        features: int | None = None,
        member: Hashable | None = None,
        members: int = StreamConfig.members,
        at_least: float | None = None,
    ):
        self.horizon = horizon
        super().__init__(
            size,
            model,
            features=features,
            previous=True,
            member=member,
            members=members,
            at_least=at_least,
        )

    def _forget(self) -> None:
        super()._forget()
        self._answers: dict[int, Any] = {}  # newest forecast of the member in a slot

    @property
    def _ahead(self) -> int:
        return self.horizon

    def _new_target(self, labels: Sequence[Any]) -> NumberTarget:
        return NumberTarget(self.horizon, strict=True, at_least=self.at_least)

    @locked
    def learn_one(self, y: float, x: Row | None = None) -> None:
        """Learn the next value of the series (of x's member), with x known at its step.

        Raises:
            TypeError: x is no dictionary.
            ValueError: y is neither a number nor missing, or x names no member; nothing has
                changed.
        """
        x = {} if x is None else x
        self._check([x], [y])
        answer = self._learn(x, y)
        if (slot := self._slot(None if self.member is None else x[self.member])) is not None:
            self._answers[slot] = answer.newest
        self._say_news(4)

    @locked
    def forecast(
        self,
        horizon: int,
        xs: list[dict[Any, Any]] | None = None,
        *,
        member: Hashable | None = None,
    ) -> list[float]:
        """Return the next values; 0 before anything was learned.

        Args:
            horizon: number of values, at most as many as are learned.
            xs: features of the steps ahead; they are not used: a forecast is made from the rows
                before it.
            member: name of the member. Default: the one that was learned last.

        Raises:
            ValueError: more values are asked for than are learned, or none, or a member of a model
                without members.
        """
        found = self._newest_ahead(horizon, member)
        return [0.0] * horizon if found is None else found[:horizon].tolist()

    @locked
    def forecast_interval(
        self, horizon: int, coverage: float = 0.9, *, member: Hashable | None = None
    ) -> list[tuple[float, float]]:
        """Return the ends of an interval for each of the next values with this probability.

        The intervals are calibrated by the errors of the forecasts so far, for each step ahead; a
        member's are as wide as its own errors ask for.

        Args:
            horizon: number of values, at most as many as are learned.
            coverage: share of the values to hold, at most 0.99.
            member: name of the member. Default: the one that was learned last.

        Returns:
            Lower and upper end of each; minus and plus infinity before anything was learned.

        Raises:
            ValueError: as for `forecast`, or the coverage is out of range.
        """
        check_coverage(coverage)
        found = self._newest_ahead(horizon, member)
        if found is None or self._intake is None or self._state is None:
            return [(-np.inf, np.inf)] * horizon
        margins = self._intake.margins(self._state, self._named(member), coverage)
        _, low, high = bounded(found, margins, self.at_least)
        return list(zip(low[:horizon].tolist(), high[:horizon].tolist(), strict=True))

    def _newest_ahead(self, horizon: int, member: Hashable | None) -> np.ndarray | None:
        """Return a member's newest forecast. None before any learning."""
        if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= self.horizon:
            raise ValueError(
                f"forecast(horizon={horizon!r}): steps 1 to {self.horizon} are learned; choose a "
                "whole number among these, or make the model with a greater `horizon`"
            )
        if member is not None and self.member is None:
            raise ValueError(f"forecast(member={member!r}): the model was made without `member`")
        slot = self._slot(self._named(member))
        return None if slot is None else self._answers[slot]

    def _named(self, member: Hashable | None) -> Hashable | None:
        """Return the name of a member; by default of the one that was learned last."""
        if member is None and self._intake is not None:
            return self._intake.streams.table.latest
        return member

    def _slot(self, name: Hashable) -> int | None:
        """Return the slot of a member; None if it has no rows."""
        slot = None if self._intake is None else self._intake.streams.table.find(name)
        return None if slot is None or slot.is_new else slot.number
