"""A row as the model takes it."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float  # `_types` imports JAX


class RawRow(NamedTuple):
    """A row as it came, words turned into numbers, and the label that came with it.

    Args:
        x: values of the columns at their places: a number as it is, NaN where it is missing; the
            inputs of any other column.
        is_number: which of these are numbers; behind each stands whether it is missing.
        y: label of the row `delay` rows before: a number, or the index of a class, -1 of one
            without room. NaN if there is none.
        slot: stream of the row; the number of slots for a row that is missing.
        is_new: 1 if the stream starts anew with this row, 2 if it has no rows before it.
        watched: index of each class with an alarm; -1 before its first label.
    """

    x: Float[Any, "I"]
    is_number: Float[Any, "I"]
    y: Any = np.nan
    slot: Any = 0
    is_new: Any = 0
    watched: Any = -1.0
