"""Rows of numbers and labels as a traced program, like `Encoder` and `DelayedLabels` on the host.

A row is an array of raw numbers, NaN where one is missing. A label that comes with a row is that of
the row `delay` rows before: a number, NaN where it is missing, or the index of a class, negative
where it is missing.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from foretrace._experts.changes import FAR
from foretrace._experts.rows import Row
from foretrace._experts.shape import Shape
from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Outliers
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.running import MEMORY, NARROW, NEW_LEVEL, NEW_SCALE, SETTLED, Moments
from foretrace._rows.target import ClassTarget, NumberContext
from foretrace._rows.values import MAX_ABS_VALUE
from foretrace._types import Array, Bool, Float, Int


class Average(NamedTuple):
    """Running mean and variance of some numbers, as `Welford`."""

    num_samples: Float[Array, "*N"]
    mean: Float[Array, "*N"]
    variance: Float[Array, "*N"]

    def update(self, x: Float[Array, "*N"]) -> "Average":
        """Return the averages with one more number each."""
        count = jnp.minimum(self.num_samples + 1, MEMORY)
        mean = self.mean + (x - self.mean) / count
        found = (x - self.mean) * (x - mean)
        return Average(count, mean, self.variance + (found - self.variance) / count)

    def where(self, chosen: Bool[Array, "*N"], other: "Average") -> "Average":
        """Return these averages where they are chosen, others elsewhere."""
        return Average(*(jnp.where(chosen, a, b) for a, b in zip(self, other, strict=True)))


class TracedMoments(NamedTuple):
    """Running mean and variance of some numbers, as `Moments`.

    Args:
        all: mean and variance.
        run: those of the present run.
        excess: number of outliers in it, less the number of others.
    """

    all: Average
    run: Average
    excess: Float[Array, "*N"]

    @property
    def scale(self) -> Float[Array, "*N"]:
        """The standard deviation; 1 while all numbers were the same."""
        return jnp.where(self.all.variance > 0, jnp.sqrt(self.all.variance), 1.0)

    def score(self, x: Float[Array, "*N"], bound: float) -> Float[Array, "*N"]:
        """Return a number's distance from the mean in standard deviations, clipped at the bound."""
        return jnp.clip((x - self.all.mean) / self.scale, -bound, bound)

    def within(self, x: Float[Array, "*N"], bound: float) -> Float[Array, "*N"]:
        """Return a number, or the bound if it lies beyond."""
        z = (x - self.all.mean) / self.scale
        beyond = (jnp.abs(z) > bound) & (self.all.num_samples >= SETTLED) & (self.all.variance > 0)
        return jnp.where(beyond, self.all.mean + jnp.sign(z) * bound * self.scale, x)

    def learn(
        self, x: Float[Array, "*N"], bound: float, known: Bool[Array, "*N"]
    ) -> tuple[Float[Array, "*N"], "TracedMoments"]:
        """Return a number as counted, and the moments behind it, unchanged if it is not known."""
        inside, none = self.within(x, bound), jnp.zeros_like(x)
        excess = jnp.where(inside != x, self.excess + 1, jnp.maximum(self.excess - 1, 0))
        is_far = (excess == 0) & (jnp.abs(x - self.run.mean) > NARROW * self.scale)
        begins = is_far | ((excess > 0) != (self.excess > 0))
        run = Average(none, none, none).where(begins, self.run).update(x)
        is_new_scale = (excess == 0) & (run.num_samples >= NEW_SCALE) & (run.variance > 0)
        replaced = (excess >= NEW_LEVEL) | is_new_scale
        after = TracedMoments(
            run.where(replaced, self.all.update(inside)),
            Average(none, none, none).where(replaced, run),
            jnp.where(replaced, none, excess),
        )
        kept = TracedMoments(
            after.all.where(known, self.all),
            after.run.where(known, self.run),
            jnp.where(known, after.excess, self.excess),
        )
        return jnp.where(replaced, x, inside), kept


def traced_moments(moments: list[Moments]) -> TracedMoments:
    """Return moments of the host, one behind another."""
    parts = [[one.count, one.mean, one.variance] for one in moments]
    runs = [[one.run.count, one.run.mean, one.run.variance] for one in moments]
    arrays = (np.array(each, float).reshape(len(moments), 3).T for each in (parts, runs))
    first, second = (Average(*map(jnp.asarray, array)) for array in arrays)
    return TracedMoments(first, second, jnp.asarray([float(one.excess) for one in moments]))


