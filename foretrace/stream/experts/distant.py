"""Single values from many rows ago, found by their correlation with prediction errors.

    C_jil <- C_jil + (e_j x_{t-l,i} - C_jil) / n         cross-covariance of errors and inputs
   |C_jil| > z root mean square of e_j x_i / sqrt(n)    value i of l rows ago becomes a feature

n is the number of labels since the last choice, at most `search_memory`. The errors are those of a
least-squares head on the row and the chosen values, so each choice explains a part that the other
features do not explain. A chosen value v is given to the head as steps tanh(3 (v - c)), because a
class is not a linear function of v.

If a label is late, the values before its row are found among the values before the next row, unless
they have been overwritten since.
"""

from typing import NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._learner.error_moments import Errors
from foretrace._types import Array, Bool, Float, Int
from foretrace.heads import HeadState
from foretrace.stream.experts.answer import answer_of
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.readout import Readout, fits
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape

REACH = 1000
"""Largest number of rows back."""

MAX_VALUES = 2**22
"""Maximum number of earlier inputs that are stored for all streams."""

STEPS = (-1.5, -0.9, -0.3, 0.3, 0.9, 1.5)
"""Thresholds c of the features of a value, in standard deviations."""


class Found(NamedTuple):
    """State that is learned from labels.

    Args:
        cross: mean product of each error and each earlier input, the oldest input first.
        squares: mean square of the errors, multiplied by the mean square of the inputs.
        num_labels: number of labels in these means.
        inputs: index of the input of each chosen value.
        lags: number of rows back of each chosen value; 0 if none is chosen.
        since: number of labels since the last choice.
        head: state of the least-squares head on the row and the chosen values.
        errors: moments of the head's errors.
    """

    cross: Float[Array, "J I L"]
    squares: Float[Array, "J I"]
    num_labels: Float[Array, ""]
    inputs: Int[Array, "P"]
    lags: Int[Array, "P"]
    since: Int[Array, ""]
    head: HeadState
    errors: Errors


class Memo(NamedTuple):
    """Values of a row that are needed when its label arrives.

    Args:
        inputs: index of the input of each chosen value.
        lags: number of rows back of each chosen value.
        values: the chosen values.
        place: place of the row.
        squares: mean square of each input.
    """

    inputs: Int[Array, "P"]
    lags: Int[Array, "P"]
    values: Float[Array, "P"]
    place: Int[Array, ""]
    squares: Float[Array, "I"]


class Rows(NamedTuple):
    """Earlier inputs of a stream, stored twice, so that any `kept` consecutive ones are adjacent.

    The inputs of the last row are written when the next row is read. Before that, no program reads
    the array, so it is written in place.

    Args:
        values: the earlier inputs.
        newest: inputs of the last row.
        place: place of the last row.
        squares: mean square of each input over about `REACH` / 2 rows.
    """

    values: Float[Array, "I 2*K"]
    newest: Float[Array, "I"]
    place: Int[Array, ""]
    squares: Float[Array, "I"]


