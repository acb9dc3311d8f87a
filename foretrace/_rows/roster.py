"""Who has a place: names of members and the places that hold their memory, bounded whatever comes."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Literal, NamedTuple

WhenFull = Literal["evict", "stop"]


class RosterError(ValueError):
    """There is no place left, and nobody may lose one."""


class Seat(NamedTuple):
    """The place of a member whose row has come.

    Args:
        place: from 0 on, below the capacity.
        fresh: whether the member starts anew with this row, because it joined or was reset.
    """

    place: int
    fresh: bool


class Roster:
    """Give each member a place as its rows come; every call takes the same time, however many there are.

    Args:
        capacity: most members.
        when_full: what becomes of one more: "evict" gives it the place of the member that has been silent longest;
            "stop" refuses it.

    >>> roster = Roster(2)
    >>> [roster.seat(name).place for name in ("a", "b", "a", "c")]  # b has been silent longest
    [0, 1, 0, 1]
    >>> "b" in roster, roster.seat("a", reset=True), dict(roster.counts)
    (False, Seat(place=0, fresh=True), {'joins': 3, 'evictions': 1, 'resets': 1})
    """

    def __init__(self, capacity: int, *, when_full: WhenFull = "evict"):
        if capacity < 1:
            raise ValueError(f"members={capacity} must be at least 1")
        self.capacity, self.when_full = capacity, when_full
        self.counts: Counter[str] = Counter()
        self._places: OrderedDict[Hashable, int] = OrderedDict()  # the one that has been silent longest first
        self._free: list[int] = []
        self._anew: dict[Hashable, None] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[Hashable]:
        """Yield the names, the one that has been silent longest first."""
        return iter(self._places)

    def seat(self, name: Hashable, *, reset: bool = False) -> Seat:
        """Return the place of a member whose row has come; one that has none joins.

        Args:
            name: of the member.
            reset: let it start anew with this row.

        Raises:
            RosterError: all places are taken, and nobody may lose one; nothing has changed.
        """
        if name not in self._places:
            return Seat(self._join(name), True)
        self._places.move_to_end(name)
        if reset:
            self.reset(name)
        fresh = name in self._anew
        self._anew.pop(name, None)
        return Seat(self._places[name], fresh)

    def find(self, name: Hashable) -> Seat | None:
        """Return the place that a member has, and whether its next row starts anew; None if it has none."""
        if name not in self._places:
            return None
        return Seat(self._places[name], name in self._anew)

    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row.

        Raises:
            KeyError: it has no place.
        """
        self._check(name)
        if name not in self._anew:
            self._anew[name] = None
            self.counts["resets"] += 1

    def leave(self, name: Hashable) -> int:
        """Take the place of a member away and return it; it is forgotten, and may join again.

        Raises:
            KeyError: it has none.
        """
        self._check(name)
        self._anew.pop(name, None)
        self.counts["leaves"] += 1
        place = self._places.pop(name)
        self._free.append(place)
        return place

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on, if names are JSON."""
        places = [[name, place, name in self._anew] for name, place in self._places.items()]
        return {"places": places, "free": list(self._free), "counts": dict(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned of a roster made in the same way."""
        self._places = OrderedDict((name, place) for name, place, _ in state["places"])
        self._anew = {name: None for name, _, anew in state["places"] if anew}
        self._free, self.counts = list(state["free"]), Counter(state["counts"])

    def _join(self, name: Hashable) -> int:
        if self._free:
            place = self._free.pop()
        elif len(self._places) < self.capacity:
            # Places that were never given away follow those that are taken: none of these is free.
            place = len(self._places)
        elif self.when_full == "stop":
            raise RosterError(
                f"all {self.capacity} places are taken and {str(name)[:80]!r} is one member more; raise --members, or "
                "let --when-full evict give it the place of the member that has been silent longest"
            )
        else:
            silent, place = self._places.popitem(last=False)
            self._anew.pop(silent, None)
            self.counts["evictions"] += 1
        self._places[name] = place
        self.counts["joins"] += 1
        return place

    def _check(self, name: Hashable) -> None:
        if name not in self._places:
            raise KeyError(f"{str(name)[:80]!r} is not among the {len(self)} members that have a place")
