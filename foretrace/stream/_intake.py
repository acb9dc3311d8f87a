"""From rows to learning steps of C rows of K members; a stream is one member."""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from foretrace._experts.growth import grown
from foretrace._experts.mixture import Mixed, Mixture, MixtureState
from foretrace._experts.rows import pack
from foretrace._experts.shape import Shape
from foretrace._learner.packing import Packed
from foretrace._rows.delayed_labels import DelayedLabels, LabelledRow, SavedRow, saved_row
from foretrace._rows.member_labels import MemberLabels, MemberRow
from foretrace._rows.saved import MOST, check_within
from foretrace._rows.slots import SlotTable, WhenFull
from foretrace._rows.target import ClassTarget, Context
from foretrace._rows.values import as_flag, as_text, check_hashable, is_absent
from foretrace._runs.config_json import from_json
from foretrace.stream._config import MOST as LIMITS
from foretrace.stream._model import build_mixture
from foretrace.stream._model_config import ModelConfig

Row = Mapping[Any, Any]
State = MixtureState | Packed


class IntakeStep(NamedTuple):
    """Result of learning from some rows.

    Args:
        state: state after the step.
        mixed: predictions and measures.
        resolved: for each of the rows, the row whose label has come with it; None if there is none.
        inputs: inputs of the rows that came.
        contexts: knowledge of the target when each of them was predicted.
    """

    state: State
    mixed: Mixed
    resolved: Sequence[LabelledRow | None]
    inputs: np.ndarray
    contexts: Sequence[Context]


class SavedIntake(NamedTuple):
    """Saved form of an intake.

    Args:
        labels: inputs and labels of all members.
        newest_slot: slot of the last row.
        num_steps: number of steps.
        for_network: rows whose labels wait for a whole chunk.
    """

    labels: dict[str, Any]
    newest_slot: int
    num_steps: int
    for_network: list[SavedRow]


