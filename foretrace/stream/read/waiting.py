"""The waiting room: rows, by their ids, whose labels have not arrived yet."""

import dataclasses
import heapq
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any

from foretrace.stream.read.learned import Counting, check_fits
from foretrace.stream.read.values import member_text


@dataclasses.dataclass
class WaitingRow:
    """A row that waits for its label.

    Args:
        place: place of the row in the state, counted from 0.
        member: name of the row's member.
        time: time of the row in seconds, if rows are kept for a limited time.
        text: printed features of the row, if a label may be given without an id.
        given: the row as the given object, if a label may be given without an id, because the
            object may be given again. A waiting room with such rows is never saved.
    """

    place: int
    member: Any
    time: float | None = None
    text: str = ""
    given: Any = None


@dataclasses.dataclass(init=False, eq=False)
class WaitingRoom(Counting):
    """Rows that wait for their labels. Their number is bounded; a further row replaces the oldest.

    The last labels are also remembered, so that a label that arrives twice is recognised. So are
    the rows that were dropped before their label arrived.

    Args:
        size: maximum number of waiting rows; 0 if rows never wait.

    In `rows`, the first row is the one that has waited longest.

    >>> room = WaitingRoom(2)
    >>> [room.take(name, None) for name in "abc"], dict(room.counts)
    ([0, 1, 0], {'rows dropped': 1})
    >>> room.pop("b", 3.5), room.pop("b", 3.5)
    (1, None)
    """

    rows: OrderedDict[Any, WaitingRow]
    told: OrderedDict[Any, Any]
    gone: OrderedDict[Any, bool]

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.rows, self.told, self.gone = OrderedDict(), OrderedDict(), OrderedDict()
        self._restored()

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, id: Hashable) -> bool:
        return id in self.rows

    def of_member(self, member: Hashable) -> deque[Any]:
        """Return the ids of a member's waiting rows, the row that has waited longest first."""
        return self._of_members.get(member, deque())

    def take(self, id: Hashable, member: Hashable, **about: Any) -> int:
        """Return a place for a new row. If no place is free, the oldest row is dropped.

        Args:
            id: id of the row. No waiting row has the same id.
            member: name of its member.
            **about: other fields of `WaitingRow`. Without a time, the row has that of the row
                before it.
        """
        if not self._free:
            oldest = next(iter(self.rows))
            self._tell(
                "rows dropped",
                f"{self.size} rows wait for their labels, and the oldest one, {oldest!r}, was "
                "dropped; let more of them wait by `waiting`",
            )
            self._leave(oldest)
            self._forgets(oldest)
        if about.get("time") is None and self.rows:
            about["time"] = self.rows[next(reversed(self.rows))].time
        place = heapq.heappop(self._free)
        self.rows[id] = WaitingRow(place, member, **about)
        self._of_members.setdefault(member, deque()).append(id)
        self.told.pop(id, None)
        self.gone.pop(id, None)
        return place

    def find(self, id: Hashable, value: Any) -> int | None:
        """Return the place of the row of a label; None if the same label has already arrived.

        Raises:
            KeyError: no row with this id waits.
            ValueError: a different label has already arrived.
        """
        if id in self.rows:
            return self.rows[id].place
        if id not in self.told:
            raise KeyError(
                f"no row of the id {id!r} waits for its label: none was asked for, or it was "
                f"dropped, since at most {self.size} rows wait"
            )
        before = self.told[id]
        if before != value:
            raise ValueError(
                f"the row of the id {id!r} has the label {before!r}, and is given {value!r}; a "
                "label that was learned cannot be taken back"
            )
        return None

    def pop(self, id: Hashable, value: Any) -> int | None:
        """Remove the row of a label, and return its place; errors as in `find`."""
        place = self.find(id, value)
        if place is not None:
            self._leave(id)
            self.remember(id, value)
        return place

    def remember(self, id: Hashable, value: Any) -> None:
        """Remember the label of a row, because it may arrive twice."""
        self.told[id] = value
        if len(self.told) > self.size:
            self.told.popitem(last=False)

    def refuse(self, error: Exception) -> None:
        """Count a label that is refused, and report the first one."""
        reason = "unknown ids" if isinstance(error, KeyError) else "other labels"
        self._tell(reason, f"a label was refused: {error.args[0]}")

    def drop(self, id: Hashable) -> None:
        """Remove a row whose label will never arrive."""
        self._leave(id)
        self._forgets(id)
        self.counts["rows dropped"] += 1

    def forget(self, member: Hashable) -> None:
        """Remove all rows of a member."""
        for id in [*self.of_member(member)]:
            self.drop(id)

    def expire(self, now: float, keep: float) -> None:
        """Remove all rows that are older than `keep` seconds, oldest rows first.

        A row before the first time has the time of this call.
        """
        for row in self.rows.values():
            if row.time is not None:
                break
            row.time = now
        while self.rows:
            id, row = next(iter(self.rows.items()))
            if row.time is None or row.time >= now - keep:
                return
            self.drop(id)

    def name_by_text(self) -> None:
        """Compare ids by their text, also those of an older checkpoint, which may be numbers."""
        for name in ("rows", "told", "gone"):
            found = getattr(self, name).items()
            setattr(self, name, OrderedDict((member_text(id), one) for id, one in found))
        self._restored()

    def _forgets(self, id: Hashable) -> None:
        self.gone[id] = True
        if len(self.gone) > self.size:
            self.gone.popitem(last=False)

    def _leave(self, id: Hashable) -> None:
        row = self.rows.pop(id)
        heapq.heappush(self._free, row.place)
        ids = self._of_members[row.member]
        ids.remove(id)
        if not ids:
            del self._of_members[row.member]

    def _restored(self) -> None:
        taken = [row.place for row in self.rows.values()]
        fits = len(taken) == len(set(taken)) and all(0 <= at < self.size for at in taken)
        check_fits(fits, "places", taken, f"distinct, from 0 to {self.size - 1}")
        check_fits(len(self.told) <= self.size, "told", [*self.told], f"at most {self.size} long")
        # The waiting rows alone determine which places are taken.
        self._free = sorted(set(range(self.size)) - set(taken))
        self._of_members: dict[Any, deque[Any]] = {}
        for id, row in self.rows.items():
            self._of_members.setdefault(row.member, deque()).append(id)
