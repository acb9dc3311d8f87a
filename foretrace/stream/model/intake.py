"""Conversion of streams of rows into learning steps of C rows each."""

import dataclasses
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from foretrace._learner.packing import Packed
from foretrace.stream.experts.by_name import Own
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.growth import grown
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.model import build_mixture
from foretrace.stream.model.model_config import MOST as LIMITS
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.model.rows import pack, unpack
from foretrace.stream.model.state import Mixed, MixtureState, Scored, joined
from foretrace.stream.read.encode import EncodingError
from foretrace.stream.read.learned import Learned
from foretrace.stream.read.row import RawRow
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.read.values import (
    as_flag,
    as_text,
    check_hashable,
    is_absent,
    member_text,
)
from foretrace.stream.read.waiting import WaitingRoom

LABELS = 100
"""Number of labels of a member above which the fraction in its intervals is reported."""

CHANGED = 10.0
"""Threshold above which a column has changed.

It applies to the move of the mean in deviations, and to the factor between the deviations.
"""

Row = Mapping[Any, Any]
State = MixtureState | Packed


class Parts:
    """Time that each part of the processing of rows has taken since the last report.

    >>> parts = Parts()
    >>> parts.end("reading")
    >>> list(parts.microseconds(rows=1)), parts.microseconds(rows=1)
    (['reading'], {})
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, part: str) -> None:
        """Count the time since the end of the previous part as time of this part."""
        now = time.perf_counter()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._last
        self._last = now

    def microseconds(self, rows: int) -> dict[str, float]:
        """Return the microseconds per row of each part since the last call, and reset them."""
        each = 1e6 / max(rows, 1)
        found = {part: round(each * value, 1) for part, value in self._seconds.items()}
        self._seconds = {}
        return found


@dataclasses.dataclass(init=False, eq=False)
class Intake(Learned):
    """Conversion of rows and their targets into steps of a mixture.

    Args:
        streams: converter from rows to numbers, before the first row.
        config: options of the model that learns, as `resolve` returns them.
        shape: sizes of the stream, as `resolve` returns them.
        member: column that names the member of a row. Default: all rows belong to one member, which
            is named None.
        reset: column that is true if a member starts anew.
        stops: whether an outlier raises an error.
        chunk: number of rows in a step.
        as_text: whether names are compared by their text, as a checkpoint stores them. A missing
            name is then "".
        own: the user's experts.

    Attributes:
        units: mean and deviation of each numeric column after its last change.
        changes: last change of each column: the row at which it was noticed, and the units before
            and after it.
    """

    streams: Streams
    room: WaitingRoom
    units: dict[str, tuple[float, float]]
    changes: dict[str, tuple[int, float, float, float, float]]

    def __init__(
        self,
        streams: Streams,
        config: ModelConfig,
        shape: Shape,
        *,
        member: Hashable | None = None,
        reset: Hashable | None = None,
        stops: bool = False,
        chunk: int = 1,
        as_text: bool = True,
        own: Own = (),
    ):
        self.streams = streams
        self.room = WaitingRoom(shape.waiting)
        self.encoder = streams.encoder
        self.target = streams.target
        self.config = config
        self.shape = shape
        self.member = member
        self.reset = reset
        self.stops = stops
        self.chunk = chunk
        self.as_text = as_text
        self.own = own
        self.parts = Parts()
        self.news: list[str] = []
        self.heard: list[tuple[int, str]] = []
        self.num_labels, self.next_look = 0, float(LABELS)
        self.units, self.changes = {}, {}
        if isinstance(self.target, ClassTarget):
            self.target.has_room = self._has_room

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs are not pickled; equal models find their programs again.
        return {name: value for name, value in self.__dict__.items() if name != "mixture"}

    # The mixture is looked up once, because a lookup by the model takes longer than encoding a
    # number.
    @cached_property
    def mixture(self) -> Mixture:
        """The mixture that predicts and learns."""
        return build_mixture(self.config, self.shape, self.own)

    def _shape_for(self, classes: int) -> Shape:
        """Return the sizes for a number of classes; features and experts keep their first sizes."""
        begun_with = None if classes == self.shape.first_outputs else self.shape.first_outputs
        return dataclasses.replace(self.shape, outputs=classes, begun_with=begun_with)

    def _has_room(self, classes: int) -> bool:
        """Return whether a model for a number of classes fits into memory."""
        if classes > LIMITS["classes"]:
            return False
        try:
            build_mixture(self.config, self._shape_for(classes), self.own)
        except ValueError:
            return False
        return True

    def _fit(self) -> None:
        """Set the sizes for the target's number of classes."""
        if self._has_outgrown:
            self.shape = self._shape_for(self.target.output_size)
            self.__dict__.pop("mixture", None)

    @property
    def _has_outgrown(self) -> bool:
        """Whether the target has more room for classes than the mixture."""
        return self.shape.classes and self.target.output_size != self.shape.outputs

    def _grown(self, state: State) -> State:
        """Return a state that is large enough for all classes seen so far."""
        if not self._has_outgrown:
            return state
        packing = self.mixture.packing
        arrays = state if isinstance(state, MixtureState) else packing.unpack(state)
        self._fit()
        arrays = grown(self.mixture, arrays)
        return arrays if isinstance(state, MixtureState) else self.mixture.packing.pack(arrays)

    def name(self, row: Row) -> Hashable:
        """Return the name of the member to which a row belongs.

        Raises:
            ValueError, TypeError: as in `member_name`, unless names are compared by their text.
        """
        if self.member is None:
            return None
        if self.as_text:
            return member_text(row.get(self.member))
        return member_name(row, self.member)

    def member_of(self, row: Row, column: str | None) -> Hashable:
        """Return the member of a row, or of the waiting row whose label it brings by its id.

        Args:
            row: values of the columns.
            column: column of the ids of rows.
        """
        id = member_text(row.get(column))
        return self.room.rows[id].member if id in self.room else self.name(row)

    def learn(self, state: State, rows: Sequence[tuple[Row, Any]]) -> tuple[State, Mixed]:
        """Learn from at most a chunk of rows with targets. The buffers of `state` are donated.

        Raises:
            EncodingError: a number is an outlier, and `stops` is true.
        """
        # All names and flags are read first, so that an error is raised before anything has
        # changed.
        arrivals = [((self.name(row), row, value), self._starts_anew(row)) for row, value in rows]
        found: list[RawRow] = []
        done: list[Mixed] = []
        for i, (given, reset) in enumerate(arrivals):
            pushed = self.streams.push(*given, reset=reset)
            self._hear(i)
            if self._has_outgrown and found:
                # No row has room for a class that comes later.
                state, mixed = self._step(state, found)
                done.append(mixed.rows(len(found)))
                found = []
            state = self._grown(state)
            found.append(pushed)
        state, mixed = self._step(state, found)
        self._hear(len(rows) - 1)
        return state, joined([*done, mixed])

    def _step(self, state: State, found: list[RawRow]) -> tuple[State, Mixed]:
        packed = pack(self.shape, found, self.chunk)
        if self.stops:
            self._check_outliers(state, packed)
        self.parts.end("encoding")
        self._look_for_sentinels(state, len(found))
        return self.mixture.step(state, packed)

    def take(self, state: State, row: Row, id: Hashable, **about: Any) -> tuple[State, Mixed]:
        """Take the next row of its member, and return the prediction. The label arrives by the id.

        Args:
            state: present state, whose buffers are donated.
            row: the row.
            id: id of the row. No waiting row has the same id.
            **about: other fields of `WaitingRow`.
        """
        name, reset = self.name(row), self._starts_anew(row)
        found = self.streams.take(name, row, reset=reset)
        self.free_places()
        place = self.room.take(id, name, **about)
        state, mixed = self.mixture.take(state, pack(self.shape, [found])[0], place)
        return state, jax.tree.map(np.asarray, mixed)

    def label(self, state: State, id: Hashable, value: Any) -> tuple[State, Scored | None]:
        """Learn the label of a row by its id; return the scores, or None if the label is known.

        Raises:
            KeyError: no row with this id waits.
            ValueError: a different label has already arrived. The state is not changed.
        """
        self.free_places()
        place = self.room.pop(id, self.target.plain(value))
        if place is None:
            return state, None
        y, watched = self.target.read(value), self.target.watched
        state = self._grown(state)
        self._look_for_sentinels(state, 1)
        state, found = self.mixture.label(state, place, y, watched)
        return state, Scored(**found)

    def event(
        self, state: State, row: Row, value: Any, id: Hashable, time: float | None = None
    ) -> tuple[State, Mixed | Scored]:
        """Take a row, a row with its label, or only a label; return the results.

        A label without its row has an id and no inputs. A label that is refused is counted, and has
        no results.

        Args:
            state: present state, whose buffers are donated.
            row: values of the columns.
            value: target, which is missing if the label arrives later.
            id: id of the row. It is missing if the label of the row cannot arrive later.
            time: time of the row in seconds, if the row has a time.
        """
        self.free_places()
        is_known = not self.target.lacks(value)
        if is_absent(id) or (is_known and id not in self.room and self.encoder.has_values(row)):
            state, mixed = self.learn(state, [(row, value)])
            if is_known and not is_absent(id):
                self.room.remember(id, self.target.plain(value))
            return state, mixed
        if not is_known and id in self.room:
            return state, self.answer(state, id).alone
        if not is_known:
            state, mixed = self.take(state, row, id, time=time)
            return state, mixed.alone
        try:
            self.room.find(id, self.target.plain(value))
        except (KeyError, ValueError) as error:  # only of the waiting room; others end the run
            self.room.refuse(error)
            return state, Scored()
        state, scored = self.label(state, id, value)
        return state, scored or Scored()

    def drop(self, state: State, id: Hashable) -> State:
        """Remove a row whose label will never arrive, which counts as a missing label."""
        place = self.room.rows[id].place
        self.room.drop(id)
        return self.mixture.label(state, place, np.nan, self.target.watched)[0]

    def warm(self, state: State) -> None:
        """Compile the programs for single events and for the record, before a client waits.

        Args:
            state: a copy of the present state, whose buffers are donated.
        """
        row = pack(self.shape, [self.streams.peek(None, {})])
        if self.room.size:
            state, _ = self.mixture.take(state, row[0], 0)
            state, _ = self.mixture.label(state, 0, np.nan, self.target.watched)
            self.mixture.answer(state, 0)
        else:
            state, _ = self.mixture.step(state, row)
        self.mixture.report(state)
        self.mixture.ended(state, block=False)

    def answer(self, state: State, id: Hashable) -> Mixed:
        """Return the prediction of a waiting row by its id."""
        return self.mixture.answer(state, self.room.rows[id].place)

    def free_places(self) -> None:
        """Forget the waiting rows of members that left: other members may use their slots."""
        for name in self.streams.table.left:
            self.room.forget(name)
        self.streams.table.left.clear()

    def predict(self, state: State, row: Row) -> Mixed:
        """Return the prediction for a row as if it were the next row of its member."""
        found = self.streams.peek(self.name(row), row, reset=self._starts_anew(row))
        return self.mixture.predict(state, pack(self.shape, [found])[0])

    def advance(self, state: State, row: Row, value: Any) -> tuple[State, Mixed]:
        """Return the state after the next row, and the row's prediction.

        Nothing is learned. The buffers of `state` are donated.
        """
        reset = self._starts_anew(row)
        found = self.streams.push(self.name(row), row, value, reset=reset, learn=False)
        return self.mixture.advance(state, pack(self.shape, [found]))

    def note(self, row: Row, number: int) -> None:
        """Record number and times of a row as those of its member's last row."""
        if (member := self.streams.table.members.get(self.name(row))) is not None:
            times = [name for name, (kind, _) in self.encoder.columns.items() if kind == "time"]
            member.last = {"row": number} | {name: as_text(row.get(name) or "") for name in times}

    def waiting(self, state: State) -> Iterator[tuple[Hashable, np.ndarray, np.ndarray]]:
        """Yield each member whose last row waits for its label, with its prediction and margins."""
        members = self.streams.table.members.items()
        slots = {name: member.slot for name, member in members if member.num_rows}
        newest = self.mixture.newest(state, list(slots.values()))
        yield from zip(slots, *newest, strict=True)

    def changed_units(self, units: np.ndarray, row: int) -> list[str]:
        """Return a sentence for each column that changed for the first time; record all changes.

        Args:
            units: means and deviations at the places of a row.
            row: number of the last row.
        """
        found = []
        for name, (kind, at) in self.encoder.columns.items():
            if kind != "numeric" or name in self.encoder.unlagged or not units[1, at]:
                continue
            mean, scale = now = float(units[0, at]), float(units[1, at])
            before, unit = self.units.setdefault(str(name), now)
            is_scale = max(scale, unit) <= CHANGED * min(scale, unit)
            if is_scale and abs(mean - before) <= CHANGED * unit:
                continue
            if str(name) not in self.changes:
                found.append(
                    f"the numbers of {str(name)[:80]!r} were {before:.3g} ± {unit:.3g}, and are "
                    f"{mean:.3g} ± {scale:.3g} now: is it another unit? What depends on it other "
                    "than linearly is learned anew"
                )
            self.units[str(name)], self.changes[str(name)] = now, (row, before, unit, *now)
        return found

    def _look_for_sentinels(self, state: State, labels: int) -> None:
        """Report once that some labels count as missing; check whenever their number has doubled.

        Args:
            state: present state.
            labels: number of new labels.
        """
        self.num_labels += labels
        if self.shape.classes or self.num_labels < self.next_look:
            return
        self.next_look *= 2
        arrays = state if isinstance(state, MixtureState) else self.mixture.packing.unpack(state)
        arrived = arrays.arrived
        if (count := int(arrived.outliers[2])) and arrived.ordinary is not None:
            self.next_look = np.inf
            self.news.append(
                f"{count} labels are taken as missing: far from all others, and exactly equal to "
                f"the one before that was as far, as {float(arrived.ordinary.outside):g}. If they "
                "are no marks of missing values, choose --outliers clip"
            )

    def _check_outliers(self, state: State, packed: np.ndarray) -> None:
        """Raise an EncodingError that names the first outlier in some rows."""
        columns, labels = self.mixture.outliers(state, packed)
        names = {at: name for name, (_, at) in self.encoder.columns.items()}
        for values, is_outlier, is_label in zip(packed, columns, labels, strict=True):
            row = unpack(self.shape, values)
            found = [(f"column {names[at]!r} holds", row.x[at]) for at in is_outlier.nonzero()[0]]
            found += [("the target is", row.y)] * bool(is_label)
            if found:
                what, value = found[0]
                raise EncodingError(
                    f"{what} {value:g}, more than {TUNED.outlier:g} standard deviations from "
                    "its mean; clean the source, or choose --outliers clip or mask"
                )

    def margins(self, state: State, name: Hashable, coverage: float) -> np.ndarray:
        """Return a member's present margins below and above predicted numbers.

        If the member has no rows, return the margins for all members.
        """
        slot = self.streams.table.find(name)
        at = self.shape.slots if slot is None or slot.is_new else slot.number
        return self.mixture.margins(state, coverage, at)

    def worst_held(self, members: Any) -> dict[str, Any]:
        """Return the member with the fewest labels in its intervals; None before `LABELS` labels.

        Args:
            members: errors of the members, by slot.
        """
        shares = {
            name: float(members.held[member.slot] / members.num_labels[member.slot])
            for name, member in self.streams.table.members.items()
            if members.num_labels[member.slot] >= LABELS
        }
        if not shares:
            return {}
        name, share = min(shares.items(), key=lambda pair: pair[1])
        return {"worst_member": str(name), "worst_member_coverage": round(share, 6)}

    def counts(self) -> dict[str, Any]:
        """Return the number of members, and how many joined, lost their slot or restarted."""
        if self.shape.members is None:
            return {}
        table = self.streams.table
        return {
            "members": {"present": len(table), "joins": 0, "evictions": 0, "resets": 0}
            | dict(table.counts)
        }

    def pop_news(self) -> list[tuple[int, str]]:
        """Return and forget sentences about the first values that could not be used.

        Each has the place of its row among the rows that were learned together.
        """
        self._hear(0)
        news, self.heard = self.heard, []
        return news

    def _hear(self, at: int) -> None:
        for source in (self, self.encoder, self.target, self.room):
            if source.news:
                self.heard += [(at, line) for line in source.news]
                source.news = []

    def _restored(self) -> None:
        self._fit()
        if self.as_text:
            self.room.name_by_text()

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
    """Return the unconverted name of the member to which a row belongs.

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
