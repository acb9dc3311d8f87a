"""Interface of experts: predict a row from shared features, learn when its label arrives.

Numbers are predicted in standard deviations from the running mean, as they were when the row was
predicted; classes by their probabilities. The state of an expert is a tree of arrays of fixed size.
Nothing is learned from a label that is not known: the state is then returned as it was, bit for
bit.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int


class Features(NamedTuple):
    """What experts see of a row and of the past, computed once for each row.

    Args:
        row: inputs of the row, the last known label and a constant, or a random projection of them.
        now: numbers and categories of the row, as earlier rows have them, and the last known label;
            empty where the inputs are projected at random.
        short: inputs of the row, the rows just before it and their labels.
        lags: inputs of the row, many rows before it and their labels.
        waves: random Fourier features of the row.
        steps: inputs of the row, and soft steps of its numbers at a few thresholds.
        wide_events: random tanh features of the row, the last unusual rows and their ages; zero
            without `has_events`.
        inputs: inputs of the row, and of the last known label, as a network takes them; empty
            without one.
        has_events: whether unusual rows are known and rare.
        labels: last known labels, the newest first: numbers in standard deviations, NaN where none
            is known; of classes their indices, -1 where none is known.
        num_classes: number of classes that have been seen; 0 for numbers.
        raw_row: `row` with all numbers as they are; NaN where a label is not known.
        raw_lags: `lags`, likewise.
        moments: mean and standard deviation of numbers when the row was predicted, or number of
            classes and 1.
        ordinary: mean and standard deviation of the numbers that are no outliers, likewise.
    """

    row: Float[Array, "R"]
    now: Float[Array, "J"]
    short: Float[Array, "S"]
    lags: Float[Array, "L"]
    waves: Float[Array, "F"]
    steps: Float[Array, "T"]
    wide_events: Float[Array, "F"]
    inputs: Float[Array, "I"]
    has_events: Bool[Array, ""]
    labels: Float[Array, "K"] | Int[Array, "K"]
    num_classes: Int[Array, ""]
    raw_row: Float[Array, "R"]
    raw_lags: Float[Array, "L"]
    moments: Float[Array, "2"]
    ordinary: Float[Array, "2"]


class Lesson(NamedTuple):
    """A row whose label has come; or none, where there is no label, or not even a row.

    Args:
        features: features of the row when it was predicted.
        predicted: the expert's predictions then.
        label: the numbers in standard deviations of then, or the class as a one-hot vector.
        known: whether there is a label; if not, all that was learned stays as it was.
        has_row: whether there is a row; if not, the carry stays as it was.
        members: number of members with a label, which share the experts; None for a single stream.
    """

    features: Features
    predicted: Float[Array, "E O"]
    label: Float[Array, "O"]
    known: Bool[Array, ""]
    has_row: Bool[Array, ""]
    members: Float[Array, ""] | None = None


class Remembered(NamedTuple):
    """State of an expert with a memory of its own: each stream has a carry beside what is shared.

    With late labels there are two carries, so that each label is learned with the memory of its
    row.

    Args:
        learned: what is learned of all streams.
        carry: carry of the stream before the row that is predicted, or whose label comes.
        ahead: carry before the next row, where that is a later one; else None.
    """

    learned: Any
    carry: Any
    ahead: Any = None


MEMORY = 10_000.0
"""Number of labels that counts of classes remember; older ones lose weight exponentially."""


def counted(counts: Float[Array, "K"], more: Float[Array, "K"]) -> Float[Array, "K"]:
    """Return counts with one more label, scaled down so that their sum is at most `MEMORY`."""
    total = counts + more
    scaled = total * jnp.minimum(1.0, MEMORY / jnp.maximum(total.sum(), 1.0))
    return jnp.where((more != 0).any(), scaled, counts)


class AbstractExpert(eqx.Module):
    """Some experts of one kind, each of which predicts every output.

    The state of those with a carry is `Remembered` everywhere but in `init`.
    """

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""

    @abc.abstractmethod
    def init(self) -> Any:
        """Return what is learned before the first row, a tree of arrays."""

    def new_carry(self, learned: Any) -> Any:
        """Return the carry of a stream before its first row; None if they have no memory.

        Args:
            learned: what is learned of all streams.
        """
        return None

    @abc.abstractmethod
    def predict(self, state: Any, features: Features) -> Float[Array, "E O"]:
        """Return each expert's prediction: numbers in standard deviations, or probabilities."""

    def move(self, state: Any, features: Features, has_row: Bool[Array, ""]) -> Any:
        """Return the carry behind a row; as it was if there is no row."""
        return None

    @abc.abstractmethod
    def learn(self, state: Any, lesson: Lesson) -> Any:
        """Return the state after a label, with the carry behind its row."""
