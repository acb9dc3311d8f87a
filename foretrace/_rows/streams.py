"""Rows of one or many streams as numbers, each with the label that is due."""

import dataclasses
import math
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

from foretrace._experts.rows import RawRow
from foretrace._rows.encode import Encoder
from foretrace._rows.learned import Learned, check_fits
from foretrace._rows.slots import Slot, SlotTable
from foretrace._rows.target import Target
from foretrace._rows.values import as_time, is_missing


def seconds_of(value: Any) -> float | None:
    """Return a time as seconds since 1970; None if it is missing or invalid."""
    return None if is_missing(value) else as_time(value)


def gap(then: float | None, now: float | None) -> float | None:
    """Return the logarithm of the seconds between two rows; None unless time increases."""
    return None if then is None or now is None or now <= then else math.log(now - then)


class Awaited:
    """A label that can be given after its row until it is due.

    It stands among the labels of a stream that wait, of one that is never saved.
    """

    value: Any = None


@dataclasses.dataclass(init=False, eq=False)
class Streams(Learned):
    """Turn rows of streams into numbers, each with the label that is due.

    Streams share encoder and target, which learn from all.

    Args:
        encoder: encoder of the inputs; the target is not among them.
        target: predicted quantity.
        table: which stream has which slot, and what waits of it.
        delay: number of rows of a stream after which a label is known.
        horizon: number of steps ahead: 0 to predict the target of a row from the row, h to predict
            the targets of the next h rows.
        gaps: time column of each column that holds the time since the last row of the stream, as
            the logarithm of seconds.
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
    ):
        self.encoder = encoder
        self.target = target
        self.table = table
        self.delay = delay
        self.total_delay = delay + horizon
        self.gaps = dict(gaps or {})

    def push(
        self,
        name: Hashable,
        row: Mapping[Any, Any],
        value: Any,
        *,
        reset: bool = False,
        learn: bool = True,
    ) -> RawRow:
        """Add the next row of a stream and its target; return it with the label that is due.

        Args:
            name: name of the stream.
            row: values of the columns.
            value: target of the row.
            reset: whether the stream starts anew with it.
            learn: whether columns, categories and classes may be new.
        """
        is_first = name not in self.table
        slot = self.table.assign(name, reset=reset)
        member = self.table.members[name]
        found = self._read(row, slot, member.times, learn=learn)
        found = found._replace(is_new=slot.is_new + is_first)
        member.num_rows = min(member.num_rows + 1, self.total_delay)
        if self.delay:
            member.pending.append(self.target.plain(value))
            if len(member.pending) <= self.delay:
                return found
            value = member.pending.popleft()
            value = value.value if isinstance(value, Awaited) else value
        y = self.target.read(value, learn=learn)
        return found._replace(y=y, watched=self.target.watched)

    def peek(self, name: Hashable, row: Mapping[Any, Any]) -> RawRow:
        """Return a row as if it were a stream's next, without a label; the state is unchanged."""
        # A stream without a slot is a new one: use the spare slot, which is never written.
        slot = self.table.find(name) or Slot(self.table.num_slots, True)
        times = {} if slot.is_new else dict(self.table.members[name].times)
        return self._read(row, slot, times, learn=False)

    def pending(self, name: Hashable) -> deque[Any]:
        """Return a stream's pending labels; the newest is the last row's."""
        member = self.table.members.get(name)
        return deque() if member is None else member.pending

    def _read(
        self, row: Mapping[Any, Any], slot: Slot, times: dict[Any, float], *, learn: bool
    ) -> RawRow:
        """Return a row without a label; `times` are advanced."""
        for name, column in self.gaps.items():
            now = seconds_of(row.get(column))
            row = {**row, name: gap(times.get(name), now)}
            if now is not None:
                times[name] = now
        found = self.encoder.encode(row, learn=learn)
        return found._replace(slot=slot.number, is_new=slot.is_new)

    def _restored(self) -> None:
        for member in self.table.members.values():
            waiting = min(member.num_rows, self.delay)
            check_fits(len(member.pending) == waiting, "pending", member.pending, f"{waiting} long")
