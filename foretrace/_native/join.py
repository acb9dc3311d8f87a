"""An array in parts along one axis, whose parts need not be adjacent in memory."""

from typing import NamedTuple

import numpy as np

from foretrace._native.expression import Number, Value, cut


class Joined(NamedTuple):
    """Result of `concatenate` or `pad` before it is stored in one array.

    Args:
        parts: arrays one after another.
        axis: axis along which they follow each other.
        shape: shape of the whole.
    """

    parts: tuple[Value, ...]
    axis: int
    shape: tuple[int, ...]

    def ends(self) -> list[int]:
        """Return the end of each part."""
        return np.cumsum([part.shape[self.axis] for part in self.parts]).tolist()

    def has_zeros(self) -> bool:
        """Return whether a part is known to be zero."""
        return any(isinstance(p.expression, Number) and p.expression.value == 0 for p in self.parts)

    def part(self, start: int, size: int) -> Value | None:
        """Return the elements from a place on if they are in one part."""
        for one, end in zip(self.parts, self.ends(), strict=True):
            begin = end - one.shape[self.axis]
            if begin <= start and start + size <= end:
                return cut(one, self.axis, start - begin, size)
        return None
