"""Rows and labels as they arrive: units of columns and target, last labels, late labels.

A number becomes its distance from the running mean in running standard deviations, clipped, and
after it stands whether it is missing. A row's own label comes after its prediction; with a
horizon, its number is known before the steps that follow it are predicted.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from foretrace._experts.moments import Moments, new_moments
from foretrace._experts.of_members import in_slots, read, write
from foretrace._experts.ordinary import BELIEVED, Ordinary, new_ordinary
from foretrace._experts.rows import RawRow
from foretrace._experts.shape import Shape
from foretrace._types import Array, Bool, Float, Int


class Row(NamedTuple):
    """A row and its label, as experts and network read them.

    Args:
        last: last label that is believed when the row is predicted: a number, NaN if none is
            known, or a class, -1 likewise. As if none were known if labels are no features.
        moments: mean and standard deviation of the numbers known then; of classes, their number,
            and 1.
        ordinary: mean and standard deviation of those that are no outliers; 0 for classes.
        baselines: last known number, or 0, and the mean; last and most frequent class.
        known: whether a label came with the row that can be learned.
        is_scored: whether a label came with it at all: it may be of a class without room.
        slot: stream of the row; the number of slots for a row that is missing.
        is_new: whether the stream starts anew with this row.
        is_first: whether it is the stream's first one.
        came: number that came with the row, NaN if none did: the label of one step ahead of each
            row before it.
        label: label that came with the row, of the row `delay` rows before: numbers, or the index
            of a class.
        raw: numbers of the row as they are, the mean in place of a missing one.
        x: inputs, then the last known label's inputs if there is a network.
        watched: index of each class with an alarm; -1 before its first label.
    """

    last: Float[Array, ""]
    moments: Float[Array, "2"]
    ordinary: Float[Array, "2"]
    baselines: Float[Array, "2"]
    known: Bool[Array, ""]
    is_scored: Bool[Array, ""]
    slot: Int[Array, ""]
    is_new: Bool[Array, ""]
    is_first: Bool[Array, ""]
    came: Float[Array, ""]
    label: Float[Array, "L"]
    raw: Float[Array, "N"]
    x: Float[Array, "I"]
    watched: Float[Array, "K"]


class Classes(NamedTuple):
    """Statistics of the classes.

    Args:
        num_classes: number of classes seen so far.
        frequency: number of labels of each.
        majority: index of the most frequent class; -1 before the first.
    """

    num_classes: Float[Array, ""]
    frequency: Float[Array, "O"]
    majority: Float[Array, ""]


class Stream(NamedTuple):
    """Statistics of the labels of one stream.

    Args:
        last: last known label; NaN before the first number, -1 before the first class.
        believed: last known number that is a feature; NaN before it, and for classes.
        doubts: number of far labels since then.
        recent: last numbers, the newest last; NaN where one is missing. Empty for classes.
        num_rows: number of rows so far, counted up to the number of those that wait for a label.
    """

    last: Float[Array, ""]
    believed: Float[Array, ""]
    doubts: Float[Array, ""]
    recent: Float[Array, "S"]
    num_rows: Int[Array, ""]


class Arrived(NamedTuple):
    """State of all streams, without the experts' own.

    Args:
        columns: moments of the numbers at their places in a row.
        target: moments of the numbers, or what is known of the classes.
        ordinary: what is known of the numbers that are not far out; None for classes.
        streams: labels of each stream; the last slot belongs to rows that are missing.
        outliers: number of outliers among the columns, and among the labels.
    """

    columns: Moments
    target: Moments | Classes
    ordinary: Ordinary | None
    streams: Stream
    outliers: Float[Array, "2"]


class Outliers(NamedTuple):
    """Which columns of a row, and whether its label, are outliers."""

    columns: Bool[Array, "I"]
    label: Bool[Array, ""]


class Arrivals:
    """Turns raw rows into rows for the experts.

    Args:
        shape: sizes of the streams.
    """

    def __init__(self, shape: Shape):
        self.shape = shape

    def init(self) -> Arrived:
        """Return the state before the first row."""
        shape, zero = self.shape, jnp.zeros(())
        if shape.classes:
            target: Moments | Classes = Classes(zero, jnp.zeros(shape.outputs), zero - 1)
        else:
            target = new_moments(1)
        streams = in_slots(self._new_stream(), shape.slots + 1)
        ordinary = None if shape.classes else new_ordinary(one_stream=shape.slots == 1)
        return Arrived(new_moments(shape.inputs), target, ordinary, streams, jnp.zeros(2))

    def _new_stream(self) -> Stream:
        none, classes = jnp.asarray(jnp.nan), self.shape.classes
        return Stream(
            jnp.asarray(-1.0) if classes else none,
            none,
            jnp.zeros(()),
            jnp.full(0 if classes else self.shape.outputs, jnp.nan),
            jnp.zeros((), jnp.int32),
        )

    def next(
        self, arrived: Arrived, raw: RawRow, *, learning: bool = True
    ) -> tuple[Row, Arrived, Outliers]:
        """Return a row, the state after it, and which of its numbers are outliers.

        Args:
            arrived: what is known before it.
            raw: the row.
            learning: whether units move on; if not, the last known label alone does.
        """
        slot = raw.slot.astype(jnp.int32)
        fresh, is_there = raw.is_new > 0, raw.slot < self.shape.slots
        kept = read(arrived.streams, slot)
        stream = optax.tree.where(fresh, self._new_stream(), kept)
        inputs, numbers, columns, of_columns = self._encoded(arrived.columns, raw)
        # Before its time, there is nothing to learn: who calls a program in C might give a label.
        is_due = stream.num_rows >= self.shape.delay - self.shape.horizon
        y = jnp.where(is_due | jnp.asarray(not learning), raw.y, jnp.nan)
        if isinstance(arrived.target, Classes):
            row, target, after = self._classes(arrived.target, stream, inputs, y)
            learned, of_label = arrived._replace(target=target), jnp.zeros((), bool)
        else:
            row, learned, after, of_label = self._numbers(arrived, stream, inputs, y, learning)
        learned = learned._replace(columns=columns)
        waiting = jnp.minimum(stream.num_rows + 1, self.shape.delay).astype(jnp.int32)
        after = after._replace(num_rows=waiting)
        found = Outliers(of_columns, of_label)
        starts = {"is_new": fresh, "is_first": raw.is_new > 1, "watched": raw.watched}
        row = row._replace(slot=slot, raw=numbers, known=row.known & is_there, **starts)
        if not learning:
            after = stream._replace(last=after.last, believed=after.believed, doubts=after.doubts)
            learned = arrived
            row = row._replace(known=jnp.zeros((), bool), is_scored=jnp.zeros((), bool))
        count = jnp.stack([of_columns.astype(float).sum(), of_label.astype(float)])
        behind = learned._replace(
            streams=write(arrived.streams, slot, after),
            outliers=arrived.outliers + (count if learning else 0),
        )
        return row, behind, found

    def _encoded(self, columns: Moments, raw: RawRow) -> tuple[Array, Array, Moments, Array]:
        given = jnp.asarray(raw.x)
        is_number = jnp.asarray(raw.is_number) > 0
        is_there = is_number & jnp.isfinite(given)
        x = jnp.where(is_there, given, 0.0)
        outlier = is_there & (columns.within(x) != x)
        known = is_there & ~outlier if self.shape.masks else is_there
        counted, columns = columns.learn(x, known)
        scores = jnp.where(known, columns.score(counted), 0.0)
        missing = jnp.roll((is_number & ~known).astype(x.dtype), 1)
        inputs = jnp.where(is_number, scores, jnp.nan_to_num(given) + missing)
        places = np.asarray(self.shape.lagged[: self.shape.num_raw], int)
        numbers = jnp.where(known, x, columns.all.mean)[places]
        return inputs, numbers, columns, outlier

    def _numbers(
        self, arrived: Arrived, stream: Stream, inputs: Array, y: Array, learning: bool
    ) -> tuple[Row, Arrived, Stream, Array]:
        moments: Any = arrived.target
        before: Any = arrived.ordinary
        shape = self.shape
        is_there = jnp.isfinite(y)
        y = jnp.where(is_there, y, 0.0)
        outlier = is_there & (moments.within(y[None])[0] != y)
        known = is_there & ~outlier if shape.masks else is_there
        counts = known & jnp.asarray(learning)
        _, learned = moments.learn(y[None], counts[None])
        ordinary, doubts = before.learn(y, counts), stream.doubts
        learned = ordinary.cleaned(learned)
        came = jnp.where(known, y, jnp.nan)
        is_far = ordinary.is_far(y)
        doubts = jnp.where(known, jnp.where(is_far, doubts + 1, 0.0), doubts)
        is_believed = known & (~is_far | (doubts >= BELIEVED))
        after = stream._replace(
            last=jnp.where(known, y, stream.last),
            believed=jnp.where(is_believed, y, stream.believed),
            doubts=doubts,
            recent=jnp.concatenate([stream.recent[1:], came[None]]),
        )
        # With a horizon a row's own number is known before the steps after it are predicted.
        now, units, usual = (
            (after, learned, ordinary) if shape.horizon else (stream, moments, before)
        )
        mean, scale = units.all.mean[0], units.scale[0]
        has_last, believed = jnp.isfinite(now.last), jnp.isfinite(now.believed)
        complete = (stream.num_rows >= shape.delay) & jnp.isfinite(after.recent).all()
        score = jnp.where(believed, units.score(now.believed)[0], 0.0)
        previous = jnp.stack([score, jnp.where(believed, 0.0, 1.0)])
        row = self._row(
            last=now.believed,
            moments=jnp.stack([mean, scale]),
            ordinary=usual.units,
            baselines=jnp.stack([jnp.where(has_last, now.last, 0.0), mean]),
            known=complete,
            is_scored=complete,
            came=came if shape.horizon else jnp.asarray(jnp.nan),
            label=after.recent,
            inputs=inputs,
            previous=previous,
        )
        return row, arrived._replace(target=learned, ordinary=ordinary), after, outlier

    def _classes(
        self, classes: Classes, stream: Stream, inputs: Array, y: Array
    ) -> tuple[Row, Classes, Stream]:
        known, indices = y >= 0, jnp.arange(self.shape.outputs, dtype=y.dtype)
        label = jnp.where(known, y, 0.0)
        frequency = classes.frequency + jnp.where(known & (indices == label), 1.0, 0.0)
        at = label.astype(jnp.int32)
        most = jnp.where(classes.majority >= 0, frequency[classes.majority.astype(jnp.int32)], -1.0)
        leads = known & (frequency[at] > most)
        learned = Classes(
            jnp.where(known, jnp.maximum(classes.num_classes, y + 1), classes.num_classes),
            frequency,
            jnp.where(leads, label, classes.majority),
        )
        row = self._row(
            last=stream.last,
            moments=jnp.stack([classes.num_classes, jnp.ones(())]),
            ordinary=jnp.zeros(2),
            baselines=jnp.stack([stream.last, classes.majority]),
            known=known,
            is_scored=jnp.isfinite(y),
            came=jnp.zeros(()),
            label=jnp.where(jnp.isfinite(y), y, 0.0)[None],
            inputs=inputs,
            previous=(indices == stream.last).astype(inputs.dtype),
        )
        return row, learned, stream._replace(last=jnp.where(known, y, stream.last))

    def _row(self, *, last: Array, inputs: Array, previous: Array, **parts: Any) -> Row:
        missing = -1.0 if self.shape.classes else jnp.nan
        with_last = self.shape.has_network and self.shape.previous
        return Row(
            last=last if self.shape.previous else jnp.asarray(missing),
            slot=jnp.zeros((), jnp.int32),
            is_new=jnp.zeros((), bool),
            is_first=jnp.zeros((), bool),
            raw=jnp.zeros(0),
            watched=jnp.zeros(0),
            x=jnp.concatenate([inputs, previous]) if with_last else inputs,
            **parts,
        )
