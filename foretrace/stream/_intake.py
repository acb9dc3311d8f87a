"""From rows to learning steps: the rows of one stream in chunks, or those of many members side by side."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from foretrace._recurrence.chunk import Carry
from foretrace._rows.encode import Encoder
from foretrace._rows.feed import Due, Feed
from foretrace._rows.member_feed import MemberFeed
from foretrace._rows.roster import Roster, WhenFull
from foretrace._rows.schema import as_flag
from foretrace._rows.target import Target
from foretrace.stream._learner import Outcome, StreamLearner, StreamState, empty_labels, stream_learner
from foretrace.stream._member_learner import MemberLearner, member_learner
from foretrace.stream._model import Model

Row = Mapping[Any, Any]


class Learned(NamedTuple):
    """What a step gives back.

    Args:
        state: after it.
        outcome: outputs and measures.
        dues: for each of the outputs, the row whose label has come.
        inputs: of the rows that came.
    """

    state: StreamState
    outcome: Outcome
    dues: Sequence[Due | None]
    inputs: np.ndarray


class Intake(Protocol):
    """What `OneStream` and `Members` have in common; `size` is the number of rows of a full step of the model."""

    size: int
    model: Model

    @property
    def learner(self) -> StreamLearner | MemberLearner:
        """What learns."""

    @property
    def encoder(self) -> Encoder:
        """What turns rows into inputs."""

    @property
    def target(self) -> Target:
        """What is predicted."""

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Say whether a row may be learned in one step with others that came before it, each with whatever else."""

    def learn(self, state: StreamState, rows: Sequence[tuple[Row, Any]]) -> Learned:
        """Learn from rows with their targets; `state` is used up."""

    def look(self, state: StreamState, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next; nothing changes."""

    def answer(self, state: StreamState, row: Row, value: Any) -> tuple[np.ndarray, StreamState]:
        """Return the outputs for the next row and the state behind it, without learning; `state` is used up."""

    def turn_to(self, name: Hashable) -> bool:
        """Let the target's last one be that of a member; return whether it has come since it joined or was reset."""

    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the stream whose row came last."""

    def counted(self) -> dict[str, Any]:
        """Return what is counted, to be looked at."""

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned."""


class OneStream:
    """The rows of one stream, so many in each step.

    Args:
        feed: inputs and labels.
        model: what learns.
    """

    def __init__(self, feed: Feed, model: Model):
        self.feed, self.model, self.size, self.chunks = feed, model, model.chunk, 0

    @property
    def learner(self) -> StreamLearner:
        """What learns."""
        return stream_learner(self.model)

    @property
    def encoder(self) -> Encoder:
        """What turns rows into inputs."""
        return self.feed.encoder

    @property
    def target(self) -> Target:
        """What is predicted."""
        return self.feed.target

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Return True: all rows are of the one stream."""
        return True

    def learn(self, state: StreamState, rows: Sequence[tuple[Row, Any]]) -> Learned:
        """Learn from a chunk of rows with their targets; the last one may be shorter."""
        learner, xs = self.learner, np.zeros((self.size, self.feed.width))
        for i, (row, value) in enumerate(rows):
            xs[i] = self.feed.push(row, value)
        self.chunks += 1
        dues = self.feed.take(self.size) if self.chunks > learner.waits else []
        state, outcome = learner.step(state, xs, *_labels(self.model, dues))
        return Learned(state, outcome, dues, xs[: len(rows)])

    def look(self, state: StreamState, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next."""
        return np.asarray(self.learner.predict(state, self.feed.look(row)[None]))[0]

    def answer(self, state: StreamState, row: Row, value: Any) -> tuple[np.ndarray, StreamState]:
        """Return the outputs for the next row and the state behind it."""
        outputs, state = self.learner.run(state, self.feed.pass_by(row, value)[None])
        return np.asarray(outputs)[0], state

    def turn_to(self, name: Hashable) -> bool:
        """Return True: there is one stream, and its last one is there."""
        return True

    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the stream."""
        assert state.learner.carry is not None
        return state.learner.carry

    def counted(self) -> dict[str, Any]:
        """Return nothing: there is nothing more to count."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        return {"feed": self.feed.to_json(), "chunks": self.chunks}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned."""
        self.feed.restore(state["feed"])
        self.chunks = state["chunks"]


class Members:
    """The rows of many members, some of distinct ones in each step.

    Args:
        feed: inputs and labels as a member gets them before its first row.
        model: what learns, with members.
        member: column that says whose row it is; None if all rows are of the one member "".
        reset: column that is true where a member starts anew.
        when_full: what becomes of a member that finds no place.
        as_text: take names by their text, as a checkpoint holds them; one that is missing is a name, too.
    """

    def __init__(
        self,
        feed: Feed,
        model: Model,
        *,
        member: Hashable | None,
        reset: Hashable | None = None,
        when_full: WhenFull = "evict",
        as_text: bool = True,
    ):
        assert model.members is not None
        self.feeds, self.model = MemberFeed(feed, Roster(model.members, when_full=when_full)), model
        self.size, self.member, self.reset, self.as_text = model.together, member, reset, as_text
        self.newest = 0

    @property
    def learner(self) -> MemberLearner:
        """What learns."""
        return member_learner(self.model)

    @property
    def encoder(self) -> Encoder:
        """What turns rows into inputs."""
        return self.feeds.shared.encoder

    @property
    def target(self) -> Target:
        """What is predicted."""
        return self.feeds.shared.target

    def name(self, row: Row) -> Hashable:
        """Return whose row it is.

        Raises:
            ValueError: names are not taken by their text, and there is none.
        """
        if self.member is None:
            return ""
        value = row.get(self.member)
        if self.as_text:
            return "" if value is None else str(value).strip()
        if value is None or value != value:
            raise ValueError(
                f"the row has no {self.member!r}, which says whose row it is: its features are "
                f"{', '.join(sorted(map(str, row)))[:200]}; give it, or make the model without `member`"
            )
        return value

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Say whether a row is of another member than those before it."""
        name = self.name(row)
        return all(name != self.name(other) for other, _ in rows)

    def learn(self, state: StreamState, rows: Sequence[tuple[Row, Any]]) -> Learned:
        """Learn from rows of distinct members with their targets; there may be fewer than a step has room for."""
        arrivals = [(self.name(row), row, value, self._starts(row)) for row, value in rows]
        learner, size = self.learner, self.size
        xs, fresh = np.zeros((size, self.feeds.shared.width)), np.zeros(size, bool)
        slots, dues = np.full(size, learner.members, np.int32), []
        for i, (name, row, value, reset) in enumerate(arrivals):
            seat, xs[i], due = self.feeds.push(name, row, value, reset=reset)
            slots[i], fresh[i] = seat
            dues.append(due)
        state, outcome = learner.step(state, slots, fresh, xs, *_labels(self.model, dues))
        self.newest = int(slots[len(rows) - 1])
        return Learned(state, outcome, dues, xs[: len(rows)])

    def look(self, state: StreamState, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next of its member."""
        seat, x, _ = self.feeds.look(self.name(row), row)
        place, fresh = np.array([seat.place], np.int32), np.array([seat.fresh])
        return np.asarray(self._alone().predict(state, place, fresh, x[None]))[0]

    def answer(self, state: StreamState, row: Row, value: Any) -> tuple[np.ndarray, StreamState]:
        """Return the outputs for the next row and the state behind it."""
        seat, x, _ = self.feeds.pass_by(self.name(row), row, value, reset=self._starts(row))
        place, fresh = np.array([seat.place], np.int32), np.array([seat.fresh])
        outputs, state = self._alone().run(state, place, fresh, x[None])
        return np.asarray(outputs)[0], state

    def turn_to(self, name: Hashable) -> bool:
        """Let the target's last one be that of a member; return whether it has come since it joined or was reset."""
        return self.feeds.turn_to(name)

    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the member whose row came last."""
        assert state.learner.carry is not None
        return jax.tree.map(lambda leaf: leaf[self.newest], state.learner.carry)

    def counted(self) -> dict[str, Any]:
        """Return how many members there are, and how many joined, lost their place and started anew."""
        roster = self.feeds.roster
        return {"members": {"present": len(roster), "joins": 0, "evictions": 0, "resets": 0} | dict(roster.counts)}

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        return {"feed": self.feeds.to_json(), "newest": self.newest}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned."""
        self.feeds.restore(state["feed"])
        self.newest = state["newest"]

    def _alone(self) -> MemberLearner:
        """Return the learner of single rows; it has the same state."""
        return member_learner(dataclasses.replace(self.model, together=1))

    def _starts(self, row: Row) -> bool:
        if self.reset is None:
            return False
        value = row.get(self.reset)
        if (flag := as_flag(value)) is None:
            raise ValueError(
                f"column {self.reset!r} holds {str(value)[:80]!r}; the column of --reset must be true or 1 where an "
                "episode starts, and false, 0 or empty elsewhere"
            )
        return flag


def _labels(model: Model, dues: Sequence[Due | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that have come, and where there is one."""
    labels = empty_labels(model)
    mask = np.zeros(len(labels), bool)
    for i, due in enumerate(dues):
        if due is not None and due.label is not None:
            labels[i], mask[i] = due.label, True
    return labels, mask
