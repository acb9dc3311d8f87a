"""A concatenated array whose parts need not be adjacent in memory."""

from typing import NamedTuple

import numpy as np

from foretrace._native.expression import Number, Value, cut


class Joined(NamedTuple):
    """Result of `concatenate` or `pad` before it is stored in one array.

    Args:
        parts: concatenated arrays, in order.
        axis: axis of the concatenation.
        shape: shape of the result.
    """

    parts: tuple[Value, ...]
    axis: int
    shape: tuple[int, ...]

    def ends(self) -> list[int]:
        """Return the end position of each part."""
        return np.cumsum([part.shape[self.axis] for part in self.parts]).tolist()

    def has_zeros(self) -> bool:
        """Return whether a part is known to be zero."""
        return any(isinstance(p.expression, Number) and p.expression.value == 0 for p in self.parts)

    def part(self, start: int, size: int) -> Value | None:
        """Return `size` elements from `start` if they are in one part; None otherwise."""
        for one, end in zip(self.parts, self.ends(), strict=True):
            begin = end - one.shape[self.axis]
            if begin <= start and start + size <= end:
                return cut(one, self.axis, start - begin, size)
        return None
