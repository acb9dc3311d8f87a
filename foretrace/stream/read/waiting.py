"""The waiting room: rows that were received and whose labels have not arrived, by their ids."""

import dataclasses
import heapq
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any

from foretrace.stream.read.learned import Counting, check_fits
from foretrace.stream.read.values import is_missing


@dataclasses.dataclass
class WaitingRow:
    """A row that waits.

    Args:
        place: its place in the state, from 0.
        member: name of its member.
        time: its time in seconds, if rows are kept only for some time.
        text: its features in print, where a label may be given without an id.
        given: the row as the object that was given, likewise: it may be asked about again. A room
            with such rows is never saved.
    """

    place: int
    member: Any
    time: float | None = None
    text: str = ""
    given: Any = None


@dataclasses.dataclass(init=False, eq=False)
class WaitingRoom(Counting):
    """Rows that wait for their labels. Their number is bounded: the oldest one leaves.

    Labels that have arrived are remembered likewise, so that one which arrives twice is known, and
    so are rows that left without one.

    Args:
        size: maximum number of rows that wait; 0 if none ever does.

    In `rows`, the row that has waited longest comes first.

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
        """Return the ids of a member's rows, the one that has waited longest first."""
        return self._of_members.get(member, deque())

    def take(self, id: Hashable, member: Hashable, **about: Any) -> int:
        """Return the place of a new row; if there is none, that of the oldest row, which leaves.

        Args:
            id: id of the row, of none that waits.
            member: name of its member.
            **about: other fields of `WaitingRow`.
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
        place = heapq.heappop(self._free)
        self.rows[id] = WaitingRow(place, member, **about)
        self._of_members.setdefault(member, deque()).append(id)
        self.told.pop(id, None)
        self.gone.pop(id, None)
        return place

    def find(self, id: Hashable, value: Any) -> int | None:
        """Return the place of the row whose label comes; None if the same label came before.

        Raises:
            KeyError: no row of this id waits.
            ValueError: another label came before.
        """
        if id in self.rows:
            return self.rows[id].place
        if id not in self.told:
            raise KeyError(
                f"no row of the id {id!r} waits for its label: none was asked for, or it was "
                f"dropped, since at most {self.size} rows wait"
            )
        before = self.told[id]
        if not _is_same(before, value):
            raise ValueError(
                f"the row of the id {id!r} has the label {before!r}, and is given {value!r}; a "
                "label that was learned cannot be taken back"
            )
        return None

    def pop(self, id: Hashable, value: Any) -> int | None:
        """Let a row leave whose label comes, and return its place; errors are those of `find`."""
        place = self.find(id, value)
        if place is not None:
            self._leave(id)
            self.remember(id, value)
        return place

    def remember(self, id: Hashable, value: Any) -> None:
        """Remember the label of a row, which may come twice."""
        self.told[id] = value
        if len(self.told) > self.size:
            self.told.popitem(last=False)

    def refuse(self, error: Exception) -> None:
        """Count a label that is refused, and tell of the first one."""
        reason = "unknown ids" if isinstance(error, KeyError) else "other labels"
        self._tell(reason, f"a label was refused: {error.args[0]}")

    def drop(self, id: Hashable) -> None:
        """Let a row leave whose label never comes."""
        self._leave(id)
        self._forgets(id)
        self.counts["rows dropped"] += 1

    def forget(self, member: Hashable) -> None:
        """Let all rows of a member leave."""
        for id in [*self.of_member(member)]:
            self.drop(id)

    def expire(self, before: float) -> None:
        """Let all rows leave whose time is earlier than this one, oldest rows first."""
        while self.rows:
            id, row = next(iter(self.rows.items()))
            if row.time is None or row.time >= before:
                return
            self.drop(id)

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
        # Which place is taken depends on the rows that wait alone.
        self._free = sorted(set(range(self.size)) - set(taken))
        self._of_members: dict[Any, deque[Any]] = {}
        for id, row in self.rows.items():
            self._of_members.setdefault(row.member, deque()).append(id)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two labels are the same."""
    if is_missing(one) or is_missing(other):
        return is_missing(one) and is_missing(other)
    return bool(one == other)
