"""Rows and labels as they arrive: units of columns and target, last labels, late labels.

A number becomes its distance from the running mean in running standard deviations, clipped,
followed by a flag that says whether it is missing. A row's own label arrives after the prediction.
With a horizon, the number of a row is known before the following steps are predicted.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from foretrace._types import Array, Bool, Float, Int
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.moments import Moments, new_moments
from foretrace.stream.model.of_members import in_slots
from foretrace.stream.model.ordinary import Ordinary, new_ordinary
from foretrace.stream.read.row import RawRow


class Row(NamedTuple):
    """A row in the form that the experts and the network read.

    Args:
        moments: mean and standard deviation of the labels that were known when the row arrived; for
            classes, the number of classes, and 1.
        ordinary: mean and standard deviation of those labels that are not outliers; 0 for classes.
        baselines: for numbers, the last known number (or 0) and the mean, NaN if no label is known;
            for classes, the last and the most frequent class.
        raw: unscaled numbers of the row, with the mean in place of a missing number.
        x: inputs of the row. If there is a network, the inputs of the last known label follow.
        outliers: which inputs before those of words are outliers.
    """

    moments: Float[Array, "2"]
    ordinary: Float[Array, "2"]
    baselines: Float[Array, "2"]
    raw: Float[Array, "N"]
    x: Float[Array, "J"]
    outliers: Bool[Array, "R"]


class Told(NamedTuple):
    """A label that has arrived.

    Args:
        label: numbers, or the index of a class. The index is -1 if it exceeds the maximum number of
            classes.
        known: whether the label can be learned.
        is_scored: whether there was a label. Its class may exceed the maximum number of classes.
        feature: the label that is remembered for the row. If the label is missing or not trusted,
            this is the label before it.
        is_new: whether the remembered label is the label itself.
        came: number that arrived, NaN if none did. It is the label of a step ahead for each of the
            rows before.
        is_outlier: whether the label is an outlier.
        is_sentinel: whether the label marks a missing value.
    """

    label: Float[Array, "L"]
    known: Bool[Array, ""]
    is_scored: Bool[Array, ""]
    feature: Float[Array, ""]
    is_new: Bool[Array, ""]
    came: Float[Array, ""]
    is_outlier: Bool[Array, ""]
    is_sentinel: Bool[Array, ""]


class Classes(NamedTuple):
    """Statistics of the classes.

    Args:
        num_classes: number of classes seen so far.
        frequency: number of labels of each class.
        majority: index of the most frequent class; -1 before the first.
    """

    num_classes: Float[Array, ""]
    frequency: Float[Array, "O"]
    majority: Float[Array, ""]


class Stream(NamedTuple):
    """State of the rows and labels of one stream.

    Args:
        last: label of the latest row whose label is known; NaN before the first number, -1 before
            the first class.
        believed: last known number that is a feature; NaN before it, and for classes.
        inside: last known number that is not far from the others; NaN before it, and for classes.
        doubts: number of consecutive far labels.
        recent: last numbers, the newest last; NaN if a number is missing. Empty for classes.
        own: mean and number of the numbers of a member; zeros for a single stream, and for classes.
        num_rows: number of rows that were taken, which is the number of the next row.
        begun: number of the row with which the stream began anew.
        latest: number of the latest row whose label has arrived, or will never arrive.
        is_own: whether each remembered label belongs to its own row, and not to a row before. Empty
            if labels arrive in the order of their rows.
    """

    last: Float[Array, ""]
    believed: Float[Array, ""]
    inside: Float[Array, ""]
    doubts: Float[Array, ""]
    recent: Float[Array, "S"]
    own: Float[Array, "2"]
    num_rows: Int[Array, ""]
    begun: Int[Array, ""]
    latest: Int[Array, ""]
    is_own: Bool[Array, "K"]


class Arrived(NamedTuple):
    """State of all streams, without the states of the experts.

    Args:
        columns: moments of the numbers, at their places in a row.
        target: moments of the numbers, or statistics of the classes.
        ordinary: statistics of the numbers that are not far from the others; None for classes.
        streams: state of each stream. The last slot is for missing rows.
        outliers: number of outliers among the columns, of outliers among the labels, and of
            sentinels.
    """

    columns: Moments
    target: Moments | Classes
    ordinary: Ordinary | None
    streams: Stream
    outliers: Float[Array, "3"]


class Outliers(NamedTuple):
    """Whether each column of a row, and whether its label, is an outlier."""

    columns: Bool[Array, "I"]
    label: Bool[Array, ""]


class Arrivals:
    """Conversion of raw rows and labels into the form that experts read.

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
        return Arrived(
            columns=new_moments(shape.row_inputs),
            target=target,
            ordinary=ordinary,
            streams=streams,
            outliers=jnp.zeros(3),
        )

    def _new_stream(self) -> Stream:
        none, classes = jnp.asarray(jnp.nan), self.shape.classes
        zero = jnp.zeros((), jnp.int64)
        return Stream(
            last=jnp.asarray(-1.0) if classes else none,
            believed=none,
            inside=none,
            doubts=jnp.zeros(()),
            recent=jnp.full(0 if classes else self.shape.outputs, jnp.nan),
            own=jnp.zeros(2),
            num_rows=zero,
            begun=zero,
            latest=zero - 1,
            is_own=jnp.zeros(self.shape.num_labels if self.shape.waiting else 0, bool),
        )

    def begun(self, stream: Stream, is_new: Bool[Array, ""]) -> Stream:
        """Return the stream, reset if it starts anew with the next row; row numbers continue."""
        now = stream.num_rows
        fresh = self._new_stream()._replace(num_rows=now, begun=now, latest=now - 1)
        return optax.tree.where(is_new, fresh, stream)

    def take(
        self, arrived: Arrived, raw: RawRow, is_there: Bool[Array, ""], *, learning: bool = True
    ) -> tuple[Row, Arrived]:
        """Return a row, and the state after the row.

        Args:
            arrived: state before the row, with only the stream of the row.
            raw: the row.
            is_there: whether there is a row.
            learning: whether the units are updated.
        """
        stream, target, shape = arrived.streams, arrived.target, self.shape
        (inputs, numbers, outliers), columns = self._encoded(arrived.columns, raw)
        if isinstance(target, Classes):
            moments, ordinary = jnp.stack([target.num_classes, jnp.ones(())]), jnp.zeros(2)
            baselines = jnp.stack([stream.last, target.majority])
            indices = jnp.arange(shape.outputs, dtype=stream.last.dtype)
            previous = (indices == stream.last).astype(inputs.dtype)
        else:
            assert arrived.ordinary is not None
            has_last, believed = jnp.isfinite(stream.last), jnp.isfinite(stream.believed)
            moments = jnp.stack([target.all.mean[0], target.scale[0]])
            ordinary = arrived.ordinary.units
            mean = jnp.where(target.all.num_samples[0] > 0, moments[0], jnp.nan)
            mean = jnp.where(stream.own[1] > 0, stream.own[0], mean)
            baselines = jnp.stack([jnp.where(has_last, stream.last, 0.0), mean])
            score = jnp.where(believed, target.score(stream.believed)[0], 0.0)
            previous = jnp.stack([score, jnp.where(believed, 0.0, 1.0)])
        with_last = shape.has_network and shape.previous
        x = jnp.concatenate([inputs, previous]) if with_last else inputs
        row = Row(
            moments=moments,
            ordinary=ordinary,
            baselines=baselines,
            raw=numbers,
            x=x,
            outliers=outliers,
        )
        after = stream._replace(num_rows=stream.num_rows + is_there.astype(jnp.int64))
        arrived = arrived._replace(streams=after)
        if learning:
            count = jnp.zeros(3).at[0].set(outliers.astype(float).sum())
            arrived = arrived._replace(columns=columns, outliers=arrived.outliers + count)
        return row, arrived

    def label(
        self,
        arrived: Arrived,
        y: Float[Array, ""],
        number: Int[Array, ""] | None = None,
        *,
        learning: bool = True,
    ) -> tuple[Told, Arrived]:
        """Return a label, and the state after the label.

        Args:
            arrived: state before the label, with only the stream of the label's row.
            y: a number, or the index of a class, which is -1 if it exceeds the maximum number of
                classes. NaN if there is no label.
            number: number of the row in its stream; None if labels arrive in order.
            learning: whether units are updated. If not, only the last known label changes.
        """
        stream = arrived.streams
        newer = jnp.ones((), jnp.int64) if number is None else number - stream.latest
        if isinstance(arrived.target, Classes):
            told, learned, after = self._class(arrived.target, stream, y)
            found = arrived._replace(target=learned)
        else:
            told, found, after = self._number(arrived, stream, y, newer == 1, learning)
        after = optax.tree.where(newer > 0, after, stream)
        if not learning:
            told = told._replace(known=jnp.zeros((), bool), is_scored=jnp.zeros((), bool))
            return told, arrived._replace(streams=after)
        of_label = jnp.stack([told.is_outlier, told.is_sentinel]).astype(float)
        outliers = arrived.outliers.at[1:].add(of_label)
        return told, found._replace(streams=after, outliers=outliers)

    def _encoded(self, columns: Moments, raw: RawRow) -> tuple[tuple[Array, Array, Array], Moments]:
        """Return inputs, unscaled numbers and outliers of a row; and the moments after the row."""
        given, words = jnp.split(jnp.asarray(raw.x), [self.shape.row_inputs])
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
        return (jnp.concatenate([inputs, words]), numbers, outlier), columns

    def _number(
        self, arrived: Arrived, stream: Stream, y: Array, is_next: Array, learning: bool
    ) -> tuple[Told, Arrived, Stream]:
        moments: Any = arrived.target
        before: Any = arrived.ordinary
        is_there = jnp.isfinite(y)
        y = jnp.where(is_there, y, 0.0)
        outlier = is_there & (moments.within(y[None])[0] != y)
        is_outside, is_far = before.is_outside(y), before.is_far(y)
        repeats = is_there & before.is_sentinel(y) & np.array(self.shape.sentinels)
        many = stream.doubts + 1 >= TUNED.believed
        is_sentinel = repeats & ~many
        known = is_there & ~is_sentinel
        if self.shape.masks:
            known &= ~outlier
        counts = known & jnp.asarray(learning)
        _, learned = moments.learn(y[None], counts[None])
        marked = before.mark(y, repeats & jnp.asarray(learning), many)
        ordinary = marked.learn(y, counts)
        learned = ordinary.cleaned(learned)
        came = jnp.where(known, y, jnp.nan)
        doubts = jnp.where(is_far | repeats, stream.doubts + 1, 0.0)
        # If labels of rows are missing, a broken label would represent all of them. Therefore the
        # first label that is far from the others waits for a second one.
        is_alone = is_outside & ~is_next & (stream.last == stream.inside)
        is_believed = known & (~(is_far | is_alone) | many)
        # The first of several sentinels was treated as an ordinary label.
        last, believed = (
            jnp.where(is_sentinel & (one == y), stream.inside, one)
            for one in (stream.last, stream.believed)
        )
        own = stream.own
        if self.shape.slots > 1:
            (mean, count), value = own, moments.within(y[None])[0]
            more = jnp.stack([mean + (value - mean) / (count + 1), count + 1])
            own = jnp.where(known, more, own)
        after = stream._replace(
            own=own,
            last=jnp.where(known, y, last),
            believed=jnp.where(is_believed, y, believed),
            inside=jnp.where(known & ~is_outside, y, stream.inside),
            doubts=jnp.where(known | is_sentinel, doubts, stream.doubts),
            recent=jnp.concatenate([stream.recent[1:], came[None]]),
        )
        complete = jnp.isfinite(after.recent).all()
        came = came if self.shape.horizon else jnp.asarray(jnp.nan)
        told = Told(
            label=after.recent,
            known=complete,
            is_scored=complete,
            feature=after.believed,
            is_new=is_believed,
            came=came,
            is_outlier=outlier,
            is_sentinel=is_sentinel,
        )
        return told, arrived._replace(target=learned, ordinary=ordinary), after

    def _class(self, classes: Classes, stream: Stream, y: Array) -> tuple[Told, Classes, Stream]:
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
        after = stream._replace(last=jnp.where(known, y, stream.last))
        index, is_there = jnp.where(jnp.isfinite(y), y, 0.0)[None], jnp.isfinite(y)
        told = Told(
            label=index,
            known=known,
            is_scored=is_there,
            feature=after.last,
            is_new=known,
            came=jnp.zeros(()),
            is_outlier=jnp.zeros((), bool),
            is_sentinel=jnp.zeros((), bool),
        )
        return told, learned, after
