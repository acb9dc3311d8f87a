"""Rows as the mixture takes them: one array in float64, which is one transfer to the device."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foretrace._experts.shape import Shape
from foretrace._rows.delayed_labels import LabelledRow
from foretrace._rows.target import ClassContext, Context
from foretrace._types import Array, Float


class Row(NamedTuple):
    """One row, unpacked.

    Args:
        last: last known label when the row is predicted: a number, NaN if none is known, or a class, -1 likewise.
        moments: mean and standard deviation of the numbers known then; of classes, their number, and 1.
        known: 1 if a label came with the row.
        slot: stream of the row; the number of slots for a row that is missing.
        is_new: 1 if the stream starts anew with this row.
        came: number that came with the row, NaN if none did: the label of one step ahead of each row before it.
        label: label that came with the row, of the row `delay` rows before: numbers, or the index of a class.
        outside: outputs of each model from elsewhere: numbers, or logits of the classes.
        features: features in front of the network's decoder.
        x: inputs.
    """

    last: Float[Array, ""]
    moments: Float[Array, "2"]
    known: Float[Array, ""]
    slot: Float[Array, ""]
    is_new: Float[Array, ""]
    came: Float[Array, ""]
    label: Float[Array, "L"]
    outside: Float[Array, "X O"]
    features: Float[Array, "N"]
    x: Float[Array, "I"]


_HEAD = 7


def unpack(shape: Shape, row: Float[Array, "W"]) -> Row:
    """Return the parts of a packed row."""
    labels = 1 if shape.classes else shape.outputs
    outside = _HEAD + labels
    features = outside + shape.outside * shape.outputs
    inputs = features + shape.network_features
    return Row(
        row[0],
        row[1:3],
        row[3],
        row[4],
        row[5],
        row[6],
        row[_HEAD:outside],
        row[outside:features].reshape(shape.outside, shape.outputs),
        row[features:inputs],
        row[inputs:],
    )


def pack(
    shape: Shape,
    xs: Float[np.ndarray, "C I"],
    contexts: Sequence[Context],
    resolved: Sequence[LabelledRow | None] = (),
    *,
    slots: Sequence[int] | None = None,
    is_new: Sequence[bool] | None = None,
    outside: Float[np.ndarray, "X C O"] | None = None,
    features: Float[np.ndarray, "C N"] | None = None,
    size: int | None = None,
) -> Float[np.ndarray, "C W"]:
    """Return rows as one array.

    Args:
        shape: what the streams ask.
        xs: inputs of the rows.
        contexts: what was known of the target when each row was predicted.
        resolved: rows whose labels came with these; shorter if there are none yet.
        slots: stream of each row. Default: the first.
        is_new: whether the stream of each row starts anew with it.
        outside: outputs of models from elsewhere.
        features: features in front of the network's decoder.
        size: number of rows; what is more than there are, is missing.
    """
    count = len(contexts)
    labels = 1 if shape.classes else shape.outputs
    at = _HEAD + labels
    after = at + shape.outside * shape.outputs
    inputs = after + shape.network_features
    out = np.zeros((size or count, inputs + shape.inputs))
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
        if row is not None and None not in row.targets and not (shape.classes and row.targets[0] < 0):
            out[i, 3], out[i, _HEAD:at] = 1.0, row.targets
    if outside is not None:
        swapped = np.swapaxes(np.asarray(outside, np.float64), 0, 1)
        out[: len(swapped), at:after] = swapped.reshape(len(swapped), -1)
    if features is not None:
        out[: len(features), after:inputs] = features
    out[:count, inputs:] = xs[:count]
    return out
