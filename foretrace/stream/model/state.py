"""State and results of a mixture: trees of arrays of fixed size."""

from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._types import Array, Float, Int
from foretrace.stream.experts.network import NetworkState, Refusals
from foretrace.stream.model.arrivals import Arrived
from foretrace.stream.model.features import Past, Seen
from foretrace.stream.model.intervals import MemberErrors, Tracked
from foretrace.stream.model.mix_classes import ClassWeights
from foretrace.stream.model.mix_numbers import NumberWeights
from foretrace.stream.read.scores import Tallies


class Waiting(NamedTuple):
    """A row that was taken, and waits for its label.

    Args:
        slot: stream of the row.
        number: number of the row in its stream.
        seen: values that the features follow from.
        num_labels: number of labels that had arrived, at most `SETTLED`.
        predicted: predictions of the experts. Those of one output lie side by side, because each
            step ahead is read from another row.
        candidates: predictions between which the mixture chose at its top, likewise.
        mixed: predictions of the mixture.
        baselines: last known number and mean, or last and most frequent class.
        margins: reach of the interval below and above each number; empty for classes.
        units: scales of errors by which they were made, likewise.
        memos: what each group of experts needs to learn the label.
    """

    slot: Int[Array, ""]
    number: Int[Array, ""]
    seen: Seen
    num_labels: Int[Array, ""]
    predicted: Float[Array, "O E"]
    candidates: Float[Array, "O T"]
    mixed: Float[Array, "O"]
    baselines: Float[Array, "2"]
    margins: Float[Array, "2 O"]
    units: Float[Array, "U O"]
    memos: tuple[Any, ...]


class MixtureState(NamedTuple):
    """All values that the mixture changes.

    Args:
        arrived: units of the rows, and labels as they arrived.
        intervals: errors of the predictions; None for classes, and where no interval is read.
        of_members: size of each member's errors; None for a single stream, and likewise.
        pasts: past of each stream; the last one belongs to rows that are missing.
        carries: carry of each group of experts after the last row of each stream; None for a group
            without carry.
        waiting: rows that wait for their labels, by their places; None if none ever waits.
        experts: what each group of experts has learned.
        weights: weights of the mixture.
        num_labels: number of labels that have arrived, at most `SETTLED`.
        members: number of members with a label; None for a single stream.
        sums: sums in the order of `PureMixture.sums`, of all rows, of those since the last line of
            the record and of those since the last block: differences of large sums would lose what
            is small. None in a program without them.
        tallies: counts of each class; None for numbers, and in a program without sums.
    """

    arrived: Arrived
    intervals: Tracked | None
    of_members: MemberErrors | None
    pasts: Past
    carries: tuple[Any, ...]
    waiting: Waiting | None
    experts: tuple[Any, ...]
    weights: NumberWeights | ClassWeights
    num_labels: Int[Array, ""]
    members: Float[Array, ""] | None
    sums: Float[Array, "3 T"] | None
    tallies: Tallies | None


class Mixed(NamedTuple):
    """Results of a step for each of its rows; a missing result is None.

    Args:
        newest: prediction of the new row: numbers, or logarithms of probabilities.
        margins: reach of the interval below and above each number.
        num_classes: number of classes that were known.
        scores: scores of the prediction whose label arrived, by the names in `score`; NaN if there
            was none.
        errors: of each expert, for that row: mean absolute error, or 1 for a wrong class.
    """

    newest: Float[Array, "C O"]
    margins: Float[Array, "C 2 O"] | None = None
    num_classes: Float[Array, "C"] | None = None
    scores: Float[Array, "C S"] | None = None
    errors: Float[Array, "C E"] | None = None

    @property
    def first(self) -> "Mixed":
        """The prediction of only the first row, as arrays of NumPy."""
        return jax.tree.map(
            lambda part: np.asarray(part)[0], self._replace(scores=None, errors=None)
        )

    @property
    def told(self) -> Array | None:
        """Margins of the prediction, or the number of known classes."""
        return self.num_classes if self.margins is None else self.margins


class Report(NamedTuple):
    """Values of a state for a line of the record.

    Args:
        total: sums over all rows by their names.
        line: sums since the last line of the record.
        block: sums since the last block.
        weights: weight of each expert, the mean over the steps ahead.
        units: running mean and deviation of each number of a row; 0 while all values are equal.
        outliers: number of outliers so far, of columns and of labels, and of sentinels.
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
