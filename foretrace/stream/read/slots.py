"""A fixed number of slots, which hold the memories of members."""

import dataclasses
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from typing import Any, NamedTuple

from foretrace.stream.read.learned import Learned, check_fits


class Slot(NamedTuple):
    """The slot of a member whose row has arrived.

    Args:
        number: number of the slot, counted from 0.
        is_new: whether the member starts anew with this row, because it is new or was reset.
    """

    number: int
    is_new: bool


@dataclasses.dataclass
class Member:
    """A member that has a slot, with its pending rows.

    Args:
        slot: number of the slot.
        is_resetting: whether the member starts anew with its next row.
        num_rows: number of rows of the member, at most the number of rows whose labels are awaited.
        pending: labels of the last rows that are not yet due.
        times: last known value of each time column, in seconds, by the column that holds the time
            since then.
        last: number and times of the member's last row, if forecasts are made.
    """

    slot: int
    is_resetting: bool = False
    num_rows: int = 0
    pending: deque[str | bool | int | float | None] = dataclasses.field(default_factory=deque)
    times: dict[Any, float] = dataclasses.field(default_factory=dict)
    last: dict[str, int | str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(init=False, eq=False)
class SlotTable(Learned):
    """Assign slots to members as rows arrive, in constant time.

    A member that leaves, starts anew or loses its slot is forgotten. Its waiting labels are dropped
    and counted.

    Args:
        num_slots: maximum number of members. A further member gets the slot of the member that was
            seen least recently.

    In `members`, the first member is the one that was seen least recently.

    >>> table = SlotTable(2)
    >>> [table.assign(name).number for name in ("a", "b", "a", "c")]  # b was seen least recently
    [0, 1, 0, 1]
    >>> "b" in table, table.assign("a", reset=True), dict(table.counts)
    (False, Slot(number=0, is_new=True), {'joins': 3, 'evictions': 1, 'resets': 1})
    """

    members: OrderedDict[Any, Member]
    free: list[int]
    counts: Counter[str]

    def __init__(self, num_slots: int):
        self.left: list[Hashable] = []  # members whose slots were freed since it was read
        if num_slots < 1:
            raise ValueError(f"members={num_slots} must be at least 1")
        self.num_slots = num_slots
        self.members = OrderedDict()
        self.free = []
        self.counts = Counter()

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, name: Hashable) -> bool:
        return name in self.members

    @property
    def latest(self) -> Hashable:
        """Name of the member that was seen last; None if there are no members."""
        return next(reversed(self.members), None)

    def assign(self, name: Hashable, *, reset: bool = False) -> Slot:
        """Return the slot of a member whose row has arrived; add the member if it is new.

        Args:
            name: name of the member.
            reset: whether the member starts anew with this row.
        """
        if name not in self.members:
            return Slot(self._join(name), True)
        self.members.move_to_end(name)
        if reset:
            self.reset(name)
        member = self.members[name]
        if member.is_resetting:
            self.members[name] = Member(member.slot)
            self._forget(member)
        return Slot(member.slot, member.is_resetting)

    def find(self, name: Hashable) -> Slot | None:
        """Return a member's slot, and whether its next row starts anew; None if it has no slot."""
        member = self.members.get(name)
        return None if member is None else Slot(member.slot, member.is_resetting)

    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._check(name)
        if not self.members[name].is_resetting:
            self.members[name].is_resetting = True
            self.counts["resets"] += 1

    def leave(self, name: Hashable) -> int:
        """Free the slot of a member and return its number. The member may join again as a new one.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._check(name)
        self.counts["leaves"] += 1
        member = self.members.pop(name)
        self.left.append(name)
        self.free.append(member.slot)
        self._forget(member)
        return member.slot

    def _restored(self) -> None:
        numbers = sorted([*(member.slot for member in self.members.values()), *self.free])
        fits = numbers == list(range(len(numbers))) and len(numbers) <= self.num_slots
        expected = f"distinct, without gaps, and at most {self.num_slots}"
        check_fits(fits, "slots", numbers, expected)

    def _join(self, name: Hashable) -> int:
        if self.free:
            index = self.free.pop()
        elif len(self.members) < self.num_slots:
            # No freed slot is available, so the taken slots are 0, 1, ... and the next number was
            # never used.
            index = len(self.members)
        else:
            name_of_evicted, evicted = self.members.popitem(last=False)
            self.left.append(name_of_evicted)
            index = evicted.slot
            self.counts["evictions"] += 1
            self._forget(evicted)
        self.members[name] = Member(index)
        self.counts["joins"] += 1
        return index

    def _forget(self, member: Member) -> None:
        if member.num_rows:
            self.counts["labels dropped"] += member.num_rows

    def _check(self, name: Hashable) -> None:
        if name not in self.members:
            raise KeyError(
                f"{str(name)[:80]!r} is not among the {len(self)} members that have a slot"
            )
