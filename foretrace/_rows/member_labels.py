"""Rows of many streams as inputs and labels: each member has its own pending labels, all share encoder and target."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.delayed_labels import DelayedLabels, LabelledRow
from foretrace._rows.slots import Slot, SlotTable


class MemberRow(NamedTuple):
    """A row of a member as the network needs it.

    Args:
        slot: slot of its member, and whether the member starts anew with this row.
        inputs: inputs of the network.
        resolved: row of this member whose label came with this one; None if there is none.
    """

    slot: Slot
    inputs: np.ndarray
    resolved: LabelledRow | None


class MemberLabels:
    """Turn rows of many members into inputs and labels, each member as a stream of its own.

    A member that leaves, starts anew or loses its slot is forgotten: its pending labels are dropped and counted.

    Args:
        shared: labels of a stream before its first row, copied for each member. Its encoder and target learn from all.
        table: which member has which slot.
    """

    def __init__(self, shared: DelayedLabels, table: SlotTable):
        self.shared = shared
        self.table = table
        self.streams: list[DelayedLabels | None] = [None] * table.num_slots

    def push(self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False) -> MemberRow:
        """Take the next row of a member and its target.

        Raises:
            NoFreeSlotError: all slots are taken, and no member may lose its own.
        """
        slot, stream = self._enter(name, reset)
        inputs = stream.push(row, value)
        return MemberRow(slot, inputs, next(iter(stream.pop_resolved(1)), None))

    def advance(self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False) -> MemberRow:
        """Take the next row of a member without learning.

        Raises:
            NoFreeSlotError: all slots are taken, and no member may lose its own.
        """
        slot, stream = self._enter(name, reset)
        return MemberRow(slot, stream.advance(row, value), None)

    def encode(self, name: Hashable, row: Mapping[Any, Any]) -> MemberRow:
        """Return the inputs of a row if it came next of a member; nothing changes."""
        slot = self.table.find(name)
        if slot is None:
            # A member without a slot is a new one: use the spare slot, which is never written.
            return MemberRow(Slot(self.table.num_slots, True), self._new().encode(row), None)
        return MemberRow(slot, (self._new() if slot.is_new else self._at(slot.number)).encode(row), None)

    def select_member(self, name: Hashable) -> bool:
        """Set the shared target's last value to that of a member; return False if it has had no row since its start."""
        slot = self.table.find(name)
        if slot is None or slot.is_new:
            return False
        self.shared.target.last = self._at(slot.number).last
        return True

    def leave(self, name: Hashable) -> None:
        """Forget a member.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._clear(self.table.leave(name))

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on; names must be JSON."""
        streams = [None if stream is None else stream.own_to_json() for stream in self.streams]
        return {**self.shared.to_json(), "slots": self.table.to_json(), "streams": streams}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments."""
        self.shared.restore(state)
        self.table.restore(state["slots"])
        for index, own in enumerate(state["streams"]):
            self.streams[index] = None
            if own is not None:
                stream = self.streams[index] = self._new()
                stream.restore_own(own)

    def _enter(self, name: Hashable, reset: bool) -> tuple[Slot, DelayedLabels]:
        slot = self.table.assign(name, reset=reset)
        if slot.is_new:
            self._clear(slot.number)
            self.streams[slot.number] = self._new()
        return slot, self._at(slot.number)

    def _clear(self, index: int) -> None:
        stream, self.streams[index] = self.streams[index], None
        if stream is not None and stream.num_pending:
            self.table.counts["labels dropped"] += stream.num_pending

    def _at(self, index: int) -> DelayedLabels:
        stream = self.streams[index]
        assert stream is not None
        return stream

    def _new(self) -> DelayedLabels:
        like = self.shared
        return DelayedLabels(like.encoder, like.target, delay=like.delay, horizon=like.horizon, previous=like.previous)