class Parts:
    """Where the time of a row goes: seconds in each part since the last report.

    >>> parts = Parts()
    >>> parts.end("reading")
    >>> list(parts.microseconds(rows=1)), parts.microseconds(rows=1)
    (['reading'], {})
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, part: str) -> None:
        """Count the time since the last part ended for this one."""
        now = time.perf_counter()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._last
        self._last = now

    def microseconds(self, rows: int) -> dict[str, float]:
        """Return the microseconds a row of each part since the last call, and begin again."""
        found = {
            part: round(1e6 * value / max(rows, 1), 1) for part, value in self._seconds.items()
        }
        self._seconds = {}
        return found


class Intake:
    """Turn rows and their targets into steps of a mixture.

    Args:
        labels: inputs and pending labels of a member before its first row.
        config: options of the model that learns, as `resolve` returns them.
        shape: shape of the stream, as `resolve` returns it.
        member: column that names the member of a row; None if all rows belong to one member, named
            None.
        reset: column that is true where a member starts anew.
        when_full: what happens to one member more than there are slots.
        as_text: whether names are compared by their text, as a checkpoint holds them; a missing
            name is then "".
    """

    def __init__(
        self,
        labels: DelayedLabels,
        config: ModelConfig,
        shape: Shape,
        *,
        member: Hashable | None = None,
        reset: Hashable | None = None,
        when_full: WhenFull = "evict",
        as_text: bool = True,
    ):
        self.labels = MemberLabels(labels, SlotTable(shape.slots, when_full=when_full))
        self.encoder = labels.encoder
        self.target = labels.target
        self.config = config
        self.shape = shape
        self.size = shape.chunk * shape.together
        self.member = member
        self.reset = reset
        self.as_text = as_text
        self.parts = Parts()
        self.newest_slot = self.num_steps = 0
        self.for_network: deque[LabelledRow] = deque()
        self.backend: Callable[[Mixture], Mixture] | None = None
        if isinstance(self.target, ClassTarget):
            self.target.has_room = self._has_room

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs are not pickled; equal models find theirs again.
        return {name: value for name, value in self.__dict__.items() if name != "mixture"}

    # Looking it up by the model takes longer than encoding a number: once is enough.
    @cached_property
    def mixture(self) -> Mixture:
        """What predicts and learns."""
        mixture = build_mixture(self.config, self.shape)
        return mixture if self.backend is None else self.backend(mixture)

    def use(self, backend: Callable[[Mixture], Mixture]) -> None:
        """Let a backend make the mixture, also where room for classes grows."""
        self.backend = backend
        self.__dict__.pop("mixture", None)

    def _shape_for(self, classes: int) -> Shape:
        """Return the shape for a number of classes, with the features and experts of the first."""
        more, shape = classes - self.shape.outputs, self.shape
        inputs = shape.network_inputs
        if inputs is not None and shape.previous:
            inputs += more  # the last known class is an input of the network
        begun_with = None if classes == shape.first_outputs else shape.first_outputs
        return dataclasses.replace(
            shape, outputs=classes, network_inputs=inputs, begun_with=begun_with
        )

    def _has_room(self, classes: int) -> bool:
        """Return whether a model for a number of classes fits into memory."""
        if classes > LIMITS["classes"]:
            return False
        try:
            build_mixture(self.config, self._shape_for(classes))
        except ValueError:
            return False
        return True

    def _fit(self) -> None:
        """Take the shape of the target's number of classes."""
        if self.shape.classes and self.target.output_size != self.shape.outputs:
            self.shape = self._shape_for(self.target.output_size)
            self.__dict__.pop("mixture", None)

    def _grown(self, state: State) -> State:
        """Return a state with room for all classes that have come."""
        before = self.shape
        if not before.classes or self.target.output_size == before.outputs:
            return state
        packing = self.mixture.packing
        arrays = state if isinstance(state, MixtureState) else packing.unpack(state)
        self._fit()
        arrays = grown(self.mixture, arrays)
        return arrays if isinstance(state, MixtureState) else self.mixture.packing.pack(arrays)

    def name(self, row: Row) -> Hashable:
        """Return the name of the member that a row belongs to.

        Raises:
            ValueError, TypeError: as for `member_name`, unless names are compared by their text.
        """
        if self.member is None:
            return None
        if self.as_text:
            value = row.get(self.member)
            return "" if value is None else as_text(str(value).strip())
        return member_name(row, self.member)

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Return whether a row may be learned in one step with rows that came before it."""
        if self.shape.together == 1:
            return True
        name = self.name(row)
        return all(name != self.name(other) for other, _ in rows)

    def learn(self, state: State, rows: Sequence[tuple[Row, Any]]) -> IntakeStep:
        """Learn from at most `size` rows with targets. `state` is donated."""
        # All names and flags first: a bad one raises an error before anything has changed.
        arrivals = [(self.name(row), row, value, self._starts_anew(row)) for row, value in rows]
        found = [
            self.labels.push(name, row, value, reset=reset) for name, row, value, reset in arrivals
        ]
        resolved = [row.resolved for row in found]
        state = self._grown(state)
        packed = self._packed(found, resolved, self._for_network(resolved), size=self.size)
        self.newest_slot = found[-1].slot.number
        self.parts.end("encoding")
        state, mixed = self.mixture.step(state, packed)
        self._learn_outputs(mixed, resolved)
        contexts = [row.context for row in found]
        inputs = self._inputs(found)[:, : self.shape.network_inputs]
        return IntakeStep(state, mixed, resolved, inputs, contexts)

    def predict(self, state: State, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next of its member; nothing changes."""
        found = self.labels.encode(self.name(row), row)
        return np.asarray(
            self.mixture.predict(state, self._packed([found], size=self.shape.together))
        )[0]

    def advance(self, state: State, row: Row, value: Any) -> tuple[np.ndarray, State, Context]:
        """Return the next row's outputs, the state behind it, and the target known before it.

        Nothing is learned; `state` is donated.
        """
        found = self.labels.advance(self.name(row), row, value, reset=self._starts_anew(row))
        state, mixed = self.mixture.advance(state, self._packed([found], size=self.shape.together))
        return np.asarray(mixed.newest)[0], state, found.context

    def waiting(self, state: State) -> Iterator[tuple[Hashable, np.ndarray, Context]]:
        """Yield each member whose last row waits for labels, its outputs and the knowledge then."""
        outputs = self.mixture.newest(state)
        for name in self.labels.table:
            slot = self.labels.table.find(name)
            assert slot is not None
            if contexts := self.labels.streams[slot.number].contexts:
                yield name, outputs[slot.number], contexts[-1]

    def select_member(self, name: Hashable) -> bool:
        """Set the target's last value to a member's; False before its first row since a start."""
        return self.labels.select_member(name)

    def counts(self) -> dict[str, Any]:
        """Return the number of members, and how many joined, lost their slot or restarted."""
        if self.shape.members is None:
            return {}
        table = self.labels.table
        return {
            "members": {"present": len(table), "joins": 0, "evictions": 0, "resets": 0}
            | dict(table.counts)
        }

    def pop_news(self) -> list[str]:
        """Return and forget sentences about values that could not be used for the first time."""
        news = [*self.encoder.news, *self.target.news]
        self.encoder.news, self.target.news = [], []
        return news

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        late = [saved_row(row) for row in self.for_network]
        return SavedIntake(self.labels.to_json(), self.newest_slot, self.num_steps, late)._asdict()

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedIntake, state)
        check_within("newest_slot", [saved.newest_slot], 0, self.shape.slots - 1)
        check_within("num_steps", [saved.num_steps], 0, MOST)
        self.labels.restore(saved.labels)
        self._fit()
        self.for_network = deque(map(self.labels.shared.labelled_row, saved.for_network))
        self.newest_slot, self.num_steps = saved.newest_slot, saved.num_steps

    def _inputs(self, found: Sequence[MemberRow]) -> np.ndarray:
        """Return the inputs of rows; the last known class, at the end, may have more by now."""
        rows = [row.inputs for row in found]
        out = np.zeros((len(rows), max(self.shape.packed_inputs, *map(len, rows))))
        for i, row in enumerate(rows):
            out[i, : len(row)] = row
        return out

    def _packed(
        self, found: Sequence[MemberRow], *labels: Sequence[LabelledRow | None], size: int
    ) -> np.ndarray:
        """Return an array of rows, of labelled rows, and of the rows the network learns."""
        xs, contexts = self._inputs(found), [row.context for row in found]
        slots, is_new = [row.slot.number for row in found], [row.slot.is_new for row in found]
        return pack(self.shape, xs, contexts, *labels, slots=slots, is_new=is_new, size=size)

    def _for_network(self, resolved: Sequence[LabelledRow | None]) -> Sequence[LabelledRow | None]:
        """Return the rows that the network learns: whole chunks once all labels are there."""
        self.num_steps += 1
        if self.shape.chunk == 1 or not self.shape.has_network:
            return resolved
        self.for_network.extend(row for row in resolved if row is not None)
        if self.num_steps <= self.shape.late_steps:
            return []
        return [self.for_network.popleft() for _ in range(min(self.size, len(self.for_network)))]

    def _learn_outputs(self, mixed: Mixed, resolved: Sequence[LabelledRow | None]) -> None:
        """Learn the errors of predictions whose labels arrived, for later intervals."""
        if self.shape.classes or not any(row is not None for row in resolved):
            return
        outputs = np.asarray(mixed.resolved)  # waits for the mixture
        self.parts.end("mixture")
        for row, output in zip(resolved, outputs, strict=False):
            if row is not None:
                self.target.learn_output(output, row.targets, row.context)
        self.parts.end("intervals")

    def _starts_anew(self, row: Row) -> bool:
        if self.reset is None:
            return False
        value = row.get(self.reset)
        if (flag := as_flag(value)) is None:
            raise ValueError(
                f"column {self.reset!r} holds {str(value)[:80]!r}; the column of --reset must be "
                "true or 1 where an episode starts, and false, 0 or empty elsewhere"
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
