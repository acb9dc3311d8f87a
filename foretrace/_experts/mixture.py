"""All experts and their mixture as one compiled program: a chunk of rows in, predictions out.

For each row:

    its numbers in running units, and the label that came with it
    predict it, and its interval
    learn the row of the same stream, `delay` rows ago, whose label came with it

A row is predicted before its own label is learned, also inside of a chunk. With a horizon, the
label with a row is one of earlier rows, and is learned first. Values that a late label needs wait
in a ring. The experts and their weights are shared by all streams; each stream has its
own past. Everything but the networks is computed in float64, whatever JAX is set to, by
`jax.enable_x64` around each call.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._compiler import plain_loops, unoptimised
from foretrace._experts.arrivals import Arrivals, Arrived, Outliers, Row
from foretrace._experts.by_name import EXPERTS, experts_of
from foretrace._experts.expert import Lesson, Remembered
from foretrace._experts.features import Maps, Past, Seen, expand, look, maps, new_past, new_seen
from foretrace._experts.intervals import Intervals, MemberErrors, Tracked, bounded
from foretrace._experts.mix_classes import ClassMixture, ClassWeights
from foretrace._experts.mix_numbers import NumberMixture, NumberWeights
from foretrace._experts.moments import settled_scale
from foretrace._experts.network import NetworkState, Refusals
from foretrace._experts.of_members import in_slots, once, read, write
from foretrace._experts.ring import Ring
from foretrace._experts.rows import RawRow, unpack
from foretrace._experts.score import (
    OF_CLASSES,
    OF_NUMBERS,
    of_row,
    score_class,
    score_numbers,
    sums_of,
)
from foretrace._experts.shape import Shape
from foretrace._experts.tallies import Tallies, new_tallies, tally
from foretrace._learner.learner import Learner
from foretrace._learner.packing import Packed, Packing
from foretrace._types import Array, Float, Int

SETTLED = 10
"""Number of labels from which experts learn numbers: before, nobody knows their scale."""

MAX_BYTES = 2**30
"""Maximum memory of the experts, and of the past and the late labels of all members."""


class Waiting(NamedTuple):
    """Predictions that wait for their labels.

    Args:
        seen: values that the features follow from.
        num_labels: number of labels that had come, at most `SETTLED`.
        predicted: predictions of the experts. Those of one output lie side by side, because each
            step ahead is read from another row.
        candidates: predictions between which the mixture chose at its top, likewise.
        mixed: predictions of the mixture.
        baselines: last known number and mean, or last and most frequent class.
        margins: reach of the interval below and above each number; empty for classes.
    """

    seen: Seen
    num_labels: Int[Array, ""]
    predicted: Float[Array, "O E"]
    candidates: Float[Array, "O T"]
    mixed: Float[Array, "O"]
    baselines: Float[Array, "2"]
    margins: Float[Array, "2 O"]


class MixtureState(NamedTuple):
    """Everything that the mixture changes.

    Args:
        arrived: units of the rows, and labels as they arrived.
        intervals: errors of the predictions; None for classes, and where no interval is read.
        of_members: size of each member's errors; None for a single stream, and likewise.
        pasts: past of each stream; the last one belongs to rows that are missing.
        carries: carry of each expert before the next row of each stream; None if it has none.
        late_carries: carries before the row whose label comes next; None without delay.
        rings: predictions of each stream that wait for their labels; None without delay.
        turns: turn of the ring of each stream.
        experts: what each group of experts has learned.
        weights: weights of the mixture.
        num_labels: number of labels that have come, at most `SETTLED`.
        members: number of members with a label; None for a single stream.
        sums: sums in the order of `Mixture.sums`, of all rows, of those since the last line of the
            record and of those since the last block: differences of large sums would lose what is
            small. None in a program without them.
        tallies: counts of each class; None for numbers, and in a program without sums.
    """

    arrived: Arrived
    intervals: Tracked | None
    of_members: MemberErrors | None
    pasts: Past
    carries: tuple[Any, ...]
    late_carries: tuple[Any, ...] | None
    rings: Waiting | None
    turns: Int[Array, "P"]
    experts: tuple[Any, ...]
    weights: NumberWeights | ClassWeights
    num_labels: Int[Array, ""]
    members: Float[Array, ""] | None
    sums: Float[Array, "3 T"] | None
    tallies: Tallies | None


S = TypeVar("S", bound=MixtureState | Packed)


class Mixed(NamedTuple):
    """Results of a step for each of its rows; None for what there is not.

    Args:
        newest: prediction of the new row: numbers, or logarithms of probabilities.
        margins: reach of the interval below and above each number.
        num_classes: number of classes that were known.
        scores: scores of the prediction whose label came, by the names in `score`; NaN if none
            did.
        errors: of each expert, for that row: mean absolute error, or 1 for a wrong class.
    """

    newest: Float[Array, "C O"]
    margins: Float[Array, "C 2 O"] | None = None
    num_classes: Float[Array, "C"] | None = None
    scores: Float[Array, "C S"] | None = None
    errors: Float[Array, "C E"] | None = None

    @property
    def told(self) -> Array | None:
        """What the prediction is read with: its margins, or the number of classes."""
        return self.num_classes if self.margins is None else self.margins


class Report(NamedTuple):
    """What a line of the record tells of a state.

    Args:
        total: sums over all rows by their names.
        line: sums since the last line of the record.
        block: sums since the last block.
        weights: weight of each expert, the mean over the steps ahead.
        units: running mean and deviation of each number of a row; 0 before some differed.
        outliers: number of outliers so far, of columns and of labels.
        tallies: counts of each class; None for numbers.
        of_members: errors of the members, by their slots; None without members or intervals.
        refusals: steps of the network that were refused; None without one.
    """

    total: dict[str, float]
    line: dict[str, float]
    block: dict[str, float]
    weights: Any
    units: Any
    outliers: Any
    tallies: Any
    of_members: MemberErrors | None
    refusals: Refusals | None


class Mixture:
    """Experts and their mixture for streams of one shape.

    Args:
        shape: sizes of the streams.
        experts: names of the used groups of experts, among `EXPERTS`; the baselines are always
            used.
        network: learner of a recurrent network of the shape; None if it takes no part.

    `like` holds the shapes and dtypes of a state.

    Raises:
        ValueError: the state would take more than `MAX_BYTES`.
    """

    def __init__(
        self, shape: Shape, experts: tuple[str, ...] = EXPERTS, network: Learner | None = None
    ):
        self.shape = shape
        self.scores = OF_CLASSES if shape.classes else OF_NUMBERS
        self.network = network
        self.experts, self.left_out = experts_of(shape, experts, network)
        self.groups = tuple(name for name in experts if name not in self.left_out)
        self.names = names = tuple(name for expert in self.experts for name in expert.names)
        self.sums = sums_of(self.scores, names)
        count, baselines = len(names), len(self.experts[0].names)
        if shape.classes:
            self.mixture: Any = ClassMixture(count, baselines, shape.outputs, shape.delay)
        else:
            delays = tuple(shape.delays.tolist())
            self.mixture = NumberMixture(count, baselines, shape.outputs, delays)
        self.arrivals = Arrivals(shape)
        self.intervals: Any = None
        if not shape.classes:
            self.intervals = Intervals(shape.outputs, shape.coverage)
        self.ring = Ring(shape.delay)
        self._init = jax.jit(self._traced_init, compiler_options=unoptimised())
        with jax.enable_x64(True):
            self.like = jax.eval_shape(self._traced_init)
        self._check_memory()
        with jax.enable_x64(True):
            self._maps = jax.device_put(maps(shape))
        self.packing = Packing(self.like)
        keeping, taking = self.packing.keeping_packed, self.packing.taking_packed
        # A step takes 6 % longer: no vector loop writes over the covariance that it reads.
        compiled = partial(jax.jit, compiler_options=plain_loops())
        self._step = compiled(keeping(self._traced_step), donate_argnums=0)
        self._advance = compiled(
            keeping(partial(self._traced_step, learning=False)), donate_argnums=0
        )
        self._predict = compiled(taking(self._traced_predict))
        self._newest = compiled(taking(self._traced_newest))
        self._report = compiled(taking(self._traced_report))
        self._ended = compiled(keeping(self._traced_ended), donate_argnums=0)
        self._outliers = compiled(taking(self._traced_outliers))
        self._margins = compiled(taking(self._traced_margins))

    @property
    def reach(self) -> int:
        """Number of rows that the lags reach back; 0 if no expert sees an earlier row as it is."""
        shape = self.shape
        if "lags" in self.groups or "gradient" in self.groups:
            return shape.depth
        return 0 if shape.classes or "neighbours" not in self.groups else shape.short_depth

    def init(self) -> MixtureState:
        """Return the state before the first row."""
        with jax.enable_x64(True):
            try:
                return self._init()
            except ValueError:
                # Inside another program JAX refuses compiler options; any other error comes again.
                return self._traced_init()

    def _traced_init(self) -> MixtureState:
        with jax.enable_x64(True):
            count, weights = self.shape.slots + 1, self.mixture.init()
            waiting = Waiting(
                new_seen(self.shape),
                jnp.zeros((), jnp.int32),
                jnp.zeros((self.shape.outputs, len(self.names))),
                jnp.zeros((self.shape.outputs, self.mixture.num_candidates)),
                jnp.zeros(self.shape.outputs),
                jnp.zeros(2),
                jnp.zeros((2, 0 if self.intervals is None else self.shape.outputs)),
            )
            has_own_errors = self.intervals is not None and self.shape.slots > 1
            experts = tuple(expert.init() for expert in self.experts)
            carries = self._new_carries(experts)
            if self.shape.members is not None:
                carries = in_slots(carries, count)
            state = MixtureState(
                self.arrivals.init(),
                None if self.intervals is None else self.intervals.init(),
                MemberErrors(*jnp.zeros((3, count))) if has_own_errors else None,
                in_slots(new_past(self.shape), count),
                carries,
                carries if self.ring.delay else None,
                self.ring.empty(waiting, count) if self.ring.delay else None,
                jnp.zeros(count, jnp.int32),
                experts,
                weights,
                jnp.zeros((), jnp.int32),
                jnp.zeros(()) if self.shape.slots > 1 else None,
                jnp.zeros((3, len(self.sums))),
                new_tallies(self.shape),
            )
            # With a weak type in it, the step would be compiled again for the state that follows.
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

    def step(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row, and learn the row whose label came with it; `state` is donated.

        This and the other methods take a state as it is, or packed by `packing`, and return it
        likewise.
        """
        with jax.enable_x64(True):
            return self._step(state, self._maps, rows)

    def advance(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row without learning: the past moves on; `state` is donated."""
        with jax.enable_x64(True):
            return self._advance(state, self._maps, rows)

    def predict(self, state: MixtureState | Packed, row: Any) -> Mixed:
        """Return the prediction of a row if it came next; nothing changes."""
        with jax.enable_x64(True):
            return self._predict(state, self._maps, row)

    def outliers(self, state: MixtureState | Packed, rows: Any) -> Outliers:
        """Return which numbers of rows are outliers; nothing changes."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, self._outliers(state, rows))

    def report(self, state: MixtureState | Packed) -> Report:
        """Return what a line of the record tells of a state."""
        with jax.enable_x64(True):
            sums, *parts = jax.tree.map(np.asarray, self._report(state))
        total, line, block = (dict(zip(self.sums, row, strict=True)) for row in sums.tolist())
        return Report(total, line, block, *parts)

    def ended(self, state: S, *, block: bool) -> S:
        """Return a state whose sums since the last line begin again; `state` is donated.

        Args:
            state: the state.
            block: whether those since the last block do, too.
        """
        with jax.enable_x64(True):
            return self._ended(state, np.array([True, False, not block]))[0]

    def margins(
        self, state: MixtureState | Packed, coverage: float, slot: int = 0
    ) -> Float[np.ndarray, "2 O"]:
        """Return the reach of a stream's intervals below and above numbers, by present errors."""
        with jax.enable_x64(True):
            return self.intervals.between(np.asarray(self._margins(state, slot)), coverage)

    def newest(
        self, state: MixtureState | Packed, slots: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return predictions of the last waiting rows of streams, and the reach of their intervals.

        Zeros without delay.
        """
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, self._newest(state, np.array(slots, np.int32)))

    def traced_step(self, state: MixtureState, row: RawRow) -> tuple[MixtureState, Mixed]:
        """Return the state after a row and the label with it, and the row's predictions.

        For a program that is traced in float64.
        """
        rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], row)
        state, mixed = self._stepped(state, self._maps, rows, learning=True)
        return state, jax.tree.map(lambda leaf: leaf[0], mixed)

    def traced_predict(self, state: MixtureState, row: RawRow, maps: Any = None) -> Mixed:
        """Return the prediction of a row if it came next, as `traced_step`."""
        arrived, _, _ = self.arrivals.next(state.arrived, row, learning=False)
        maps = self._maps if maps is None else maps
        carries = self._carries_of(state, state.carries, arrived)
        state = self._of_member(state, arrived)
        return self._mixed(self._forward(state, maps, arrived, carries)[0])

    def _traced_predict(self, state: MixtureState, maps: Maps, row: Any) -> Mixed:
        return self.traced_predict(state, unpack(self.shape, row), maps)

    def _traced_newest(self, state: MixtureState, slots: Array) -> tuple[Array, Array]:
        count, outputs = len(slots), self.shape.outputs
        if state.rings is None:
            size = 0 if self.intervals is None else outputs
            return jnp.zeros((count, outputs)), jnp.zeros((count, 2, size))
        rings = state.rings.mixed, state.rings.margins
        return self.ring.newest(rings, slots, state.turns[slots])

    def _traced_outliers(self, state: MixtureState, rows: Any) -> Outliers:
        def body(arrived: Arrived, row: Array) -> tuple[Arrived, Outliers]:
            return self.arrivals.next(arrived, unpack(self.shape, row))[1:]

        return lax.scan(body, state.arrived, rows)[1]

    def _traced_ended(self, state: MixtureState, kept: Array) -> tuple[MixtureState, tuple[()]]:
        assert state.sums is not None
        return state._replace(sums=jnp.where(kept[:, None], state.sums, 0.0)), ()

    def _traced_report(self, state: MixtureState) -> tuple[Any, ...]:
        weights = self.mixture.weights(state.weights).reshape(len(self.names), -1).mean(axis=1)
        moments = state.arrived.columns
        units = jnp.stack([moments.all.mean, settled_scale(moments)])
        refusals = None if (network := network_in(state)) is None else network.refusals
        counts = state.arrived.outliers, state.tallies
        return state.sums, weights, units, *counts, state.of_members, refusals

    def _traced_margins(self, state: MixtureState, slot: Array) -> Array:
        scale: Any = state.arrived.target
        margins = self.intervals.margins(state.intervals, scale.scale[0])
        if state.of_members is None:
            return margins
        return margins * read(state.of_members, slot).factor(state.intervals)

    def _of_member(self, state: MixtureState, row: Row) -> MixtureState:
        """Return a state with what is known of the errors of a row's stream alone."""
        if state.of_members is None:
            return state
        own = read(state.of_members, row.slot)
        return state._replace(
            of_members=optax.tree.where(row.is_first, MemberErrors(*jnp.zeros(3)), own)
        )

    def _traced_step(
        self, state: MixtureState, maps: Maps, rows: Any, *, learning: bool = True
    ) -> tuple[MixtureState, Mixed]:
        raw = jax.vmap(partial(unpack, self.shape))(rows)
        return self._stepped(state, maps, raw, learning=learning)

    def _stepped(
        self, state: MixtureState, maps: Maps, raw: RawRow, *, learning: bool
    ) -> tuple[MixtureState, Mixed]:
        def body(state: MixtureState, row: RawRow) -> tuple[MixtureState, Mixed]:
            found, arrived, _ = self.arrivals.next(state.arrived, row, learning=learning)
            return self._row(maps, learning, state._replace(arrived=arrived), found)

        return _each(body, state, raw)

    def _forward(
        self, state: MixtureState, maps: Maps, row: Row, carries: tuple[Any, ...]
    ) -> tuple[Waiting, Any, Past, Past]:
        """Predict a row.

        Args:
            state: present state.
            maps: random matrices.
            row: the row.
            carries: carries of its stream before it.

        Returns:
            The predictions, which wait for the label; the row's features; the past in the slot of
            its stream, and the past behind the row.
        """
        kept = read(state.pasts, row.slot)
        past = optax.tree.where(row.is_new, new_past(self.shape), kept)
        of_labels = row.last, row.moments, row.ordinary
        seen, after = look(self.shape, maps, past, row.x, row.raw, *of_labels)
        features = expand(self.shape, maps, seen)
        experts = _with_carries(state.experts, carries)
        predicted = [
            expert.predict(now, features) for expert, now in zip(self.experts, experts, strict=True)
        ]
        found = jnp.concatenate(predicted)
        mixed, candidates = self.mixture.predict(state.weights, found, row.moments)
        margins = jnp.zeros((2, 0 if self.shape.classes else self.shape.outputs))
        if state.intervals is not None:
            margins = self.intervals.in_use(state.intervals, row.moments[1])
            if state.of_members is not None:
                margins = margins * state.of_members.factor(state.intervals)
        if self.shape.at_least is not None:
            mixed, low, high = bounded(mixed, margins, self.shape.at_least, jnp.maximum)
            margins = jnp.stack([mixed - low, high - mixed])
        waiting = Waiting(
            seen, state.num_labels, found.T, candidates.T, mixed, row.baselines, margins
        )
        return waiting, features, kept, after

    def _row(
        self, maps: Maps, learning: bool, state: MixtureState, row: Row
    ) -> tuple[MixtureState, Mixed]:
        slot, is_there = row.slot, row.slot < self.shape.slots
        is_late, learns_first = learning and self.ring.delay > 0, self.shape.horizon > 0
        of_members, state = state.of_members, self._of_member(state, row)
        carries = self._carries_of(state, state.carries, row)
        turn = jnp.where(row.is_new, 0, read(state.turns, slot))
        scored: dict[str, Any] = {}
        old = None
        if is_late and learns_first:
            state, carries, scored, old = self._learn_due(maps, state, row, turn, carries)
        new, features, before, after = self._forward(state, maps, row, carries)
        if state.members is not None:
            # Counted row by row: a sum over all members would cost the more the more there may be.
            more = after.has_label(self.shape) - before.has_label(self.shape)
            state = state._replace(members=state.members + jnp.where(is_there, more, 0.0))
        state = state._replace(pasts=write(state.pasts, slot, after))
        experts = _with_carries(state.experts, carries)
        if learning and not is_late:
            state, (carries, _), scored = self._learned(
                state, row, new, features, experts, is_there
            )
        else:
            pairs = zip(self.experts, experts, strict=True)
            carries = tuple(expert.move(now, features, is_there) for expert, now in pairs)
        if is_late:
            # What is written must depend on what was read of the ring before, or all is copied.
            kept = new if old is None else optax.tree.where(slot >= 0, new, old)
            rings = self.ring.write(state.rings, (slot,), turn, kept)
            turns = state.turns.at[slot].set(self.ring.next_turn(turn))
            state = state._replace(rings=rings, turns=turns)
        if is_late and not learns_first:
            state, carries, scored, _ = self._learn_due(maps, state, row, turn, carries)
        if of_members is not None:
            of_members = write(of_members, slot, state.of_members)
        state = state._replace(
            carries=self._put(state.carries, row, carries), of_members=of_members
        )
        return state, self._mixed(new)._replace(**scored)

    def _learn_due(
        self,
        maps: Maps,
        state: MixtureState,
        row: Row,
        turn: Int[Array, ""],
        ahead: tuple[Any, ...],
    ) -> tuple[MixtureState, tuple[Any, ...], dict[str, Any], Waiting]:
        """Learn the row whose label came; return the next carries, the scores, and what waited.

        Args:
            maps: random matrices.
            state: present state.
            row: the row.
            turn: turn of the ring of its stream.
            ahead: carries before the next row that is predicted.
        """
        old, each_step = once(lambda: self._waited(state.rings, row.slot, turn), row.slot)
        if each_step is not None:
            state = self._weighed(state, row, turn, each_step)
        features = expand(self.shape, maps, old.seen)
        late = self._carries_of(state, state.late_carries, row)
        experts = _with_carries(state.experts, late, ahead)
        has_row = (row.slot < self.shape.slots) & (turn >= self.ring.delay)
        state, (late, ahead), scored = self._learned(state, row, old, features, experts, has_row)
        late_carries = self._put(state.late_carries, row, late)
        return state._replace(late_carries=late_carries), ahead, scored, old

    def _new_carries(self, learned: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(self.experts, learned, strict=True)
        return tuple(expert.new_carry(one) for expert, one in pairs)

    def _carries_of(self, state: MixtureState, carries: Any, row: Row) -> tuple[Any, ...]:
        """Return the carries of the stream of a row."""
        if self.shape.members is None:
            return carries
        fresh = self._new_carries(state.experts)
        return optax.tree.where(row.is_new, fresh, read(carries, row.slot))

    def _put(self, carries: Any, row: Row, new: tuple[Any, ...]) -> Any:
        """Return carries with those of the stream of a row."""
        return new if self.shape.members is None else write(carries, row.slot, new)

    def _mixed(self, new: Waiting) -> Mixed:
        """Return the prediction of a new row, without scores."""
        if self.shape.classes:
            return Mixed(new.mixed, num_classes=new.seen.moments[0])
        return Mixed(new.mixed, margins=new.margins)

    def _learned(
        self,
        state: MixtureState,
        row: Row,
        old: Waiting,
        features: Any,
        experts: tuple[Any, ...],
        has_row: Array,
    ) -> tuple[MixtureState, tuple[tuple[Any, ...], tuple[Any, ...]], dict[str, Any]]:
        """Learn the label that came with a row; return the carries, and the scores.

        Args:
            state: present state.
            row: the row.
            old: predictions of the row whose label it is.
            features: features of that row.
            experts: states of the experts, with the carry before it.
            has_row: whether there is such a row.
        """
        known = row.known
        predicted = old.predicted.T
        if self.shape.classes:
            label = (
                jnp.arange(self.shape.outputs, dtype=jnp.int32) == row.label[0].astype(jnp.int32)
            ).astype(jnp.result_type(float))
            wrong = (jnp.argmax(predicted, axis=1) != jnp.argmax(label)).astype(label.dtype)
            # A class without room is nobody's prediction.
            wrong = jnp.where(known, wrong, 1.0)
            scores = score_class(row.label[0], old.mixed, old.seen.moments[0], old.baselines)
        else:
            mean, scale = old.seen.moments[0], old.seen.moments[1]
            label = jnp.where(known, (row.label - mean) / scale, 0.0)
            wrong = jnp.abs(predicted - label[None]).mean(axis=1) * scale
            scores = score_numbers(row.label, old.mixed, old.baselines, old.margins)
            arrived, ordinary = state.arrived, state.arrived.ordinary
            assert ordinary is not None and isinstance(state.weights, NumberWeights)
            ordinary = ordinary.judge(row.label, old.mixed, state.weights.unit.size, known)
            state = state._replace(arrived=arrived._replace(ordinary=ordinary))
            if (tracked := state.intervals) is not None:
                errors = row.label - old.mixed
                factor: Any = 1.0
                if (own := state.of_members) is not None:
                    factor, held = own.factor(tracked), scores[OF_NUMBERS.index("coverage")]
                    state = state._replace(of_members=own.learn(errors, held, known))
                errors_of = errors, old.margins, scale
                tracked = self.intervals.learn(tracked, *errors_of, known, factor)
            state = state._replace(intervals=tracked)
            # Before some labels were known there was no scale to learn in.
            known, came = known & (old.num_labels >= SETTLED), known
            counted = jnp.minimum(state.num_labels + came.astype(jnp.int32), SETTLED)
            state = state._replace(num_labels=counted.astype(jnp.int32))
        members = None if state.members is None else jnp.maximum(state.members, 1.0)
        learned, at = [], 0
        for expert, now in zip(self.experts, experts, strict=True):
            mine = predicted[at : at + len(expert.names)]
            lesson = Lesson(features, mine, label, known, has_row, members)
            learned.append(expert.learn(now, lesson))
            at += len(expert.names)
        parts = [one if isinstance(one, Remembered) else Remembered(one, None) for one in learned]
        carries = tuple(one.carry for one in parts), tuple(one.ahead for one in parts)
        state = state._replace(experts=tuple(one.learned for one in parts))
        if self.shape.first_delay is None:
            made = predicted, old.candidates.T
            weights = self.mixture.learn(state.weights, *made, label, known, old.seen.moments)
            state = state._replace(weights=weights)
        scores = jnp.where(row.is_scored, scores, jnp.nan)
        if state.sums is not None:
            row_sums = of_row(self.scores, scores, wrong)
            state = state._replace(sums=state.sums + row_sums[None])
        if state.tallies is not None:
            answer = old.mixed, old.seen.moments[0]
            after = tally(state.tallies, row.label[0], *answer, row.watched, self.shape.alarms)
            tallies = optax.tree.where(jnp.isnan(scores[0]), state.tallies, after)
            state = state._replace(tallies=tallies)
        return state, carries, {"scores": scores, "errors": wrong}

    def _waited(
        self, rings: Any, slot: Int[Array, ""], turn: Int[Array, ""]
    ) -> tuple[Waiting, tuple[Array, ...] | None]:
        """Return the oldest row that waits, and what each step ahead needs of the row it was for.

        The latter is None if all labels of a row come together.
        """
        oldest = self.ring.oldest(rings, (slot,), turn)
        if self.shape.first_delay is None:
            return oldest, None
        steps = jnp.arange(self.shape.outputs, dtype=jnp.int32)
        places = jnp.mod(turn - jnp.asarray(self.shape.delays, jnp.int32), self.ring.places)
        whole = rings.seen.moments, rings.num_labels
        made = rings.predicted, rings.candidates
        found = (
            *(leaf[slot, places] for leaf in whole),
            *(leaf[slot, places, steps] for leaf in made),
        )
        return oldest, found

    def _weighed(
        self, state: MixtureState, row: Row, turn: Array, waited: tuple[Array, ...]
    ) -> MixtureState:
        """Return the state after a row's number, another row's label at each step ahead."""
        moments, num_labels, predicted, candidates = waited
        known = jnp.isfinite(row.came) & (row.slot < self.shape.slots)
        known = known & (jnp.asarray(self.shape.delays, jnp.int32) <= turn)
        known = known & (num_labels >= SETTLED)
        moments = jnp.where(known[:, None], moments, 1.0)
        label = jnp.where(known, (row.came - moments[:, 0]) / moments[:, 1], 0.0)
        made = predicted.T, candidates.T
        weights = self.mixture.learn(state.weights, *made, label, known, moments)
        return state._replace(weights=weights)

    def _check_memory(self) -> None:
        state = self.like
        each_stream = [state.pasts, state.carries, state.late_carries, state.rings, state.turns]
        each_stream += [state.arrived.streams, state.of_members]
        size, of_members = num_bytes(state), num_bytes(each_stream)
        if size > MAX_BYTES:
            # One slot more than there are members, for missing rows.
            each = of_members / (self.shape.slots + 1)
            room = int((MAX_BYTES - size + of_members) / each) - 1
            there = f"with this delay there is room for {max(room, 0)} members"
            if self.network is not None:  # the default rule depends on the number of members
                there += f' under --rule "{self.network.rule}"'
            if self.shape.members is None and self.ring.delay:
                # Nearly all is what waits, as long as the delay.
                there = f"the delay can be {self.shape.delay * MAX_BYTES // size} rows"
            raise ValueError(
                f"members={self.shape.slots}, delay={self.shape.delay}: a mixture of experts would "
                f"take {size / 2**20:.0f} MiB, but at most {MAX_BYTES / 2**20:.0f} MiB are "
                f"allowed; {there}; use fewer members, a shorter delay or a smaller model"
            )


def network_in(state: MixtureState) -> NetworkState | None:
    """Return what is learned of the recurrent network; None without one."""
    return next((one for one in state.experts if isinstance(one, NetworkState)), None)


def with_network(state: MixtureState, **fields: Any) -> MixtureState:
    """Return a state with other fields of `NetworkState`, if it has a network."""
    parts = state.experts
    found = (one._replace(**fields) if isinstance(one, NetworkState) else one for one in parts)
    return state._replace(experts=tuple(found))


def num_bytes(tree: Any) -> int:
    """Return the memory of the arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _with_carries(
    learned: tuple[Any, ...], carries: tuple[Any, ...], ahead: tuple[Any, ...] | None = None
) -> tuple[Any, ...]:
    """Return the state of each expert as it takes it."""
    later = (None,) * len(carries) if ahead is None else ahead
    return tuple(
        one if carry is None else Remembered(one, carry, next_one)
        for one, carry, next_one in zip(learned, carries, later, strict=True)
    )


def _each(function: Any, state: Any, rows: Any) -> tuple[Any, Any]:
    """Return the state behind some rows and each row's results; no loop for a single one."""
    if len(jax.tree.leaves(rows)[0]) > 1:
        return lax.scan(function, state, rows)
    state, one = function(state, jax.tree.map(lambda leaf: leaf[0], rows))
    return state, jax.tree.map(lambda leaf: leaf[None], one)


@lru_cache(maxsize=16)
def mixture(shape: Shape, experts: tuple[str, ...] = EXPERTS) -> Mixture:
    """Return a shape's mixture without a network; equal shapes share one and its programs."""
    return Mixture(shape, experts)
