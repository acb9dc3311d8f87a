"""Interface of experts, in which a row and its label are two separate events.

   take    predict a row, advance past it, and return the memo: values that its label needs
    label   learn from a label, whenever it arrives, with the memo of its row

Numbers are predicted in standard deviations from the running mean. Both are the values at the time
when the row was predicted. For classes, probabilities are predicted. The state of an expert is a
tree of arrays of fixed size. If a label is not known, nothing is learned, and the state is returned
unchanged, bit for bit.
"""

import abc
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape


class Features(NamedTuple):
    """Features of a row and of the past, computed once for all experts.

    Args:
        row: inputs of the row, the last known label and a constant, or a random projection of them.
        now: numbers and categories of the row, in the form that earlier rows have, and the last
            known label. Empty if the inputs are projected at random.
        short: inputs of the row, and inputs and labels of the rows just before it.
        lags: inputs of the row, and inputs and labels of many rows before it.
        wide: random tanh features of the lags.
        waves: random Fourier features of the row.
        steps: inputs of the row, and soft steps of its numbers at a few thresholds.
        wide_events: random tanh features of the row, of the last unusual rows and of their ages.
            Zero if `has_events` is False.
        inputs: inputs of the row and of the last known label, in the form that a network takes.
            Without a network, only the inputs that are no words, or empty if there are no words.
        words: the largest counts of words in the row, relative to the root of the number of words,
            and their places among the inputs for words. Counts may be zero. Empty without texts.
        has_events: whether unusual rows are known and rare.
        labels: last known labels, the newest first. Numbers are in standard deviations, and NaN if
            unknown. Classes are indices, and -1 if unknown.
        num_classes: number of classes that have been seen; 0 for numbers.
        raw_row: `row` with unscaled numbers; NaN if a label is not known.
        raw_lags: `lags` with unscaled numbers; NaN if a label is not known.
        moments: mean and standard deviation of the numbers when the row was predicted; for classes,
            the number of classes and 1.
        ordinary: mean and standard deviation of the numbers that are not outliers, when the row was
            predicted.
        given: unscaled predictions of the row by other models; NaN for a missing prediction. Empty
            when the label is learned.
    """

    row: Float[Array, "R"]
    now: Float[Array, "J"]
    short: Float[Array, "S"]
    lags: Float[Array, "L"]
    wide: Float[Array, "F"]
    waves: Float[Array, "F"]
    steps: Float[Array, "T"]
    wide_events: Float[Array, "F"]
    inputs: Float[Array, "I"]
    words: Any
    has_events: Bool[Array, ""]
    labels: Float[Array, "K"] | Int[Array, "K"]
    num_classes: Int[Array, ""]
    raw_row: Float[Array, "R"]
    raw_lags: Float[Array, "L"]
    moments: Float[Array, "2"]
    ordinary: Float[Array, "2"]
    given: Any = ()


class Lesson(NamedTuple):
    """A row whose label has arrived. The label may be missing.

    Args:
        features: features of the row when it was predicted.
        predicted: the expert's predictions of the row.
        label: numbers in standard deviations, as of the time when the row was predicted, or the
            class as a one-hot vector.
        known: whether there is a label. If not, the learned state does not change.
        has_row: whether the row belongs to the present stream. If not, the carry does not change.
        members: number of members that have had a label. All members share the experts. None for a
            single stream.
        late: number of rows of the stream by which the label is late. None if the label is learned
            in the same program call that took the row.
    """

    features: Features
    predicted: Float[Array, "E O"]
    label: Float[Array, "O"]
    known: Bool[Array, ""]
    has_row: Bool[Array, ""]
    members: Float[Array, ""] | None = None
    late: Int[Array, ""] | int | None = None


def counted(counts: Float[Array, "K"], more: Float[Array, "K"]) -> Float[Array, "K"]:
    """Return the counts after one more label, scaled to a sum of at most `count_memory`."""
    total = counts + more
    scaled = total * jnp.minimum(1.0, TUNED.count_memory / jnp.maximum(total.sum(), 1.0))
    return jnp.where((more != 0).any(), scaled, counts)


class AbstractExpert(eqx.Module):
    """A group of experts of one kind, each of which predicts every output.

    All streams share the learned state. If experts have a memory, there is also a carry for each
    stream, and the class defines `new_carry`, `take` and `label`. All other classes define
    `predict` and `learn`.
    """

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""

    @classmethod
    def of(cls, shape: Shape) -> Self | None:
        """Return the experts for streams of these sizes; None if they do not fit."""
        raise NotImplementedError(f"{cls.__name__}.of(shape) makes the expert of a stream")

    @abc.abstractmethod
    def init(self) -> Any:
        """Return the initial state, a tree of arrays."""

    def new_carry(self, learned: Any) -> Any:
        """Return the initial carry of a stream. Default: None, for experts without memory.

        Args:
            learned: learned state, which all streams share.
        """
        return None

    def take(
        self,
        learned: Any,
        carry: Any,
        features: Features,
        has_row: Bool[Array, ""],
        *,
        waits: bool,
    ) -> tuple[Float[Array, "E O"], Any, Any]:
        """Return the predictions of a row, the carry after it, and the memo for its label.

        Args:
            learned: learned state, which all streams share.
            carry: carry of the stream before the row.
            features: features of the row.
            has_row: whether there is a row. If not, the carry does not change.
            waits: whether the label is learned in a later program call, instead of this one.
        """
        return self.predict(learned, features), carry, ()

    def label(self, learned: Any, carry: Any, memo: Any, lesson: Lesson) -> tuple[Any, Any]:
        """Return the learned state after a label, and the carry.

        Args:
            learned: learned state, which all streams share.
            carry: carry of the stream after its last row.
            memo: memo that `take` returned for the row of the label.
            lesson: the row and its label.
        """
        return self.learn(learned, lesson), carry

    def predict(self, state: Any, features: Features) -> Float[Array, "E O"]:
        """Return each expert's prediction: numbers in standard deviations, or probabilities."""
        raise NotImplementedError

    def learn(self, state: Any, lesson: Lesson) -> Any:
        """Return the learned state after a label."""
        raise NotImplementedError
