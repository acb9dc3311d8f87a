"""Rows as the mixture takes them: one array in float64, which is one transfer to the device."""

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from foretrace._experts.changes import FAR
from foretrace._experts.shape import Shape
from foretrace._rows.delayed_labels import LabelledRow
from foretrace._rows.target import ClassContext, Context, NumberContext
from foretrace._types import Array, Float


class Row(NamedTuple):
    """One row, unpacked.

    Args:
        last: last known label when the row is predicted: a number, NaN if none is known, or a
            class, -1 likewise.
        moments: mean and standard deviation of the numbers known then; of classes, their number,
            and 1.
        known: 1 if a label came with the row.
        slot: stream of the row; the number of slots for a row that is missing.
        is_new: 1 if the stream starts anew with this row.
        came: number that came with the row, NaN if none did: the label of one step ahead of each
            row before it.
        label: label that came with the row, of the row `delay` rows before: numbers, or the index
            of a class.
        is_late_known: 1 if there is a label that the network learns in this step.
        late: that label: an index; or the numbers, and behind them the last one when they were
            predicted, in standard deviations of then. Empty without a network.
        raw: numbers of the row as they are, the mean in place of a missing one.
        x: inputs, then the last known label's inputs if there is a network.
    """

    last: Float[Array, ""]
    moments: Float[Array, "2"]
    known: Float[Array, ""]
    slot: Float[Array, ""]
    is_new: Float[Array, ""]
    came: Float[Array, ""]
    label: Float[Array, "L"]
    is_late_known: Float[Array, ""]
    late: Float[Array, "M"]
    raw: Float[Array, "N"]
    x: Float[Array, "I"]


_HEAD = 8


def _ends(shape: Shape) -> tuple[int, int, int, int]:
    """Return where the label ends, the network's label, the raw numbers, and the inputs."""
    labels = _HEAD + (1 if shape.classes else shape.outputs)
    late = labels + (0 if not shape.has_network else 1 if shape.classes else shape.outputs + 1)
    raw = late + shape.num_raw
    return labels, late, raw, raw + shape.packed_inputs


def width(shape: Shape) -> int:
    """Return the number of elements of a packed row."""
    return _ends(shape)[-1]


def unpack(shape: Shape, row: Float[Array, "W"]) -> Row:
    """Return the parts of a packed row."""
    labels, late, raw, inputs = _ends(shape)
    return Row(
        row[0],
        row[1:3],
        row[3],
        row[4],
        row[5],
        row[6],
        row[_HEAD:labels],
        row[7],
        row[labels:late],
        row[late:raw],
        row[raw:inputs],
    )


def pack(
    shape: Shape,
    xs: Float[np.ndarray, "C I"],
    contexts: Sequence[Context],
    resolved: Sequence[LabelledRow | None] = (),
    late: Sequence[LabelledRow | None] = (),
    *,
    slots: Sequence[int] | None = None,
    is_new: Sequence[bool] | None = None,
    size: int | None = None,
) -> Float[np.ndarray, "C W"]:
    """Return rows as one array.

    Args:
        shape: sizes of the streams.
        xs: inputs of the rows.
        contexts: knowledge of the target when each row was predicted.
        resolved: rows whose labels came with these; shorter if there are none yet.
        late: rows whose labels the network learns in this step.
        slots: stream of each row. Default: the first.
        is_new: whether the stream of each row starts anew with it.
        size: number of rows; rows beyond the given ones are missing.
    """
    count = len(contexts)
    at, after, raw, width = _ends(shape)
    out = np.zeros((size or count, width))
    out[:, 2], out[:, 4] = 1.0, shape.slots
    if slots is None:
        # The last chunk of a stream may be short, but as many labels as before come with it.
        out[: len(resolved), 4] = 0
    for i, context in enumerate(contexts):
        last = context.last if shape.previous else None
        if isinstance(context, ClassContext):
            out[i, :2] = -1.0 if last is None else last, context.num_classes
        else:
            out[i, :3] = np.nan if last is None else last, context.mean, context.deviation
            out[i, 6] = np.nan if context.came is None else context.came
        out[i, 4] = 0 if slots is None else slots[i]
        out[i, 5] = 0 if is_new is None else is_new[i]
    for i, row in enumerate(resolved):
        if _is_known(row, shape):
            out[i, 3], out[i, _HEAD:at] = 1.0, row.targets
    if shape.has_network:
        for i, row in enumerate(late):
            if _is_known(row, shape):
                out[i, 7] = 1.0
                out[i, at:after] = (
                    row.targets if shape.classes else _in_deviations(row, shape.previous)
                )
    if shape.num_raw:
        # The raw numbers stand behind all other inputs, each at the place of its column.
        out[:count, after:raw] = xs[:count, np.asarray(shape.lagged) - shape.inputs]
    out[:count, raw:] = xs[:count, : shape.packed_inputs]
    return out


def _is_known(row: LabelledRow | None, shape: Shape) -> TypeGuard[LabelledRow]:
    """Return whether a row has a label that can be learned; a class without room has none."""
    return (
        row is not None and None not in row.targets and not (shape.classes and row.targets[0] < 0)
    )


def _in_deviations(row: LabelledRow, previous: bool) -> np.ndarray:
    """Return a row's numbers, and the last known one at its prediction, or the mean."""
    context = row.context
    assert isinstance(context, NumberContext)
    last = context.last if previous and context.last is not None else context.mean
    found = (np.array([*row.targets, last], np.float64) - context.mean) / context.deviation
    found[-1] = min(max(found[-1], -FAR), FAR)
    return found
