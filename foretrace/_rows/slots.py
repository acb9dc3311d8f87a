"""Slots for members' memories: their number is fixed, however many members arrive."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Literal, NamedTuple

from foretrace._rows.saved import check_counts, check_size
from foretrace._runs.config_json import from_json

WhenFull = Literal["evict", "stop"]


class NoFreeSlotError(ValueError):
    """All slots are taken, and no member may lose its own."""


class Slot(NamedTuple):
    """The slot of a member whose row has come.

    Args:
        number: number of the slot, from 0, below the number of slots.
        is_new: whether the member starts anew with this row, because it joined or was reset.
    """

    number: int
    is_new: bool


class SavedSlot(NamedTuple):
    """Saved form of a member: its name, its slot, and whether its next row starts anew."""

    name: Any
    number: int
    is_resetting: bool


class SavedSlots(NamedTuple):
    """Saved form of a table of slots."""

    slots: list[SavedSlot]
    free: list[int]
    counts: dict[str, int]


class SlotTable:
    """Assign slots to members as rows arrive; the time of a call is independent of their number.

    Args:
        num_slots: maximum number of members.
        when_full: what happens to one member more: "evict" gives it the slot of the member seen
            least recently, "stop" raises an error.

    >>> table = SlotTable(2)
    >>> [table.assign(name).number for name in ("a", "b", "a", "c")]  # b was seen least recently
    [0, 1, 0, 1]
    >>> "b" in table, table.assign("a", reset=True), dict(table.counts)
    (False, Slot(number=0, is_new=True), {'joins': 3, 'evictions': 1, 'resets': 1})
    """

    def __init__(self, num_slots: int, *, when_full: WhenFull = "evict"):
        if num_slots < 1:
            raise ValueError(f"members={num_slots} must be at least 1")
        self.num_slots = num_slots
        self.when_full = when_full
        self.counts: Counter[str] = Counter()
        # The member seen least recently comes first.
        self._slots: OrderedDict[Hashable, int] = OrderedDict()
        self._free: list[int] = []
        self._resetting: dict[Hashable, None] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[Hashable]:
        """Yield the names; the member seen least recently comes first."""
        return iter(self._slots)

    @property
    def latest(self) -> Hashable:
        """Name of the member seen last; None without members."""
        return next(reversed(self._slots), None)

    def assign(self, name: Hashable, *, reset: bool = False) -> Slot:
        """Return the slot of a member whose row has come; a member without one joins.

        Args:
            name: name of the member.
            reset: whether the member starts anew with this row.

        Raises:
            NoFreeSlotError: all slots are taken, and no member may lose its own; nothing has
                changed.
        """
        if name not in self._slots:
            return Slot(self._join(name), True)
        self._slots.move_to_end(name)
        if reset:
            self.reset(name)
        is_new = name in self._resetting
        self._resetting.pop(name, None)
        return Slot(self._slots[name], is_new)

    def find(self, name: Hashable) -> Slot | None:
        """Return a member's slot, and whether its next row starts anew. None without a slot."""
        if name not in self._slots:
            return None
        return Slot(self._slots[name], name in self._resetting)

    @property
    def taken(self) -> set[int]:
        """Slots that members have."""
        return set(self._slots.values())

    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._check(name)
        if name not in self._resetting:
            self._resetting[name] = None
            self.counts["resets"] += 1

    def leave(self, name: Hashable) -> int:
        """Free the slot of a member and return its number; the member may join again as a new one.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._check(name)
        self._resetting.pop(name, None)
        self.counts["leaves"] += 1
        index = self._slots.pop(name)
        self._free.append(index)
        return index

    def to_json(self) -> SavedSlots:
        """Return everything that the next rows depend on; names must be JSON."""
        slots = [
            SavedSlot(name, index, name in self._resetting) for name, index in self._slots.items()
        ]
        return SavedSlots(slots, list(self._free), dict(self.counts))

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of a table made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedSlots, state)
        numbers = sorted([*(slot.number for slot in saved.slots), *saved.free])
        if numbers != list(range(len(numbers))) or len(numbers) > self.num_slots:
            raise ValueError(
                f"slots {str(numbers)[:80]} must be distinct, without gaps, and at most "
                f"{self.num_slots}"
            )
        check_counts("counts", saved.counts)
        self._slots = OrderedDict((name, number) for name, number, _ in saved.slots)
        check_size("slots", self._slots, len(saved.slots))
        self._resetting = {name: None for name, _, is_resetting in saved.slots if is_resetting}
        self._free = saved.free
        self.counts = Counter(saved.counts)

    def _join(self, name: Hashable) -> int:
        if self._free:
            index = self._free.pop()
        elif len(self._slots) < self.num_slots:
            # No slot is free for a second use, so the taken ones are 0, 1, ...: the next one was
            # never used.
            index = len(self._slots)
        elif self.when_full == "stop":
            raise NoFreeSlotError(
                f"{str(name)[:80]!r} is one member more than the {self.num_slots} slots; raise "
                "--members, or choose --when-full evict, which gives it the slot of the member "
                "seen least recently"
            )
        else:
            evicted, index = self._slots.popitem(last=False)
            self._resetting.pop(evicted, None)
            self.counts["evictions"] += 1
        self._slots[name] = index
        self.counts["joins"] += 1
        return index

    def _check(self, name: Hashable) -> None:
        if name not in self._slots:
            raise KeyError(
                f"{str(name)[:80]!r} is not among the {len(self)} members that have a slot"
            )