class NumbersSeen(NamedTuple):
    """What is known of a target of numbers.

    Args:
        moments: its mean and scale, (1,).
        last: last known number; NaN before the first.
        recent: last labels, the newest last; NaN where one is missing.
        contexts: last number, mean and scale when each of the last rows was predicted, the newest
            first; None if the network does not need them.
    """

    moments: TracedMoments
    last: Float[Array, ""]
    recent: Float[Array, "S"]
    contexts: Float[Array, "D 3"] | None


class ClassesSeen(NamedTuple):
    """What is known of a target of classes.

    Args:
        num_classes: number of classes seen so far.
        last: index of the last known class; -1 before the first.
    """

    num_classes: Int[Array, ""]
    last: Int[Array, ""]


class RowsSeen(NamedTuple):
    """What is known of a stream beside what its model has learned.

    Args:
        columns: moments of the columns.
        target: what is known of the target.
        num_rows: number of rows so far, counted up to the number of those that wait for a label.
    """

    columns: TracedMoments
    target: NumbersSeen | ClassesSeen
    num_rows: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class TracedRows:
    """The rows of a stream of numbers, traced.

    Args:
        shape: shape of the stream.
        places: place of each column of numbers in the inputs.
        delay: number of rows after which a label comes.
        horizon: number of steps ahead; 0 if a row's own label is predicted.
        bound: number of standard deviations beyond which a number is an outlier.
        outliers: what happens to one: "clip" or "mask".
    """

    shape: Shape
    places: tuple[int, ...]
    delay: int
    horizon: int
    bound: float
    outliers: Outliers

    def init(self, labels: DelayedLabels) -> RowsSeen:
        """Return what the host knows of a stream."""
        columns = traced_moments([labels.encoder.numbers[name] for name in labels.encoder.numbers])
        waiting, target = labels.delay + labels.horizon, labels.target
        rows = jnp.asarray(min(labels.num_labels + len(labels.pending_labels), waiting), jnp.int32)
        if isinstance(target, ClassTarget):
            last = -1 if labels.last is None else labels.last
            known = ClassesSeen(
                jnp.asarray(len(target.classes), jnp.int32), jnp.asarray(last, jnp.int32)
            )
            return RowsSeen(columns, known, rows)
        assert isinstance(target, NumberTarget)
        steps = max(self.horizon, 1)
        recent = [*[None] * steps, *labels.recent][-steps:]
        contexts = np.ones((self._kept_contexts, 3))
        newest = [*labels.contexts][::-1][: self._kept_contexts]
        for place, context in enumerate(newest):
            assert isinstance(context, NumberContext)
            contexts[place] = _number(context.last), context.mean, context.deviation
        numbers = NumbersSeen(
            traced_moments([target.moments]),
            jnp.asarray(_number(labels.last)),
            jnp.asarray([_number(one) for one in recent]),
            jnp.asarray(contexts) if len(contexts) else None,
        )
        return RowsSeen(columns, numbers, rows)

    @property
    def _kept_contexts(self) -> int:
        """Number of earlier rows whose knowledge at their prediction the network needs."""
        return self.delay + self.horizon if self.shape.has_network else 0

    def next(self, seen: RowsSeen, x: Float[Array, "N"], y: Array) -> tuple[Row, RowsSeen]:
        """Return a row and the label with it for the mixture, and the knowledge behind it."""
        inputs, raw, columns = self._encoded(seen.columns, x)
        has_label = seen.num_rows >= self.delay
        is_complete = seen.num_rows >= self.delay + self.horizon
        known: NumbersSeen | ClassesSeen = seen.target
        if isinstance(known, ClassesSeen):
            row, known = self._classes(known, inputs, y, has_label)
        else:
            row, known = self._numbers(known, inputs, y, has_label, is_complete)
        count = jnp.minimum(seen.num_rows + 1, self.delay + self.horizon).astype(jnp.int32)
        return row._replace(raw=raw), RowsSeen(columns, known, count)

    def _encoded(
        self, columns: TracedMoments, x: Float[Array, "N"]
    ) -> tuple[Float[Array, "I"], Float[Array, "N"], TracedMoments]:
        known = jnp.isfinite(x) & (jnp.abs(x) < MAX_ABS_VALUE)
        x = jnp.where(known, x, 0.0)
        if self.outliers == "mask":
            known = known & (columns.within(x, self.bound) == x)
        counted, columns = columns.learn(x, self.bound, known)
        values = jnp.where(known, columns.score(counted, self.bound), 0.0)
        empty, at = jnp.zeros(self.shape.inputs), np.asarray(self.places, int)
        inputs = empty.at[at].set(values).at[at + 1].set(jnp.where(known, 0.0, 1.0))
        raw = empty.at[at].set(jnp.where(known, x, columns.all.mean))
        return inputs, raw[np.asarray(self.shape.lagged[: self.shape.num_raw], int)], columns

    def _numbers(
        self,
        seen: NumbersSeen,
        inputs: Float[Array, "I"],
        y: Float[Array, ""],
        has_label: Bool[Array, ""],
        is_complete: Bool[Array, ""],
    ) -> tuple[Row, NumbersSeen]:
        known = has_label & jnp.isfinite(y) & (jnp.abs(y) < MAX_ABS_VALUE)
        y = jnp.where(known, y, 0.0)
        if self.outliers == "mask":
            known = known & (seen.moments.within(y[None], self.bound)[0] == y)
        _, moments = seen.moments.learn(y[None], self.bound, known[None])
        last, came = jnp.where(known, y, seen.last), jnp.where(known, y, jnp.nan)
        after = seen._replace(
            moments=moments, last=last, recent=jnp.concatenate([seen.recent[1:], came[None]])
        )
        # With a horizon a row's own number is known before the steps behind it are predicted.
        now = after if self.horizon else seen
        mean, scale = now.moments.all.mean[0], now.moments.scale[0]
        context = jnp.stack([now.last, mean, scale])
        contexts = context[None]
        if seen.contexts is not None:
            contexts = jnp.concatenate([contexts, seen.contexts])
        label = after.recent
        is_known = is_complete & jnp.isfinite(label).all()
        before = jnp.where(jnp.isfinite(now.last), now.moments.score(now.last, self.bound)[0], 0.0)
        previous = jnp.stack([before, jnp.where(jnp.isfinite(now.last), 0.0, 1.0)])
        row = self._row(
            last=now.last,
            moments=jnp.stack([mean, scale]),
            known=is_known,
            came=came if self.horizon else jnp.asarray(jnp.nan),
            label=label,
            late=self._in_deviations(label, contexts[-1]),
            inputs=inputs,
            previous=previous,
        )
        kept = None if seen.contexts is None else contexts[:-1]
        return row, after._replace(contexts=kept)

    def _in_deviations(self, label: Array, context: Array) -> Array:
        """Return the network's label: numbers and the last one, standardised as at that time."""
        last, mean, scale = context
        here = jnp.isfinite(last) if self.shape.previous else jnp.zeros((), bool)
        found = jnp.where(here, last - mean, 0.0) / scale
        return jnp.concatenate([(label - mean) / scale, jnp.clip(found, -FAR, FAR)[None]])

    def _classes(
        self,
        seen: ClassesSeen,
        inputs: Float[Array, "I"],
        y: Int[Array, ""],
        has_label: Bool[Array, ""],
    ) -> tuple[Row, ClassesSeen]:
        known = has_label & (y >= 0) & (y < self.shape.outputs)
        count = jnp.where(known, jnp.maximum(seen.num_classes, y + 1), seen.num_classes)
        label = jnp.where(known, y, 0)[None].astype(inputs.dtype)
        indices = jnp.arange(self.shape.outputs, dtype=jnp.int32)
        row = self._row(
            last=seen.last.astype(inputs.dtype),
            moments=jnp.stack([seen.num_classes.astype(inputs.dtype), jnp.ones(())]),
            known=known,
            came=jnp.zeros(()),
            label=label,
            late=label,
            inputs=inputs,
            previous=(indices == seen.last).astype(inputs.dtype),
        )
        return row, ClassesSeen(count.astype(jnp.int32), jnp.where(known, y, seen.last))

    def _row(self, *, last: Array, known: Array, previous: Array, **parts: Any) -> Row:
        inputs, late = parts.pop("inputs"), parts.pop("late")
        none, flag = jnp.zeros(()), known.astype(inputs.dtype)
        missing = -1.0 if self.shape.classes else jnp.nan
        network = self.shape.has_network
        with_last = network and self.shape.previous
        return Row(
            last=last if self.shape.previous else jnp.asarray(missing),
            known=flag,
            slot=none,
            is_new=none,
            is_late_known=flag if network else none,
            late=late if network else jnp.zeros(0),
            raw=jnp.zeros(0),
            x=jnp.concatenate([inputs, previous]) if with_last else inputs,
            **parts,
        )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
