"""A part of a stream: what was learned of its events up to an offset.

Its state is a pure function of the events before the offset. So a checkpoint that holds both goes
on exactly, and whoever reads the same events again gets the same predictions. A run of the command,
a service and a worker of a group are loops around a part: they bring its events, and decide when it
is saved.
"""

from collections.abc import Sequence
from typing import Any

import jax

from foretrace._runs.config_json import to_json
from foretrace.stream.experts.by_name import Own
from foretrace.stream.model.intake import State
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.state import Mixed
from foretrace.stream.read.lines import Position, Row
from foretrace.stream.read.source import SYMBOL
from foretrace.stream.read.streams import seconds_of
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Plan, build
from foretrace.stream.runs.saved import StreamSaved


class Part:
    """The model of a stream at an offset.

    Args:
        config: configuration of the stream.
        plan: decisions of its first rows.
        own: experts of a user's own.

    Attributes:
        state: state of the mixture, packed once the first event is taken.
        position: position after the last event.
        newest: last event.
        is_whole: whether the state is one between two events, also after an error.

    Raises:
        ValueError: settings do not fit the plan.
    """

    state: State

    def __init__(self, config: StreamConfig, plan: Plan, own: Own = ()):
        self.config, self.plan = config, plan
        self.intake = build(config, plan, own)
        self.target = SYMBOL if config.target is None else config.target
        times = (column.name for column in plan.columns if column.kind == "time")
        self.time_column, self.keep = next(times, None), config.keep_seconds
        self.position, self.is_whole = Position(), True
        self.newest: Row = {}

    @property
    def mixture(self) -> Mixture:
        """The mixture that predicts and learns; replaced when the number of classes grows."""
        return self.intake.mixture

    def restore(self, saved: StreamSaved) -> None:
        """Go on at a checkpoint, whose state is loaded apart.

        Raises:
            ValueError: a value does not fit.
        """
        self.intake.restore(saved.intake)
        self.position = saved.position

    def saved(self) -> dict[str, Any]:
        """Return the values of a checkpoint beside the state."""
        values = {"plan": to_json(self.plan), "intake": self.intake.to_json()}
        return values | {"position": self.position}

    def take(self, events: Sequence[tuple[Row, Position]]) -> Mixed | None:
        """Take events, each with the position after it; return the predictions of rows.

        Args:
            events: a chunk of rows with their labels; or one row or label, where labels come by
                their ids.
        """
        rows = [(row, row.get(self.target)) for row, _ in events]
        mixed = self._event(*rows[0]) if self.config.waiting else self._learned(rows)
        self.newest, self.position = events[-1]
        if self.config.horizon:
            for row, position in events:
                self.intake.note(row, position.row)
        return mixed

    def _event(self, row: Row, value: Any) -> Mixed | None:
        """Take a row or a label by its id; return the prediction of a row."""
        time = None
        if self.keep is not None and self.time_column is not None:
            time = seconds_of(row.get(self.time_column))
            if time is not None:
                self.intake.room.expire(time - self.keep)
        id = row.get(str(self.config.id))
        try:
            self.state, mixed = self.intake.event(self.state, row, value, id, time)
        except Exception as error:
            self.is_whole = isinstance(error, ValueError)
            raise
        return None if mixed is None else jax.tree.map(lambda part: part[None], mixed)

    def _learned(self, rows: list[tuple[Row, Any]]) -> Mixed:
        """Learn from rows; if one is refused, restore the state before them."""
        # Names and flags are refused before anything changes; each of these errors is a ValueError.
        before = self.intake.to_json() if self.config.outliers == "stop" else None
        try:
            self.state, mixed = self.intake.learn(self.state, rows)
            return mixed
        except Exception as error:
            if before is not None:
                self.intake.restore(before)
            else:
                # Else nobody knows how far it came: the last checkpoint is better than a state
                # between two rows.
                self.is_whole = isinstance(error, ValueError)
            raise
