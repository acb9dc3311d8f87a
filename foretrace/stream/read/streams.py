"""Rows of one or many streams as numbers, each with the label that is due."""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.learned import Learned, check_fits
from foretrace.stream.read.row import RawRow
from foretrace.stream.read.slots import Slot, SlotTable
from foretrace.stream.read.target import Target
from foretrace.stream.read.values import MAX_ABS_VALUE, as_number, as_time, is_missing


def seconds_of(value: Any) -> float | None:
    """Return a time as seconds since 1970; None if it is missing or invalid."""
    return None if is_missing(value) else as_time(value)


def gap(then: float | None, now: float | None) -> float | None:
    """Return the logarithm of the seconds between two rows; None unless time increases."""
    return None if then is None or now is None or now <= then else math.log(now - then)


def _prediction(value: Any) -> float:
    """Return a prediction as a number; NaN if it is missing, or no finite number."""
    number = as_number(value)
    return number if number is not None and abs(number) < MAX_ABS_VALUE else math.nan


@dataclasses.dataclass(init=False, eq=False)
class Streams(Learned):
    """Turn rows of streams into numbers, and add the label that is due to each row.

    All streams share the encoder and the target, which learn from all rows.

    Args:
        encoder: encoder of the inputs, without the target.
        target: predicted quantity.
        table: slots of the streams, and the labels that wait.
        delay: number of rows of a stream after which a label is known.
        horizon: number of steps ahead. 0 predicts the target of a row from the row, and h predicts
            the targets of the next h rows.
        outside: columns that hold predictions of other models.
        gaps: for each column that holds the time since the stream's last row, the time column from
            which it is computed. The value is the logarithm of seconds.
    """

    encoder: Encoder
    target: Target
    table: SlotTable

    def __init__(
        self,
        encoder: Encoder,
        target: Target,
        table: SlotTable,
        *,
        delay: int = 0,
        horizon: int = 0,
        gaps: Mapping[Any, Any] | None = None,
        outside: Sequence[Any] = (),
    ):
        self.encoder = encoder
        self.target = target
        self.table = table
        self.delay = delay
        self.total_delay = delay + horizon
        self.gaps = dict(gaps or {})
        self.outside = tuple(outside)

    def push(
        self,
        name: Hashable,
        row: Mapping[Any, Any],
        value: Any,
        *,
        reset: bool = False,
        learn: bool = True,
    ) -> RawRow:
        """Add the next row of a stream and its target; return the row with the label that is due.

        Args:
            name: name of the stream.
            row: values of the columns.
            value: target of the row.
            reset: whether the stream starts anew with this row.
            learn: whether new columns, categories and classes are learned.
        """
        found = self.take(name, row, reset=reset, learn=learn)
        member = self.table.members[name]
        if self.delay:
            member.pending.append(self.target.plain(value))
            if len(member.pending) <= self.delay:
                return found
            value = member.pending.popleft()
        y = self.target.read(value, learn=learn)
        return found._replace(y=y, watched=self.target.watched)

    def take(
        self, name: Hashable, row: Mapping[Any, Any], *, reset: bool = False, learn: bool = True
    ) -> RawRow:
        """Add the next row of a stream, and return it without a label; arguments as in `push`."""
        is_first = name not in self.table
        slot = self.table.assign(name, reset=reset)
        member = self.table.members[name]
        member.num_rows = min(member.num_rows + 1, self.total_delay)
        found = self._read(row, slot, member.times, learn=learn)
        return found._replace(is_new=slot.is_new + is_first)

    def peek(self, name: Hashable, row: Mapping[Any, Any], *, reset: bool = False) -> RawRow:
        """Return a row as if it were the next of a stream, without a label or a change of state.

        Arguments as in `push`.
        """
        # A stream without a slot is a new one. The spare slot, which is never written, serves for
        # it.
        slot = self.table.find(name) or Slot(self.table.num_slots, True)
        slot = slot._replace(is_new=slot.is_new or reset)
        times = {} if slot.is_new else dict(self.table.members[name].times)
        return self._read(row, slot, times, learn=False)

    def _read(
        self, row: Mapping[Any, Any], slot: Slot, times: dict[Any, float], *, learn: bool
    ) -> RawRow:
        """Return a row without a label, and update `times`."""
        for name, column in self.gaps.items():
            now = seconds_of(row.get(column))
            row = {**row, name: gap(times.get(name), now)}
            if now is not None:
                times[name] = now
        found = self.encoder.encode(row, learn=learn)
        if self.outside:
            found = found._replace(given=[_prediction(row.get(name)) for name in self.outside])
        return found._replace(slot=slot.number, is_new=slot.is_new)

    def _restored(self) -> None:
        for member in self.table.members.values():
            waiting = min(member.num_rows, self.delay)
            check_fits(len(member.pending) == waiting, "pending", member.pending, f"{waiting} long")
