"""Rows of many streams: each member has pending labels, all share encoder and target."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.delayed_labels import DelayedLabels, LabelledRow, SavedLabels
from foretrace._rows.slots import SavedSlots, Slot, SlotTable
from foretrace._rows.target import Context
from foretrace._runs.config_json import from_json


class MemberRow(NamedTuple):
    """A row of a member as what learns needs it.

    Args:
        slot: slot of its member, and whether the member starts anew with this row.
        inputs: inputs, the last known label's included.
        resolved: row of this member whose label came with this one; None if there is none.
        context: knowledge of the target when the row was predicted.
    """

    slot: Slot
    inputs: np.ndarray
    resolved: LabelledRow | None
    context: Context


class SavedMembers(NamedTuple):
    """Saved form of the labels of members; encoder and target read their own."""

    encoder: dict[str, Any]
    target: Any
    slots: SavedSlots
    streams: list[tuple[int, SavedLabels]]


class MemberLabels:
    """Turn rows of many members into inputs and labels, each member as a stream of its own.

    A member that leaves, starts anew or loses its slot is forgotten: its pending labels are dropped
    and counted.

    Args:
        shared: labels of a stream before its first row, copied for each member. Its encoder and
            target learn from all.
        table: which member has which slot.
    """

    def __init__(self, shared: DelayedLabels, table: SlotTable):
        self.shared = shared
        self.table = table
        self.streams: dict[int, DelayedLabels] = {}  # by slot; there may be very many slots

    def push(
        self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False
    ) -> MemberRow:
        """Take the next row of a member and its target.

        Raises:
            NoFreeSlotError: all slots are taken, and no member may lose its own.
            ValueError, TypeError: the target is refused; nothing has changed.
        """
        self.shared.target.check(value)
        slot, stream = self._enter(name, reset)
        inputs = stream.push(row, value)
        return MemberRow(slot, inputs, next(iter(stream.pop_resolved(1)), None), stream.newest)

    def advance(
        self, name: Hashable, row: Mapping[Any, Any], value: Any, *, reset: bool = False
    ) -> MemberRow:
        """Take the next row of a member without learning.

        Raises:
            NoFreeSlotError: all slots are taken, and no member may lose its own.
        """
        slot, stream = self._enter(name, reset)
        return MemberRow(slot, stream.advance(row, value), None, stream.newest)

    def encode(self, name: Hashable, row: Mapping[Any, Any]) -> MemberRow:
        """Return the inputs of a row if it came next of a member; nothing changes."""
        slot = self.table.find(name)
        if slot is None:
            # A member without a slot is a new one: use the spare slot, which is never written.
            slot = Slot(self.table.num_slots, True)
        inputs = (self._new() if slot.is_new else self._at(slot.number)).encode(row)
        return MemberRow(slot, inputs, None, self.shared.target.context())

    def select_member(self, name: Hashable) -> bool:
        """Set the shared target's last value to a member's; False before its first row."""
        slot = self.table.find(name)
        if slot is None or slot.is_new:
            return False
        self.shared.target.last = self._at(slot.number).last
        return True

    def pending_labels(self, name: Hashable) -> deque[Any]:
        """Return a member's labels that are not due; a changed one is learned when it is due."""
        slot = self.table.find(name)
        return deque() if slot is None else self._at(slot.number).pending_labels

    def leave(self, name: Hashable) -> None:
        """Forget a member.

        Raises:
            KeyError: no member of this name has a slot.
        """
        self._clear(self.table.leave(name))

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on; names must be JSON."""
        streams = [(slot, stream.own_to_json()) for slot, stream in sorted(self.streams.items())]
        shared = self.shared
        return SavedMembers(
            shared.encoder.to_json(), shared.target.to_json(), self.table.to_json(), streams
        )._asdict()

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedMembers, state)
        self.table.restore(saved.slots)
        self.shared.encoder.restore(saved.encoder)
        self.shared.target.restore(saved.target)
        self.streams = {}
        for slot, own in saved.streams:
            self.streams[slot] = self._new()
            self.streams[slot].restore_own(own)
        if self.streams.keys() != self.table.taken or len(saved.streams) != len(self.streams):
            raise ValueError(
                f"labels of the slots {sorted(self.streams)}, but members have "
                f"{sorted(self.table.taken)}"
            )

    def _enter(self, name: Hashable, reset: bool) -> tuple[Slot, DelayedLabels]:
        slot = self.table.assign(name, reset=reset)
        if slot.is_new:
            self._clear(slot.number)
            self.streams[slot.number] = self._new()
        return slot, self._at(slot.number)

    def _clear(self, index: int) -> None:
        stream = self.streams.pop(index, None)
        if stream is not None and stream.num_pending:
            self.table.counts["labels dropped"] += stream.num_pending

    def _at(self, index: int) -> DelayedLabels:
        return self.streams[index]

    def _new(self) -> DelayedLabels:
        like = self.shared
        return DelayedLabels(
            like.encoder,
            like.target,
            delay=like.delay,
            horizon=like.horizon,
            previous=like.previous,
            gaps=like.gaps,
        )
