"""Rows of many streams as inputs and labels: each member has its feed, all share encoder and target."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.feed import Due, Feed
from foretrace._rows.roster import Roster, Seat


class Came(NamedTuple):
    """What becomes of a row.

    Args:
        seat: place of its member, and whether it starts anew with this row.
        inputs: of the network.
        due: the row of this member whose label has come; None if there is none.
    """

    seat: Seat
    inputs: np.ndarray
    due: Due | None


class MemberFeed:
    """Turn rows of many members into inputs and labels, each as its own stream.

    A member that leaves, starts anew or loses its place is forgotten: labels that are on their way to its rows are
    given up, and counted.

    Args:
        shared: a feed as each member gets it, before its first row; of its encoder and target, all members learn.
        roster: who has a place.
    """

    def __init__(self, shared: Feed, roster: Roster):
        self.shared, self.roster = shared, roster
        self.feeds: list[Feed | None] = [None] * roster.capacity

    def push(self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False) -> Came:
        """Take the next row of a member and its target.

        Raises:
            RosterError: there is no place for it.
        """
        seat, feed = self._enter(name, reset)
        inputs = feed.push(row, value)
        return Came(seat, inputs, next(iter(feed.take(1)), None))

    def pass_by(self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False) -> Came:
        """Take the next row of a member without learning.

        Raises:
            RosterError: there is no place for it.
        """
        seat, feed = self._enter(name, reset)
        return Came(seat, feed.pass_by(row, value), None)

    def look(self, name: Hashable, row: Mapping[Any, Any]) -> Came:
        """Return the inputs of a row of a member if it came next; one that has no place looks like a new one."""
        seat = self.roster.find(name)
        if seat is None:
            # Nobody's place: whoever looks from there changes nothing.
            return Came(Seat(self.roster.capacity, True), self._new().look(row), None)
        return Came(seat, (self._new() if seat.fresh else self._at(seat.place)).look(row), None)

    def turn_to(self, name: Hashable) -> bool:
        """Let the target's last one be that of a member; return whether it has come since it joined or was reset."""
        seat = self.roster.find(name)
        if seat is None or seat.fresh:
            return False
        self.shared.target.last = self._at(seat.place).last
        return True

    def leave(self, name: Hashable) -> None:
        """Forget a member.

        Raises:
            KeyError: there is none of this name.
        """
        self._clear(self.roster.leave(name))

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on, if names are JSON."""
        feeds = [None if feed is None else feed.own_to_json() for feed in self.feeds]
        return {**self.shared.to_json(), "roster": self.roster.to_json(), "members": feeds}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned of feeds made in the same way."""
        self.shared.restore(state)
        self.roster.restore(state["roster"])
        for place, own in enumerate(state["members"]):
            self.feeds[place] = None
            if own is not None:
                feed = self.feeds[place] = self._new()
                feed.restore_own(own)

    def _enter(self, name: Hashable, reset: bool) -> tuple[Seat, Feed]:
        seat = self.roster.seat(name, reset=reset)
        if seat.fresh:
            self._clear(seat.place)
            self.feeds[seat.place] = self._new()
        return seat, self._at(seat.place)

    def _clear(self, place: int) -> None:
        feed, self.feeds[place] = self.feeds[place], None
        if feed is not None and feed.unanswered:
            self.roster.counts["labels given up"] += feed.unanswered

    def _at(self, place: int) -> Feed:
        feed = self.feeds[place]
        assert feed is not None
        return feed

    def _new(self) -> Feed:
        like = self.shared
        return Feed(like.encoder, like.target, delay=like.delay, horizon=like.horizon, previous=like.previous)
