"""A part of a stream: the model at a position. A run and a service are loops around a part."""

from collections.abc import Sequence
from typing import Any, cast

from foretrace.stream.experts.by_name import Own
from foretrace.stream.model.intake import State
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.state import Mixed, MixtureState, Scored
from foretrace.stream.read.lines import Position, Row
from foretrace.stream.read.source import SYMBOL
from foretrace.stream.read.streams import seconds_of
from foretrace.stream.read.values import member_text
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Plan, build
from foretrace.stream.runs.saved import StreamSaved, copy_state, to_save


class Part:
    """Intake, packed state, and position after the rows and labels that were learned.

    The state at a position is a function of the events before it. If the same events are taken
    again, predictions and state are the same, bit for bit.

    Args:
        config: configuration of the stream.
        plan: decisions from the first rows.
        own: the user's experts.

    Raises:
        ValueError: as in `build`.
    """

    state: State

    def __init__(self, config: StreamConfig, plan: Plan, own: Own = ()):
        self.config = config
        self.intake = build(config, plan, own)
        self.target = SYMBOL if config.target is None else config.target
        times = (column.name for column in plan.columns if column.kind == "time")
        self.time_column, self.keep = next(times, None), config.keep_seconds
        self.position = Position()

    @property
    def mixture(self) -> Mixture:
        """The mixture that predicts and learns. It is replaced when the number of classes grows."""
        return self.intake.mixture

    def restore(self, saved: StreamSaved) -> None:
        """Restore position and intake from a checkpoint. `begin` gets the checkpoint's arrays.

        Raises:
            ValueError: a value does not fit the configuration.
        """
        self.intake.restore(saved.intake)
        self.position = saved.position

    def begin(self, state: Any) -> None:
        """Set the state to a packed copy, which programs take and return in less time."""
        self.state = self.mixture.packing.pack(copy_state(state))

    def to_save(self) -> MixtureState:
        """Return a copy of the state for a checkpoint, because `take` may donate the state."""
        return to_save(self.intake, self.state)

    def to_json(self) -> dict[str, Any]:
        """Return the values of a checkpoint in addition to the arrays."""
        return {"position": self.position, "intake": self.intake.to_json()}

    def take(self, events: Sequence[tuple[Row, Position]]) -> Mixed | Scored:
        """Learn from events, and return the results.

        An event is a row, a row with its label, or a label without a row, with the position after
        it.

        Args:
            events: at most a chunk of the intake. If rows wait for labels, only one event.

        Raises:
            ValueError: an event is refused, and the state is not changed. After any other error,
                the state may be between two events.
        """
        rows = [(row, row.get(self.target)) for row, _ in events]
        found = self._event(*rows[0]) if self.config.waiting else self._learn_or_undo(rows)
        self.position = events[-1][1]
        if self.config.horizon:
            for row, position in events:
                self.intake.note(row, position.row)
        return found

    def _event(self, row: Row, value: Any) -> Mixed | Scored:
        """Take a row or a label by its id."""
        time = None
        if self.keep is not None and self.time_column is not None:
            time = seconds_of(row.get(self.time_column))
            if time is not None:
                self.intake.room.expire(time, self.keep)
        id = member_text(row.get(cast(str, self.config.id)))  # by its text, as members
        self.state, found = self.intake.event(self.state, row, value, id, time)
        return found

    def _learn_or_undo(self, rows: list[tuple[Row, Any]]) -> Mixed:
        """Learn from rows. If a row is refused, restore the intake to its state before them."""
        # Names and flags are refused before anything changes. Each of these errors is a ValueError.
        before = self.intake.to_json() if self.config.outliers == "stop" else None
        try:
            self.state, mixed = self.intake.learn(self.state, rows)
            return mixed
        except Exception:
            if before is not None:
                self.intake.restore(before)
            raise
