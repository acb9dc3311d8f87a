"""Forecasts of a series that is learned value by value, the base of the two forecasters."""

import copy
from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from foretrace._runs.signals import Uninterrupted
from foretrace._runs.thread_lock import locked
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.model.intervals import bounded, check_coverage
from foretrace.stream.model.model_config import ModelConfig, Size
from foretrace.stream.python.arrays import Row
from foretrace.stream.python.estimator import OnlineEstimator, check_row
from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.target import NumberTarget
from foretrace.stream.runs.config import StreamConfig


class NextSteps(OnlineEstimator):
    """Learn a series value by value, and forecast its next steps.

    The last value is an input.

    Args:
        horizon: number of steps ahead that are learned. No forecast reaches further.
        size, model, features, member, members, at_least, words: as in `OnlineEstimator`.
        known: features that are known in advance. A value of the series is then learned `horizon`
            values later, with the features of the following values.

    Raises:
        ValueError: both a member and features that are known in advance are given.
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
        known: Sequence[Hashable] | None = None,
        words: int = StreamConfig.words,
        experts: Mapping[str, type[AbstractExpert]] | None = None,
    ):
        if isinstance(known, str):
            raise ValueError(f"known={known!r} must be a list of names, as [{known!r}]")
        if known and member is not None:
            raise ValueError(
                f"known={known!r} beside member={member!r}: take one model for each member, or a "
                "run on a file (ft.stream.run), which has both"
            )
        self.horizon = horizon
        self.known = known
        options = size, model, features, True, member, members, 0, words, at_least
        super().__init__(*options, experts=experts)

    def _forget(self) -> None:
        super()._forget()
        self._answers: dict[int, Any] = {}  # newest forecast of the member in each slot
        self._late: deque[tuple[Row, Any]] = deque()  # values that are learned later
        self._ahead_of = Ahead(self.known or (), self.horizon)

    @property
    def _ahead(self) -> int:
        return self.horizon

    @property
    def _unlagged(self) -> Collection[Hashable]:
        return self._ahead_of.places

    def _new_target(self, labels: Sequence[Any]) -> NumberTarget:
        return NumberTarget(self.horizon, strict=True, at_least=self.at_least)

    @locked
    def learn_one(self, y: float, x: Row | None = None) -> None:
        """Learn the next value of a series, with the features of its step.

        If the model has members, x names the member whose series it is.

        Raises:
            TypeError: x is not a dictionary.
            ValueError: y is neither a number nor missing, or x names no member. Nothing has
                changed.
        """
        x = {} if x is None else x
        self._check([x], [y])
        self._ahead_of.check(x)
        with Uninterrupted():
            self._late.append((dict(x), y))  # x belongs to the caller
            if len(self._late) > (self.horizon if self.known else 0):
                self._learn_oldest()
        self._say_news(4)

    def _learn_oldest(self, xs: Sequence[Row] = ()) -> None:
        """Learn the oldest pending value. `xs` are the features of later steps."""
        x, y = self._late.popleft()
        later = [*(other for other, _ in self._late), *xs]
        answer = self._learn([(self._ahead_of.row(x, later), y)])
        if (slot := self._slot(None if self.member is None else x[self.member])) is not None:
            is_known = not np.isnan(answer.newest).any()
            self._answers[slot] = answer.newest if is_known else None

    def _now(self, xs: Sequence[Row] | None) -> "NextSteps":
        """Return the model after the last value; if values are pending, this is a copy."""
        for x in xs or ():
            check_row(x)
            self._ahead_of.check(x)
        if not self._late:
            return self
        model = copy.deepcopy(self)
        while model._late:
            model._learn_oldest(xs or ())
        return model

    @locked
    def forecast(
        self,
        horizon: int,
        xs: list[dict[Any, Any]] | None = None,
        *,
        member: Hashable | None = None,
    ) -> list[float]:
        """Return the next values; before any learning, they are 0.

        Args:
            horizon: number of values, at most the learned horizon.
            xs: features of the steps ahead, in order. Only those that are `known` in advance are
                used.
            member: name of the member. Default: the member that was learned last.

        Raises:
            ValueError: the number of values is below one or above the learned horizon, or a member
                is named and the model has no members.
        """
        found = self._now(xs)._newest_ahead(horizon, member)
        return [0.0] * horizon if found is None else found[:horizon].tolist()

    @locked
    def forecast_interval(
        self,
        horizon: int,
        coverage: float = 0.9,
        xs: list[dict[Any, Any]] | None = None,
        *,
        member: Hashable | None = None,
    ) -> list[tuple[float, float]]:
        """Return an interval for each of the next values, which contains it with this probability.

        For each step ahead, the intervals are calibrated by the errors of the forecasts so far. The
        width of a member's intervals depends on the errors of this member.

        Args:
            horizon: number of values, at most the learned horizon.
            coverage: fraction of the values that should lie in the intervals, at most 0.99.
            xs: features of the steps ahead, as in `forecast`.
            member: name of the member. Default: the member that was learned last.

        Returns:
            The lower and the upper end of each interval; before any learning, minus and plus
            infinity.

        Raises:
            ValueError: as in `forecast`, or the coverage is out of range.
        """
        check_coverage(coverage)
        model = self._now(xs)
        found = model._newest_ahead(horizon, member)
        if found is None or model._intake is None or model._state is None:
            return [(-np.inf, np.inf)] * horizon
        margins = model._intake.margins(model._state, model._named(member), coverage)
        _, low, high = bounded(found, margins, self.at_least)
        return list(zip(low[:horizon].tolist(), high[:horizon].tolist(), strict=True))

    def _newest_ahead(self, horizon: int, member: Hashable | None) -> np.ndarray | None:
        """Return the newest forecast of a member; None before any learning."""
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
        """Return the name of a member. Default: the member that was learned last."""
        if member is None and self._intake is not None:
            return self._intake.streams.table.latest
        return member

    def _slot(self, name: Hashable) -> int | None:
        """Return the slot of a member; None if it has no rows."""
        slot = None if self._intake is None else self._intake.streams.table.find(name)
        return None if slot is None or slot.is_new else slot.number
