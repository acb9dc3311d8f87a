"""Rows packed into one float64 array, which needs only one transfer to the device."""

from collections.abc import Sequence

import numpy as np

from foretrace._types import Array, Float
from foretrace.stream.experts.shape import Shape
from foretrace.stream.read.row import RawRow


def width(shape: Shape) -> int:
    """Return the number of elements of a packed row."""
    return 3 + shape.inputs + shape.row_inputs + len(shape.alarms) + len(shape.outside)


def pack(shape: Shape, rows: Sequence[RawRow], size: int | None = None) -> Float[np.ndarray, "C W"]:
    """Return rows packed into one array.

    Args:
        shape: sizes of the streams.
        rows: the rows.
        size: number of rows in the array. Rows beyond the given ones count as missing.
    """
    out = np.zeros((size or len(rows), width(shape)))
    out[len(rows) :, 0], out[len(rows) :, 1] = np.nan, shape.slots
    inputs = 3 + shape.inputs
    end = inputs + shape.row_inputs
    last = end + len(shape.alarms)
    for packed, row in zip(out, rows, strict=False):
        packed[:3] = row.y, row.slot, row.is_new
        packed[3:inputs], packed[inputs:end] = row.x, row.is_number
        packed[end:last], packed[last:] = row.watched, row.given
    return out


def unpack(shape: Shape, row: Float[Array, "W"]) -> RawRow:
    """Return the parts of a packed row."""
    inputs = 3 + shape.inputs
    end = inputs + shape.row_inputs
    last = end + len(shape.alarms)
    return RawRow(
        x=row[3:inputs],
        is_number=row[inputs:end],
        y=row[0],
        slot=row[1],
        is_new=row[2],
        watched=row[end:last],
        given=row[last:],
    )
