"""Rows packed as one float64 array, for one transfer to the device."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace._experts.shape import Shape
from foretrace._types import Array, Float


class RawRow(NamedTuple):
    """A raw row as numbers, and the label that arrived with it.

    Args:
        x: values of the columns at their places: a number as it is, NaN where it is missing; the
            inputs of any other column.
        is_number: which of these are numbers; after each stands whether it is missing.
        y: label of the row `delay` rows before: a number, or the index of a class, -1 of one
            without room. NaN if there is none.
        slot: stream of the row; the number of slots for a row that is missing.
        is_new: 1 if the stream starts anew with this row, 2 if it has no rows before it.
        watched: index of each class with an alarm; -1 before its first label.
    """

    x: Float[Array, "I"] | np.ndarray
    is_number: Float[Array, "I"] | np.ndarray
    y: Any = np.nan
    slot: Any = 0
    is_new: Any = 0
    watched: Any = -1.0


def width(shape: Shape) -> int:
    """Return the number of elements of a packed row."""
    return 3 + 2 * shape.inputs + len(shape.alarms)


def pack(shape: Shape, rows: Sequence[RawRow], size: int | None = None) -> Float[np.ndarray, "C W"]:
    """Return rows as one array.

    Args:
        shape: sizes of the streams.
        rows: the rows.
        size: number of rows; those beyond the given ones are missing.
    """
    out = np.zeros((size or len(rows), width(shape)))
    out[len(rows) :, 0], out[len(rows) :, 1] = np.nan, shape.slots
    inputs, end = 3 + shape.inputs, 3 + 2 * shape.inputs
    for packed, row in zip(out, rows, strict=False):
        packed[:3] = row.y, row.slot, row.is_new
        packed[3:inputs], packed[inputs:end], packed[end:] = row.x, row.is_number, row.watched
    return out


def unpack(shape: Shape, row: Float[Array, "W"]) -> RawRow:
    """Return the parts of a packed row."""
    inputs, end = 3 + shape.inputs, 3 + 2 * shape.inputs
    return RawRow(row[3:inputs], row[inputs:end], row[0], row[1], row[2], row[end:])
