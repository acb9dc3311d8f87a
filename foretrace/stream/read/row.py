"""A row in the form that the model takes."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float  # `_types` imports JAX


class RawRow(NamedTuple):
    """An input row whose words are encoded as numbers, with the label that arrived with the row.

    Args:
        x: one value for each input: unscaled numbers (NaN if missing), and the encoded inputs of
            the other columns.
        is_number: which inputs before those of words are numbers. The input after a number says
            whether the number is missing.
        y: label of the row `delay` rows before this row: a number, or the index of a class. The
            index is -1 if the class exceeds the maximum number of classes. NaN if there is no
            label.
        slot: slot of the row's stream; for a missing row, the number of slots.
        is_new: 1 if the stream starts anew with this row, 2 if it has no earlier rows.
        watched: index of each class with an alarm; -1 before its first label.
        given: predictions of the row by other models; NaN where one is missing.
    """

    x: Float[Any, "I"]
    is_number: Float[Any, "R"]
    y: Any = np.nan
    slot: Any = 0
    is_new: Any = 0
    watched: Any = -1.0
    given: Any = np.nan
