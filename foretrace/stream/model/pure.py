"""Experts and mixture as pure functions of a state; a row and its label are separate events.

   take    row -> prediction; updates the past, and returns the values that the label needs
    label   label and the values of its row -> scores; experts, weights and units learn
    step    a row, then the label that arrived with it, in one program

A state is a pure function of its events and their order. All streams share experts and weights, and
each stream has its own past. Both events work on a view: the state with the parts of only one
stream, which are read once and written once.

`step` takes the label of the row itself, or of the row `delay` rows before. With a horizon, it
takes the number of the row. This number completes the label of an earlier row, which is learned
before the new row is predicted. Labels that arrive in any order are given to `label` with the place
of their row.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._cells.parts import is_key
from foretrace._learner.learner import Learner
from foretrace._types import Array, Bool, Int
from foretrace.stream.experts.by_name import Own, experts_of
from foretrace.stream.experts.expert import Lesson
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.arrivals import Arrivals, Outliers, Told
from foretrace.stream.model.features import Maps, expand, look, new_past
from foretrace.stream.model.intervals import Intervals, MemberErrors, bounded
from foretrace.stream.model.mix_classes import ClassMixture
from foretrace.stream.model.mix_numbers import NumberMixture, NumberWeights
from foretrace.stream.model.of_members import in_slots, once, read, write
from foretrace.stream.model.placed import placed
from foretrace.stream.model.score import (
    OF_CLASSES,
    OF_NUMBERS,
    of_row,
    score_class,
    score_numbers,
    sums_of,
)
from foretrace.stream.model.state import Mixed, MixtureState, Waiting
from foretrace.stream.model.tallies import new_tallies, tally
from foretrace.stream.model.unusual import new_past_errors
from foretrace.stream.read.row import RawRow

SETTLED = 10
"""Number of labels after which experts learn numbers; before, their scale is unknown."""


class PureMixture:
    """The functions in this file's docstring, for streams of the same sizes.

    Args:
        shape: sizes of the streams.
        experts: names of the used groups of experts. The baselines are always used.
        network: learner of a recurrent network for these sizes. Default: no network.
        own: the user's experts.
    """

    def __init__(
        self, shape: Shape, experts: tuple[str, ...], network: Learner | None, own: Own = ()
    ):
        self.shape = shape
        self.scores = OF_CLASSES if shape.classes else OF_NUMBERS
        self.experts, self.left_out = experts_of(shape, experts, network, own)
        self.names = names = tuple(name for expert in self.experts for name in expert.names)
        self.sums = sums_of(self.scores, names)
        count, baselines = len(names), len(self.experts[0].names)
        mixture = ClassMixture if shape.classes else NumberMixture
        self.mixture: Any = mixture(count, baselines, shape.outputs)
        self.arrivals = Arrivals(shape)
        self.intervals: Any = None
        if not shape.classes:
            self.intervals = Intervals(shape.outputs, shape.coverage)

    def init(self, maps: Maps) -> MixtureState:
        """Return the state before the first row."""
        count, shape = self.shape.slots + 1, self.shape
        has_own_errors = self.intervals is not None and shape.slots > 1
        experts = tuple(expert.init() for expert in self.experts)
        carries = self._new_carries(experts)
        state = MixtureState(
            arrived=self.arrivals.init(),
            intervals=None if self.intervals is None else self.intervals.init(),
            of_members=MemberErrors(*jnp.zeros((3, count))) if has_own_errors else None,
            past_errors=in_slots(new_past_errors(), count),
            pasts=in_slots(new_past(shape), count),
            carries=carries if shape.members is None else in_slots(carries, count),
            waiting=None,
            experts=experts,
            weights=self.mixture.init(),
            num_labels=jnp.zeros((), jnp.int32),
            members=jnp.zeros(()) if shape.slots > 1 else None,
            sums=jnp.zeros((3, len(self.sums))),
            tallies=new_tallies(shape),
        )
        if shape.places:
            memo = jax.eval_shape(self._taken_first, state, maps)
            state = state._replace(waiting=jax.tree.map(self._places_for, memo))
        # With a weak type in the state, the step would be compiled again for the next state.
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

    def step(self, state: MixtureState, maps: Maps, raw: RawRow) -> tuple[MixtureState, Mixed]:
        """Return the state after a row and the label that arrived with it, and the results."""
        slot, is_there, view = self._view(state, raw)
        delay = self.shape.delay
        if self.shape.waiting or not delay:
            view, new, features = self._take(view, maps, raw, slot, waits=False)
            view, scored = self._label(view, new, features, raw.y, raw.watched, is_there, None)
        else:
            stream = view.arrived.streams
            number = stream.num_rows
            # Before the first due label there is nothing to learn, although a caller of C might
            # give one.
            is_due = number - stream.begun >= delay - self.shape.horizon
            due = raw._replace(y=jnp.where(is_due, raw.y, jnp.nan))
            has_row = is_there & (number - stream.begun >= delay)
            here, then = (self._place(slot, at) for at in (number, number - delay))
            if self.shape.horizon:
                view, old, scored = self._due(view, maps, due, slot, then, has_row)
                view, new, _ = self._take(view, maps, raw, slot, waits=True)
                # Written values must depend on what was read before; otherwise all places are
                # copied.
                kept = optax.tree.where(slot >= 0, new, old)
                view = view._replace(waiting=write(view.waiting, here, kept))
            else:
                view, new, _ = self._take(view, maps, raw, slot, waits=True)
                view = view._replace(waiting=write(view.waiting, here, new))
                view, _, scored = self._due(view, maps, due, slot, then, has_row)
        return self._written(state, view, slot), self._mixed(new)._replace(**scored)

    def advance(self, state: MixtureState, maps: Maps, raw: RawRow) -> tuple[MixtureState, Mixed]:
        """Return the state after a row, without learning: only the past and last label change."""
        slot, _, view = self._view(state, raw)
        number = view.arrived.streams.num_rows
        if self.shape.horizon:
            view, _ = self._noted(view, raw.y, number, learning=False)
        view, new, _ = self._take(view, maps, raw, slot, waits=False, learning=False)
        if not self.shape.horizon:
            view, _ = self._noted(view, raw.y, number, learning=False)
        return self._written(state, view, slot), self._mixed(new)

    def predict(self, state: MixtureState, maps: Maps, raw: RawRow) -> Mixed:
        """Return the prediction of a row as if it were the next one, without changing anything."""
        slot, _, view = self._view(state, raw)
        if self.shape.horizon:
            view, _ = self._noted(view, raw.y, view.arrived.streams.num_rows, learning=False)
        return self._mixed(self._take(view, maps, raw, slot, waits=False, learning=False)[1])

    def take(
        self, state: MixtureState, maps: Maps, raw: RawRow, place: Int[Array, ""]
    ) -> tuple[MixtureState, Mixed]:
        """Return the state after a row, which waits for its label at a place, and its prediction.

        Args:
            state: present state.
            maps: random matrices.
            raw: the row. Its label is ignored.
            place: a free place.
        """
        slot, _, view = self._view(state, raw)
        view, new, _ = self._take(view, maps, raw, slot, waits=True)
        view = view._replace(waiting=write(view.waiting, place, new))
        return self._written(state, view, slot), self._mixed(new)

    def label(
        self, state: MixtureState, maps: Maps, place: Int[Array, ""], y: Array, watched: Array
    ) -> tuple[MixtureState, dict[str, Any]]:
        """Return the state after the label of the row at a place, and the scores.

        If the stream began anew after the row, the label is learned, but the past is not changed.

        Args:
            state: present state.
            maps: random matrices.
            place: place of the row.
            y: label: a number, or the index of a class, which is -1 if it exceeds the maximum
                number of classes. NaN if the label will never arrive.
            watched: index of each class with an alarm; -1 before its first label.
        """
        old = once(lambda: read(state.waiting, place), place)
        view = self._view_of(state, old.slot)
        stream = view.arrived.streams
        is_alive = old.number >= stream.begun
        late = stream.num_rows - old.number - 1
        features = expand(self.shape, maps, old.seen)
        view, scored = self._label(view, old, features, y, watched, is_alive, late)
        return self._written(state, view, old.slot), scored

    def answer(self, state: MixtureState, places: Int[Array, "K"]) -> Mixed:
        """Return the predictions of the rows at some places."""
        return self._mixed(jax.tree.map(lambda part: part[places], state.waiting))

    def newest(self, state: MixtureState, slots: Int[Array, "K"]) -> Mixed:
        """Return the predictions of the last rows of some streams, which wait for labels."""
        return self.answer(state, self._place(slots, state.arrived.streams.num_rows[slots] - 1))

    def outliers(self, state: MixtureState, raw: RawRow) -> tuple[MixtureState, Outliers]:
        """Return the state after a row and its label, and which of their numbers are outliers.

        Only the units are updated.
        """
        slot, is_there, view = self._view(state, raw)
        row, arrived = self.arrivals.take(view.arrived, raw, is_there)
        told, arrived = self.arrivals.label(arrived, jnp.asarray(raw.y))
        view = view._replace(arrived=arrived)
        return self._written(state, view, slot), Outliers(row.outliers, told.is_outlier)

    # The view of a stream

    def _view(
        self, state: MixtureState, raw: RawRow
    ) -> tuple[Int[Array, ""], Bool[Array, ""], MixtureState]:
        """Return the slot of a row, whether there is a row, and the view of its stream."""
        slot = jnp.asarray(raw.slot).astype(jnp.int32)
        view, is_new = self._view_of(state, slot), jnp.asarray(raw.is_new) > 0
        stream = self.arrivals.begun(view.arrived.streams, is_new)
        fresh = new_past(self.shape)._replace(is_counted=view.pasts.is_counted)
        pasts = optax.tree.where(is_new, fresh, view.pasts)
        view = view._replace(arrived=view.arrived._replace(streams=stream), pasts=pasts)
        if self.shape.members is not None:
            new = self._new_carries(state.experts)
            view = view._replace(carries=optax.tree.where(is_new, new, view.carries))
        is_other = jnp.asarray(raw.is_new) > 1
        if view.of_members is not None:
            none = MemberErrors(*jnp.zeros(3))
            own = optax.tree.where(is_other, none, view.of_members)
            view = view._replace(of_members=own)
        if self.shape.members is not None:
            errors = optax.tree.where(is_other, new_past_errors(), view.past_errors)
            view = view._replace(past_errors=errors)
        return slot, slot < self.shape.slots, view

    def _view_of(self, state: MixtureState, slot: Int[Array, ""]) -> MixtureState:
        """Return a view: the state with the parts of only one stream."""
        streams = read(state.arrived.streams, slot)
        own = None if state.of_members is None else read(state.of_members, slot)
        carries = state.carries if self.shape.members is None else read(state.carries, slot)
        return state._replace(
            arrived=state.arrived._replace(streams=streams),
            past_errors=read(state.past_errors, slot),
            pasts=read(state.pasts, slot),
            carries=carries,
            of_members=own,
        )

    def _written(
        self, state: MixtureState, view: MixtureState, slot: Int[Array, ""]
    ) -> MixtureState:
        """Return the state of all streams after a change of a view."""
        streams = write(state.arrived.streams, slot, view.arrived.streams)
        carries: Any = view.carries
        if self.shape.members is not None:
            carries = write(state.carries, slot, view.carries)
        own = view.of_members
        return view._replace(
            arrived=view.arrived._replace(streams=streams),
            past_errors=write(state.past_errors, slot, view.past_errors),
            pasts=write(state.pasts, slot, view.pasts),
            carries=carries,
            of_members=None if own is None else write(state.of_members, slot, own),
        )

    def _new_carries(self, learned: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(self.experts, learned, strict=True)
        return tuple(expert.new_carry(one) for expert, one in pairs)

    def _place(self, slot: Array, number: Array) -> Array:
        """Return the place of a row in a stream whose labels arrive in order."""
        lap = self.shape.delay + 1
        return slot * lap + jnp.mod(number, lap).astype(jnp.int32)

    def _places_for(self, like: Any) -> Array:
        """Return an array for the values of all waiting rows."""
        shape = (self.shape.places, *like.shape)
        if is_key(like):
            return jnp.broadcast_to(jax.random.key(0), shape)
        return jnp.zeros(shape, like.dtype)

    def _taken_first(self, state: MixtureState, maps: Maps) -> Waiting:
        zeros, numbers = jnp.zeros(self.shape.inputs), jnp.zeros(self.shape.row_inputs)
        watched, given = (jnp.zeros(len(one)) for one in (self.shape.alarms, self.shape.outside))
        raw = RawRow(zeros, numbers, watched=watched, given=given)
        slot, _, view = self._view(state, raw)
        return self._take(view, maps, raw, slot, waits=True)[1]

    # A row

    def _take(
        self,
        view: MixtureState,
        maps: Maps,
        raw: RawRow,
        slot: Int[Array, ""],
        *,
        waits: bool,
        learning: bool = True,
    ) -> tuple[MixtureState, Waiting, Any]:
        """Return a view after a row, the values for its label, and the row's features."""
        shape, is_there = self.shape, slot < self.shape.slots
        number = view.arrived.streams.num_rows
        row, arrived = self.arrivals.take(view.arrived, raw, is_there, learning=learning)
        of_label = row.moments, row.ordinary
        seen, past = look(shape, maps, view.pasts, row.x, row.raw, *of_label)
        features = expand(shape, maps, seen)
        if shape.outside:
            features = features._replace(given=raw.given)
        parts = zip(self.experts, view.experts, view.carries, strict=True)
        taken = [
            expert.take(learned, carry, features, is_there, waits=waits)
            for expert, learned, carry in parts
        ]
        found = jnp.concatenate([predicted for predicted, _, _ in taken])
        if shape.outside:
            found = self.mixture.filled(view.weights, found, row.moments)
        mixed, candidates = self.mixture.predict(view.weights, found, row.moments)
        margins = jnp.zeros((2, 0 if shape.classes else shape.outputs))
        units = margins
        if view.intervals is not None:
            scale = row.moments[1]
            units = self.intervals.units(view.intervals, scale)
            wider = TUNED.first_late if shape.is_late else 1.0  # of late errors nothing is known
            margins = self.intervals.in_use(view.intervals, wider * scale)
            if view.of_members is not None:
                margins = margins * view.of_members.factor(view.intervals)
        if shape.at_least is not None:
            mixed, low, high = bounded(mixed, margins, shape.at_least, jnp.maximum)
            margins = jnp.stack([mixed - low, high - mixed])
        memos = tuple(memo for _, _, memo in taken)
        new = Waiting(
            slot=slot,
            number=number,
            seen=seen,
            num_labels=view.num_labels,
            predicted=found.T,
            candidates=candidates.T,
            mixed=mixed,
            baselines=row.baselines,
            margins=margins,
            units=units,
            memos=memos,
        )
        if view.members is not None:
            # Counted row by row, because the time of a sum over all members would grow with their
            # number.
            more = past.is_counted.astype(float) - view.pasts.is_counted.astype(float)
            view = view._replace(members=view.members + jnp.where(is_there, more, 0.0))
        carries = tuple(carry for _, carry, _ in taken)
        return view._replace(arrived=arrived, pasts=past, carries=carries), new, features

    def _mixed(self, row: Waiting) -> Mixed:
        """Return the prediction of one or more rows; NaN while no number is known."""
        if self.shape.classes:
            return Mixed(row.mixed, num_classes=row.seen.moments[..., 0])
        none = jnp.where(jnp.isnan(row.baselines[..., 1:]), jnp.nan, 0.0)
        return Mixed(row.mixed + none, margins=row.margins + none[..., None])

    # A label

    def _due(
        self,
        view: MixtureState,
        maps: Maps,
        raw: RawRow,
        slot: Int[Array, ""],
        place: Int[Array, ""],
        has_row: Bool[Array, ""],
    ) -> tuple[MixtureState, Waiting, dict[str, Any]]:
        """Learn the label that a row brings for the row at a place; return that row's values."""
        if self.shape.first_delay is None:
            old, each_step = once(lambda: read(view.waiting, place), place), None
        else:
            old, each_step = once(lambda: self._each_step(view, slot, place), place)
        features = expand(self.shape, maps, old.seen)
        given = raw.y, raw.watched, has_row, self.shape.delay, each_step
        view, scored = self._label(view, old, features, *given)
        return view, old, scored

    def _each_step(
        self, view: MixtureState, slot: Int[Array, ""], place: Int[Array, ""]
    ) -> tuple[Waiting, dict[str, Array]]:
        """Return the row at a place, and for each step ahead the values of its own row."""
        waiting: Any = view.waiting
        delays = jnp.asarray(self.shape.delays, jnp.int64)
        stream, steps = view.arrived.streams, jnp.arange(self.shape.outputs, dtype=jnp.int32)
        places = self._place(slot, stream.num_rows - delays)
        found = {
            "moments": waiting.seen.moments[places],
            "num_labels": waiting.num_labels[places],
            "predicted": waiting.predicted[places, steps],
            "candidates": waiting.candidates[places, steps],
            "has_row": stream.num_rows - stream.begun >= delays,
        }
        return read(waiting, place), found

    def _noted(
        self, view: MixtureState, y: Array, number: Int[Array, ""], *, learning: bool = True
    ) -> tuple[MixtureState, Told]:
        """Return a view in which the label of a row counts as known, but is not learned."""
        stream, is_ordered = view.arrived.streams, not self.shape.waiting
        of_row = None if is_ordered else number
        told, arrived = self.arrivals.label(view.arrived, y, of_row, learning=learning)
        view = view._replace(arrived=arrived)
        if not self.shape.previous:
            return view, told
        labels, stream = view.pasts.labels, arrived.streams
        if is_ordered:
            labels = jnp.concatenate([told.feature[None], labels[:-1]])
        else:
            labels, stream = placed(labels, stream, number, told.feature, told.is_new)
        arrived = arrived._replace(streams=stream)
        return view._replace(arrived=arrived, pasts=view.pasts._replace(labels=labels)), told

    def _label(
        self,
        view: MixtureState,
        old: Waiting,
        features: Any,
        y: Array,
        watched: Array,
        has_row: Bool[Array, ""],
        late: Any,
        each_step: dict[str, Array] | None = None,
    ) -> tuple[MixtureState, dict[str, Any]]:
        """Return a view that has learned a label, and the scores.

        Args:
            view: present view.
            old: values of the row of the label.
            features: features of the row.
            y: the label.
            watched: index of each class with an alarm.
            has_row: whether the row belongs to its stream in its present state.
            late: number of rows of the stream since the row. None if the row was taken in the same
                program.
            each_step: for each step ahead, values of the row that predicted it, if these rows
                differ.
        """
        is_there = has_row if late is None or not self.shape.waiting else jnp.asarray(True)
        view, told = self._noted(view, y, old.number)
        if each_step is not None:
            view = self._weighed(view, told, old.slot, **each_step)
        known, is_scored = told.known & is_there, told.is_scored & is_there
        predicted = old.predicted.T
        if self.shape.classes:
            indices = jnp.arange(self.shape.outputs, dtype=jnp.int32)
            label = (indices == told.label[0].astype(jnp.int32)).astype(jnp.result_type(float))
            wrong = (jnp.argmax(predicted, axis=1) != jnp.argmax(label)).astype(label.dtype)
            # A class that has no place is predicted by no expert.
            wrong = jnp.where(known, wrong, 1.0)
            scores = score_class(told.label[0], old.mixed, old.seen.moments[0], old.baselines)
        else:
            mean, scale = old.seen.moments[0], old.seen.moments[1]
            label = jnp.where(known, (told.label - mean) / scale, 0.0)
            wrong = jnp.abs(predicted - label[None]).mean(axis=1) * scale
            scores = score_numbers(told.label, old.mixed, old.baselines, old.margins)
            view, known = self._judged(view, old, told, known, scores, late)
            is_scored = is_scored & ~jnp.isnan(old.baselines[1])
        view = self._taught(view, old, features, label, known, has_row, late)
        if self.shape.first_delay is None:
            made = predicted, old.candidates.T
            given = label, known, old.seen.moments
            by = 0.0 if late is None else jnp.asarray(late, float)
            weights = self.mixture.learn(view.weights, *made, *given, by)
            view = view._replace(weights=weights)
        scores = jnp.where(is_scored, scores, jnp.nan)
        error = scores[self.scores.index("log_loss" if self.shape.classes else "mae")]
        surprise, past_errors = view.past_errors.learn(error)
        view = view._replace(past_errors=past_errors)
        return self._summed(view, old, told, watched, scores, wrong), {
            "scores": scores,
            "errors": wrong,
            "surprise": surprise,
        }

    def _judged(
        self, view: MixtureState, old: Waiting, told: Told, known: Array, scores: Array, late: Any
    ) -> tuple[MixtureState, Array]:
        """Return a view after an update of units and intervals, and whether experts learn."""
        arrived, ordinary = view.arrived, view.arrived.ordinary
        assert ordinary is not None and isinstance(view.weights, NumberWeights)
        ordinary = ordinary.judge(told.label, old.mixed, view.weights.unit.size, known)
        view = view._replace(arrived=arrived._replace(ordinary=ordinary))
        if (tracked := view.intervals) is not None:
            errors = told.label - old.mixed
            factor: Any = 1.0
            # A label of the next row is learned before that row is predicted.
            since = 0 if late is None else late - int(self.shape.horizon > 0)
            judged = known & ((since < 1) | ~jnp.isnan(old.baselines[1]))
            if (own := view.of_members) is not None:
                factor, held = own.factor(tracked), scores[OF_NUMBERS.index("coverage")]
                view = view._replace(of_members=own.learn(errors, held, judged))
            errors_of = errors, old.margins, old.seen.moments[1], judged
            tracked = self.intervals.learn(tracked, *errors_of, factor, old.units, since)
        counted = jnp.minimum(view.num_labels + known.astype(jnp.int32), SETTLED)
        view = view._replace(intervals=tracked, num_labels=counted.astype(jnp.int32))
        # Before some labels were known, there was no scale for learning.
        return view, known & (old.num_labels >= SETTLED)

    def _taught(
        self,
        view: MixtureState,
        old: Waiting,
        features: Any,
        label: Array,
        known: Array,
        has_row: Array,
        late: Any,
    ) -> MixtureState:
        """Return a view whose experts have learned a label."""
        members = None if view.members is None else jnp.maximum(view.members, 1.0)
        of_stream = zip(view.carries, old.memos, strict=True)
        parts = zip(self.experts, view.experts, of_stream, strict=True)
        found, at, predicted = [], 0, old.predicted.T
        for expert, learned, (carry, memo) in parts:
            mine = predicted[at : at + len(expert.names)]
            lesson = Lesson(
                features=features,
                predicted=mine,
                label=label,
                known=known,
                has_row=has_row,
                members=members,
                late=late,
            )
            found.append(expert.label(learned, carry, memo, lesson))
            at += len(expert.names)
        experts, carries = (tuple(part) for part in zip(*found, strict=True))
        return view._replace(experts=experts, carries=carries)

    def _weighed(
        self,
        view: MixtureState,
        told: Told,
        slot: Array,
        *,
        moments: Array,
        num_labels: Array,
        predicted: Array,
        candidates: Array,
        has_row: Array,
    ) -> MixtureState:
        """Return a view after a row's number, which is the label of a step ahead of other rows."""
        known = jnp.isfinite(told.came) & has_row & (slot < self.shape.slots)
        known = known & (num_labels >= SETTLED)
        moments = jnp.where(known[:, None], moments, 1.0)
        label = jnp.where(known, (told.came - moments[:, 0]) / moments[:, 1], 0.0)
        given = predicted.T, candidates.T, label, known, moments, self.shape.delays.astype(float)
        return view._replace(weights=self.mixture.learn(view.weights, *given))

    def _summed(
        self,
        view: MixtureState,
        old: Waiting,
        told: Told,
        watched: Array,
        scores: Array,
        wrong: Array,
    ) -> MixtureState:
        """Return a view with the scores of a row added to its sums and tallies."""
        if view.sums is not None:
            row_sums = of_row(self.scores, scores, wrong)
            view = view._replace(sums=view.sums + row_sums[None])
        if view.tallies is not None:
            answer = old.mixed, old.seen.moments[0]
            after = tally(view.tallies, told.label[0], *answer, watched, self.shape.alarms)
            tallies = optax.tree.where(jnp.isnan(scores[0]), view.tallies, after)
            view = view._replace(tallies=tallies)
        return view
