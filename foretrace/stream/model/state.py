"""State and results of a mixture, as trees of arrays of fixed size."""

from collections.abc import Sequence
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
from foretrace.stream.model.unusual import PastErrors
from foretrace.stream.read.scores import Tallies


class Waiting(NamedTuple):
    """A row that was taken and waits for its label.

    Args:
        slot: slot of the row's stream.
        number: number of the row in its stream.
        seen: values from which the features are computed.
        num_labels: number of labels that had arrived, at most `SETTLED`.
        predicted: predictions of the experts. The predictions of one output are adjacent, because
            each step ahead is read from another row.
        candidates: predictions among which the mixture chose at its top, in the same order.
        mixed: predictions of the mixture.
        baselines: last known number and mean, or last and most frequent class.
        margins: margins of the interval below and above each number; empty for classes.
        units: scales of errors from which the margins were made; empty for classes.
        memos: values that each group of experts needs to learn the label.
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
        arrived: units of the rows, and labels that have arrived.
        intervals: errors of the predictions; None for classes, and if intervals are not used.
        of_members: size of each member's errors; None for a single stream, for classes, and if
            intervals are not used.
        past_errors: past errors of each stream, which decide how unusual an error is.
        pasts: past of each stream. The last one is for missing rows.
        carries: carry of each group of experts after the last row of each stream; None for a group
            without a carry.
        waiting: rows that wait for their labels, by place; None if rows never wait.
        experts: learned state of each group of experts.
        weights: weights of the mixture.
        num_labels: number of labels that have arrived, at most `SETTLED`.
        members: number of members with a label; None for a single stream.
        sums: sums in the order of `PureMixture.sums`: over all rows, over the rows since the last
            line of the record, and over the rows since the last block. They are separate, because
            differences of large sums would be rounded. None in a program without sums.
        tallies: counts of each class; None for numbers, and in a program without sums.
    """

    arrived: Arrived
    intervals: Tracked | None
    of_members: MemberErrors | None
    past_errors: PastErrors
    pasts: Past
    carries: tuple[Any, ...]
    waiting: Waiting | None
    experts: tuple[Any, ...]
    weights: NumberWeights | ClassWeights
    num_labels: Int[Array, ""]
    members: Float[Array, ""] | None
    sums: Float[Array, "3 T"] | None
    tallies: Tallies | None


class Scored(NamedTuple):
    """Results of a label that came without its row, as in `Mixed`; None if it was refused."""

    scores: Float[Array, "S"] | None = None
    errors: Float[Array, "E"] | None = None
    surprise: Float[Array, ""] | None = None


class Mixed(NamedTuple):
    """Results of a step for each of its rows; a missing result is None.

    Args:
        newest: prediction of the new row: numbers, or logarithms of probabilities.
        margins: margins of the interval below and above each number.
        num_classes: number of classes that were known.
        scores: scores of the prediction whose label arrived, in the order of the names in `score`;
            NaN if there was none.
        errors: error of each expert for that row: the mean absolute error, or 1 for a wrong class.
        surprise: how unusual the label was, as in `unusual`; NaN without a label.
    """

    newest: Float[Array, "C O"]
    margins: Float[Array, "C 2 O"] | None = None
    num_classes: Float[Array, "C"] | None = None
    scores: Float[Array, "C S"] | None = None
    errors: Float[Array, "C E"] | None = None
    surprise: Float[Array, "C"] | None = None

    @property
    def first(self) -> "Mixed":
        """The prediction of only the first row, as NumPy arrays."""
        return jax.tree.map(
            lambda part: np.asarray(part)[0],
            self._replace(scores=None, errors=None, surprise=None),
        )

    @property
    def alone(self) -> "Mixed":
        """The results of a single row as those of a chunk of one row."""
        return jax.tree.map(lambda part: part[None], self)

    def rows(self, count: int) -> "Mixed":
        """The results of the first rows, as NumPy arrays."""
        return jax.tree.map(lambda part: np.asarray(part)[:count], self)

    def last_surprise(self, count: int) -> float:
        """The surprise of the last of the first rows."""
        return float(np.asarray(self.surprise)[count - 1])

    @property
    def told(self) -> Array | None:
        """Margins of the prediction, or the number of known classes."""
        return self.num_classes if self.margins is None else self.margins


def joined(parts: Sequence[Mixed]) -> Mixed:
    """Return the results of successive steps. Earlier ones may have fewer classes."""
    if len(parts) == 1:
        return parts[0]
    most, same = parts[-1].newest.shape[1], []
    for part in parts:
        missing = (0, 0), (0, most - part.newest.shape[1])
        newest: Any = np.pad(part.newest, missing, constant_values=-np.inf)
        same.append(part._replace(newest=newest))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *same)


class Report(NamedTuple):
    """Values of a state for a line of the record.

    Args:
        total: sums over all rows, by name.
        line: sums since the last line of the record.
        block: sums since the last block.
        weights: weight of each expert, averaged over the steps ahead.
        units: running mean and deviation of each number of a row. The deviation is 0 while all
            values are equal.
        outliers: number of outliers so far among columns and among labels, and of sentinels.
        tallies: counts of each class; None for numbers.
        of_members: errors of the members, by slot; None without members or intervals.
        refusals: number of refused steps of the network; None if there is no network.
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
    """Return the learned state of the recurrent network; None if there is no network."""
    return next((one for one in state.experts if isinstance(one, NetworkState)), None)


def with_network(state: MixtureState, **fields: Any) -> MixtureState:
    """Return a state with changed fields of `NetworkState`, if it has a network."""
    parts = state.experts
    found = (one._replace(**fields) if isinstance(one, NetworkState) else one for one in parts)
    return state._replace(experts=tuple(found))


def num_bytes(tree: Any) -> int:
    """Return the memory of the arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
