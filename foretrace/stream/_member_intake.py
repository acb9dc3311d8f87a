"""From rows to learning steps: the rows of many members side by side."""

import dataclasses
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._experts.shape import Shape
from foretrace._recurrence.chunk import Carry
from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.member_labels import MemberLabels
from foretrace._rows.saved import check_within
from foretrace._rows.slots import Slot, SlotTable, WhenFull
from foretrace._rows.target import Context
from foretrace._rows.values import as_flag, as_text, check_hashable, is_absent
from foretrace._runs.config_json import from_json
from foretrace.stream._ensemble import EnsembleState
from foretrace.stream._intake import AbstractIntake, IntakeStep, Row, State
from foretrace.stream._learner import StreamState
from foretrace.stream._member_learner import MemberLearner, member_learner
from foretrace.stream._model_config import ModelConfig


class SavedMembers(NamedTuple):
    """What is saved of the intake of members."""

    labels: dict[str, Any]
    newest_slot: int


class Members(AbstractIntake):
    """The rows of many members, some of distinct members in each step.

    Args:
        labels: inputs and pending labels of a member before its first row.
        config: options of the model that learns, as `resolve` returns them.
        shape: shape of the stream, as `resolve` returns it; it has members.
        member: column that names the member of a row; None if all rows belong to one member, named "".
        reset: column that is true where a member starts anew.
        when_full: what happens to one member more than there are slots.
        as_text: whether names are compared by their text, as a checkpoint holds them; a missing name is then "".
    """

    def __init__(
        self,
        labels: DelayedLabels,
        config: ModelConfig,
        shape: Shape,
        *,
        member: Hashable | None,
        reset: Hashable | None = None,
        when_full: WhenFull = "evict",
        as_text: bool = True,
    ):
        super().__init__(labels, config, shape, shape.together)
        assert shape.members is not None
        self.labels = MemberLabels(labels, SlotTable(shape.members, when_full=when_full))
        self.member = member
        self.reset = reset
        self.as_text = as_text
        self.newest_slot = 0

    @cached_property
    def network(self) -> MemberLearner:
        """The learner of the network."""
        return member_learner(self.config, self.shape)

    def name(self, row: Row) -> Hashable:
        """Return the name of the member that a row belongs to.

        Raises:
            ValueError, TypeError: as for `member_name`, unless names are compared by their text.
        """
        if self.member is None:
            return ""
        if self.as_text:
            value = row.get(self.member)
            return "" if value is None else as_text(str(value).strip())
        return member_name(row, self.member)

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Return whether a row belongs to another member than the rows before it."""
        name = self.name(row)
        return all(name != self.name(other) for other, _ in rows)

    def learn(self, state: State, rows: Sequence[tuple[Row, Any]]) -> IntakeStep:
        """Learn from rows of distinct members with their targets; there may be fewer than a step has room for."""
        # All names and flags first: a bad one raises an error before anything has changed.
        arrivals = [(self.name(row), row, value, self._starts_anew(row)) for row, value in rows]
        xs = np.zeros((self.size, self.width))
        slots = np.full(self.size, self.shape.members, np.int32)
        is_new = np.zeros(self.size, bool)
        resolved, contexts = [], []
        for i, (name, row, value, reset) in enumerate(arrivals):
            slot, xs[i], labelled, context = self.labels.push(name, row, value, reset=reset)
            contexts.append(context)
            slots[i] = slot.number
            is_new[i] = slot.is_new
            resolved.append(labelled)
        self.newest_slot = int(slots[len(rows) - 1])
        self.parts.end("encoding")
        step, network = None, self.network_state(state)
        if network is not None:
            network, step = self.network.step(network, slots, is_new, xs, *self._label_arrays(resolved))
        whose = {"slots": slots.tolist(), "is_new": is_new.tolist()}
        state, step = self._mixed(state, network, step, xs, contexts, resolved, **whose)
        self._learn_outputs(step, resolved)
        return IntakeStep(state, step, resolved, xs[: len(rows)])

    def predict(self, state: State, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next of its member; nothing changes."""
        slot, x, _, context = self.labels.encode(self.name(row), row)
        output, network = None, self.network_state(state)
        if network is not None:
            output = np.asarray(self._single_row_learner().predict(network, *_slot_arrays(slot), x[None]))[0]
        if isinstance(state, EnsembleState):
            assert self.ensemble is not None
            own = self._own_inputs(x)
            return self.ensemble.predict(state, own, context, output=output, slot=slot.number, is_new=slot.is_new)
        assert output is not None
        return output

    def advance(self, state: State, row: Row, value: Any) -> tuple[np.ndarray, State, Context]:
        """Return the outputs for the next row, the state behind it, and what was known of the target before it."""
        slot, x, _, context = self.labels.advance(self.name(row), row, value, reset=self._starts_anew(row))
        output, network = None, self.network_state(state)
        if network is not None:
            network, outputs = self._single_row_learner().advance(network, *_slot_arrays(slot), x[None])
            output = np.asarray(outputs)[0]
        if isinstance(state, EnsembleState):
            assert self.ensemble is not None
            state, own = state._replace(network=network), self._own_inputs(x)
            state, output = self.ensemble.advance(
                state, own, context, output=output, slot=slot.number, is_new=slot.is_new
            )
            return output, state, context
        assert output is not None and network is not None
        return output, network, context

    def select_member(self, name: Hashable) -> bool:
        """Set the target's last value to that of a member; return False if it has had no row since its start."""
        return self.labels.select_member(name)

    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the member whose row came last."""
        assert state.learner.carry is not None
        return jax.tree.map(lambda leaf: leaf[self.newest_slot], state.learner.carry)

    def counts(self) -> dict[str, Any]:
        """Return how many members there are, and how many joined, lost their slot and started anew."""
        table = self.labels.table
        return {"members": {"present": len(table), "joins": 0, "evictions": 0, "resets": 0} | dict(table.counts)}

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        return {"labels": self.labels.to_json(), "newest_slot": self.newest_slot}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments."""
        saved = from_json(SavedMembers, state)
        check_within("newest_slot", [saved.newest_slot], 0, self.labels.table.num_slots - 1)
        self.labels.restore(saved.labels)
        self.newest_slot = saved.newest_slot

    def _single_row_learner(self) -> MemberLearner:
        """Return the learner of single rows; it has the same state."""
        return member_learner(self.config, dataclasses.replace(self.shape, together=1))

    def _starts_anew(self, row: Row) -> bool:
        if self.reset is None:
            return False
        value = row.get(self.reset)
        if (flag := as_flag(value)) is None:
            raise ValueError(
                f"column {self.reset!r} holds {str(value)[:80]!r}; the column of --reset must be true or 1 where an "
                "episode starts, and false, 0 or empty elsewhere"
            )
        return flag


def member_name(row: Row, member: Hashable) -> Hashable:
    """Return the name of the member that a row belongs to, as it is.

    Args:
        row: features of the row.
        member: feature that names the member.

    Raises:
        ValueError: the row names no member.
        TypeError: the name cannot be hashed.
    """
    value = row.get(member)
    if not isinstance(value, str) and is_absent(value):
        raise ValueError(
            f"the row has no {member!r}, which says whose row it is: its features are "
            f"{', '.join(sorted(map(str, row)))[:200]}; give it, or make the model without `member`"
        )
    check_hashable(value, repr(member))
    return value


def _slot_arrays(slot: Slot) -> tuple[np.ndarray, np.ndarray]:
    """Return a slot as the arrays of a step of one row."""
    return np.array([slot.number], np.int32), np.array([slot.is_new])
