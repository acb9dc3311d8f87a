"""Rows of one stream or of many as numbers, each with the label that is due with it."""

import dataclasses
import math
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._experts.rows import RawRow
from foretrace._rows.encode import Encoder
from foretrace._rows.saved import check_derived, check_size, check_within
from foretrace._rows.slots import SavedSlots, Slot, SlotTable
from foretrace._rows.target import Target
from foretrace._rows.values import MAX_TEXT, as_label, as_text, as_time, is_missing
from foretrace._runs.config_json import from_json

_PLAIN = str | int | float | None
"""Values that JSON can hold; others, such as decimals, are saved as their label."""


def _short(value: Any) -> Any:
    """Return a label that waits in bounded memory; no number is so long."""
    return as_text(value) if isinstance(value, str) and len(value) > MAX_TEXT else value


def seconds_of(value: Any) -> float | None:
    """Return a time as seconds since 1970; None if it is missing or none."""
    return None if is_missing(value) else as_time(value)


def gap(then: float | None, now: float | None) -> float | None:
    """Return the logarithm of the seconds between two rows; None unless time went on."""
    return None if then is None or now is None or now <= then else math.log(now - then)


class SavedStream(NamedTuple):
    """Saved form of what waits of one stream."""

    slot: int
    pending: list[str | int | float | bool | None]
    times: list[float | None]
    num_rows: int


class SavedStreams(NamedTuple):
    """Saved form of streams; encoder and target read their own."""

    encoder: dict[str, Any]
    target: Any
    slots: SavedSlots
    streams: list[SavedStream]


@dataclasses.dataclass
class Awaited:
    """A label that is not due.

    Args:
        value: the label as it came; it may be given until it is due.
        asked: what is known of the question that its row was.
    """

    value: Any
    asked: Any = None


class Waiting:
    """What waits of one stream.

    Args:
        num_gaps: number of columns that hold the time since the row before.

    `pending` are the labels of the last rows that are not due. `num_rows` is counted up to the
    number of rows whose labels are awaited. `answer` is what was said of the last row, where
    someone asks for it later.
    """

    def __init__(self, num_gaps: int) -> None:
        self.pending: deque[Awaited] = deque()
        self.times: list[float | None] = [None] * num_gaps
        self.answer: Any = None
        self.num_rows = 0


class Streams:
    """Turn rows of streams into numbers, and give each row the label that is due with it.

    Streams share encoder and target, which learn from all. A stream that leaves, starts anew or
    loses its slot is forgotten: its labels that wait are dropped and counted.

    Args:
        encoder: encoder of the inputs; the target is not among them.
        target: predicted quantity.
        table: which stream has which slot.
        delay: number of rows of a stream after which a label is known.
        horizon: number of steps ahead: 0 to predict the target of a row from the row, h to predict
            the targets of the next h rows.
        gaps: time column of each column that holds the time since the last row of the stream, as
            the logarithm of seconds.
    """

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
        self.waiting: dict[int, Waiting] = {}  # by slot; there may be very many slots

    def push(
        self,
        name: Hashable,
        row: Mapping[Any, Any],
        value: Any,
        *,
        reset: bool = False,
        learn: bool = True,
    ) -> RawRow:
        """Take the next row of a stream and its target, and return it with the label that is due.

        Args:
            name: name of the stream.
            row: values of the columns.
            value: target of the row.
            reset: whether the stream starts anew with it.
            learn: whether columns, categories and classes may be new.

        Raises:
            NoFreeSlotError: all slots are taken, and no stream may lose its own.
            ValueError, TypeError: the target is refused; nothing has changed.
        """
        self.target.check(value)
        is_first = name not in self.table
        slot = self.table.assign(name, reset=reset)
        if slot.is_new:
            self._clear(slot.number)
            self.waiting[slot.number] = Waiting(len(self.gaps))
        stream = self.waiting[slot.number]
        found = self._read(row, slot, stream, learn=learn, moves=True)
        found = found._replace(is_new=slot.is_new + is_first)
        stream.num_rows = min(stream.num_rows + 1, self.total_delay)
        stream.pending.append(Awaited(_short(value)))
        if len(stream.pending) <= self.delay:
            return found
        return found._replace(y=self.target.read(stream.pending.popleft().value, learn=learn))

    def peek(self, name: Hashable, row: Mapping[Any, Any]) -> RawRow:
        """Return a row as if it came next of a stream, without a label; nothing changes."""
        slot = self.table.find(name)
        if slot is None:
            # A stream without a slot is a new one: use the spare slot, which is never written.
            slot = Slot(self.table.num_slots, True)
        stream = Waiting(len(self.gaps)) if slot.is_new else self.waiting[slot.number]
        return self._read(row, slot, stream, learn=False, moves=False)

    def pending(self, name: Hashable) -> deque[Awaited]:
        """Return a stream's labels that are not due; the newest is the last row's."""
        slot = self.table.find(name)
        return deque() if slot is None else self.waiting[slot.number].pending

    def leave(self, name: Hashable) -> None:
        """Forget a stream.

        Raises:
            KeyError: no stream of this name has a slot.
        """
        self._clear(self.table.leave(name))

    def _read(
        self, row: Mapping[Any, Any], slot: Slot, stream: Waiting, *, learn: bool, moves: bool
    ) -> RawRow:
        times = list(stream.times)
        for i, (name, column) in enumerate(self.gaps.items()):
            now, then = seconds_of(row.get(column)), times[i]
            row = {**row, name: gap(then, now)}
            times[i] = then if now is None else now
        if moves:
            stream.times = times
        x, is_number = self.encoder.encode(row, learn=learn)
        return RawRow(x, is_number, np.nan, slot.number, slot.is_new)

    def _clear(self, index: int) -> None:
        stream = self.waiting.pop(index, None)
        if stream is not None and stream.num_rows:
            self.table.counts["labels dropped"] += stream.num_rows

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on; names must be JSON."""
        streams = [
            SavedStream(
                slot,
                [
                    v.value if isinstance(v.value, _PLAIN) else as_label(v.value)
                    for v in one.pending
                ],
                one.times,
                one.num_rows,
            )
            for slot, one in sorted(self.waiting.items())
        ]
        return SavedStreams(
            self.encoder.to_json(), self.target.to_json(), self.table.to_json(), streams
        )._asdict()

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedStreams, state)
        self.table.restore(saved.slots)
        self.encoder.restore(saved.encoder)
        self.target.restore(saved.target)
        self.waiting = {}
        for slot, pending, times, num_rows in saved.streams:
            check_within("num_rows", [num_rows], 0, self.total_delay)
            check_size("pending", pending, min(num_rows, self.delay))
            check_size("times", times, len(self.gaps))
            check_derived("times", [time for time in times if time is not None])
            stream = self.waiting[slot] = Waiting(len(self.gaps))
            stream.pending.extend(map(Awaited, pending))
            stream.times, stream.num_rows = times, num_rows
        if self.waiting.keys() != self.table.taken or len(saved.streams) != len(self.waiting):
            raise ValueError(
                f"labels of the slots {sorted(self.waiting)}, but members have "
                f"{sorted(self.table.taken)}"
            )