class Distant(AbstractExpert):
    """One expert: a least-squares head on the row and on values from many rows ago.

    Args:
        size: number of inputs of a row.
        readout: readout with the least-squares head.
        kept: number of stored rows: `REACH`, and the number of rows by which labels are late.
    """

    size: int = eqx.field(static=True)
    readout: Readout
    kept: int = eqx.field(static=True, default=REACH)

    @classmethod
    def of(cls, shape: Shape) -> Self | None:
        """Return the expert for streams of these sizes; None if it would be too large."""
        if not fits(shape) or shape.slots * shape.now_size * REACH > MAX_VALUES:
            return None
        return cls(shape.now_size, Readout(answer_of(shape)), REACH + shape.delay)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert."""
        return ("distant",)

    @property
    def directions(self) -> Float[np.ndarray, "J O"]:
        """Combinations of errors that are correlated with the inputs. For classes there are two."""
        outputs = self.readout.answer.outputs
        if not self.readout.classes:
            return np.eye(1, outputs, dtype=np.float32)
        classes = np.arange(outputs)
        signs = np.stack([1 - 2 * (classes % 2), 1 - 2 * (classes // 2 % 2)])
        return signs.astype(np.float32)

    def init(self) -> Found:
        """Return the state before the first row."""
        count, size = len(self.directions), self.size
        head, errors = self.readout.init(size + TUNED.chosen * len(STEPS))
        return Found(
            cross=jnp.zeros((count, size, REACH), jnp.float32),
            squares=jnp.zeros((count, size), jnp.float32),
            num_labels=jnp.zeros((), jnp.float32),
            inputs=jnp.zeros(TUNED.chosen, jnp.int32),
            lags=jnp.zeros(TUNED.chosen, jnp.int32),
            since=jnp.zeros((), jnp.int32),
            head=head,
            errors=errors,
        )

    def new_carry(self, learned: Found) -> Rows:
        """Return the inputs before the first row, which are zero."""
        values = jnp.zeros((self.size, 2 * self.kept), jnp.float32)
        place = jnp.zeros((), jnp.int32)
        return Rows(values, newest=values[:, 0], place=place, squares=values[:, 0])

    def take(
        self,
        learned: Found,
        carry: Rows,
        features: Features,
        has_row: Bool[Array, ""],
        *,
        waits: bool,
    ) -> tuple[Float[Array, "E O"], Rows, Memo]:
        """Return the prediction of a row, the carry after it, and the memo for its label."""
        x, written = self._inputs(features), self._values(carry)
        found = written[learned.inputs, carry.place + 1 + self.kept - learned.lags]
        f = self._features(learned, found, features)
        place = jnp.where(carry.place + 1 == self.kept, 0, carry.place + 1).astype(jnp.int32)
        memo = Memo(learned.inputs, learned.lags, found, place=place, squares=carry.squares)
        squares = carry.squares + (x * x - carry.squares) * (2 / REACH)
        after = Rows(values=written, newest=x, place=place, squares=squares)
        # The inputs of all rows are not copied: only the newest inputs are written.
        after = optax.tree.where(has_row, after, carry._replace(values=written))
        scores = self.readout.head.scores(learned.head, f)
        return self.readout.predict(scores, features), after, memo

    def label(self, learned: Found, carry: Rows, memo: Memo, lesson: Lesson) -> tuple[Found, Rows]:
        """Return the learned state after a label, and the carry."""
        now, known = learned, lesson.known
        past, chosen = self._before(now, carry, memo, lesson)
        f = self._features(now, chosen, lesson.features)
        scores = self.readout.head.scores(now.head, f)
        error = self.readout.error(now.errors, scores, lesson)
        steered = (self.directions @ error[0])[:, None]
        count = jnp.minimum(now.num_labels + 1, TUNED.search_memory)
        rate = known.astype(count.dtype) / count
        cross = now.cross + rate * (steered[:, :, None] * past[None] - now.cross)
        squares = now.squares + rate * (steered**2 * memo.squares[None] - now.squares)
        errors = self.readout.noted(now.errors, error, lesson)
        head = self.readout.learned(now.head, f, error, known)
        new = now._replace(
            cross=cross,
            squares=squares,
            num_labels=jnp.where(known, count, now.num_labels),
            since=now.since + known.astype(jnp.int32),
        )
        due = (new.since >= TUNED.search_every) & (new.num_labels >= TUNED.search_first)
        none = jnp.zeros(TUNED.chosen, bool)
        inputs, lags, changed = lax.cond(
            due, self._chosen, lambda new: (new.inputs, new.lags, none), new
        )
        head = self._forgotten(head, changed)
        new = new._replace(
            num_labels=jnp.where(changed.any(), 0.0, new.num_labels).astype(count.dtype),
            since=jnp.where(due, 0, new.since).astype(jnp.int32),
            inputs=inputs,
            lags=lags,
            head=head,
            errors=errors,
        )
        return new, carry

    def _chosen(self, state: Found) -> tuple[Int[Array, "P"], Int[Array, "P"], Bool[Array, "P"]]:
        """Return the chosen inputs and lags, and which of them are new."""
        spread = jnp.sqrt(jnp.maximum(state.squares, 1e-12) / state.num_labels)
        found = (jnp.abs(state.cross) / spread[:, :, None]).max(axis=0)
        # A value that is already a feature is not chosen again.
        at = jnp.where(state.lags > 0, REACH - state.lags, REACH)
        found = found.at[state.inputs, at].set(0.0, mode="drop")
        best, where = lax.top_k(found.ravel(), TUNED.at_once)
        weights = state.head.weights[1 + self.size :]
        size = jnp.where(
            state.lags > 0, jnp.abs(weights).reshape(TUNED.chosen, -1).sum(axis=1), -1.0
        )
        inputs, lags, changed = state.inputs, state.lags, jnp.zeros(TUNED.chosen, bool)
        for rank in range(TUNED.at_once):
            mine = (
                jnp.arange(TUNED.chosen, dtype=jnp.int32) == jnp.argmin(size).astype(jnp.int32)
            ) & (best[rank] > TUNED.z)
            inputs = jnp.where(mine, where[rank] // REACH, inputs).astype(jnp.int32)
            lags = jnp.where(mine, REACH - where[rank] % REACH, lags).astype(jnp.int32)
            size, changed = jnp.where(mine, jnp.inf, size), changed | mine
        return inputs, lags, changed

    def _forgotten(self, head: HeadState, changed: Bool[Array, "P"]) -> HeadState:
        """Return the least-squares head, reset for the values that are new."""
        mine = jnp.concatenate([jnp.zeros(1 + self.size, bool), jnp.repeat(changed, len(STEPS))])
        P = jnp.where(mine[:, None] | mine[None], 0.0, head.covariance)
        prior = jnp.asarray(self.readout.head.prior, P.dtype)
        weights = jnp.where(mine[:, None], 0.0, head.weights)
        return HeadState(jnp.where(jnp.diag(mine), prior, P), weights)

    def _inputs(self, features: Features) -> Float[Array, "I"]:
        return features.now.astype(jnp.float32)

    def _values(self, carry: Rows) -> Float[Array, "I 2*L"]:
        """Return the earlier inputs, including the inputs of the last row."""
        values = carry.values
        for at in (carry.place, carry.place + self.kept):
            start = jnp.zeros((), jnp.int32), at
            values = lax.dynamic_update_slice(values, carry.newest[:, None], start)
        return values

    def _before(
        self, now: Found, carry: Rows, memo: Memo, lesson: Lesson
    ) -> tuple[Float[Array, "I L"], Float[Array, "P"]]:
        """Return the inputs before the row of a label, and the chosen values for this row.

        Inputs that have been overwritten since count as 0. Values that were chosen when the row was
        predicted are in the memo.
        """
        start = jnp.zeros((), jnp.int32), memo.place + self.kept - REACH
        past = lax.dynamic_slice(carry.values, start, (self.size, REACH))
        chosen = carry.values[now.inputs, memo.place + self.kept - now.lags]
        if lesson.late is None:
            return past, chosen
        over = jnp.asarray(lesson.late, jnp.int32) - (self.kept - REACH)
        past = jnp.where(jnp.arange(REACH, dtype=jnp.int32) >= over, past, 0.0)
        is_same = (memo.lags == now.lags) & (memo.inputs == now.inputs)
        is_there = REACH - now.lags >= over
        kept = jnp.where(is_same, memo.values, 0.0)
        return past, jnp.where(is_there, chosen, kept)

    def _features(
        self, state: Found, values: Float[Array, "P"], features: Features
    ) -> Float[Array, "F"]:
        """Return the inputs of a row, and the steps of the chosen values."""
        steps = jnp.tanh(3 * (values[:, None] - np.asarray([STEPS], np.float32)))
        steps = jnp.where((state.lags > 0)[:, None], steps, 0.0)
        return jnp.concatenate([self._inputs(features), steps.ravel()])
