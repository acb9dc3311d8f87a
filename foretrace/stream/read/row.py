"""A row as the model takes it."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float  # `_types` imports JAX


class RawRow(NamedTuple):
    """An input row with its words turned into numbers, and the label that arrived with it.

    Args:
        x: one value for each input: numbers as they are (NaN if missing), and the encoded inputs of
            the other columns.
        is_number: which inputs are numbers; the input after each of them says whether the number is
            missing.
        y: label of the row `delay` rows before: a number, or the index of a class, -1 if it exceeds
            the maximum number of classes. NaN if there is no label.
        slot: stream of the row; for a missing row, the number of slots.
        is_new: 1 if the stream starts anew with this row, 2 if it has no rows before it.
        watched: index of each class with an alarm; -1 before its first label.
        given: predictions of the row by other models; NaN where one is missing.
    """

    x: Float[Any, "I"]
    is_number: Float[Any, "I"]
    y: Any = np.nan
    slot: Any = 0
    is_new: Any = 0
    watched: Any = -1.0
    given: Any = np.nan
