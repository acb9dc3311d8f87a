"""An array in parts along one axis, whose parts need not lie beside each other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from foretrace._native.expression import Number, Value, sliced
from foretrace._native.operators import element


class Joined(NamedTuple):
    """What `concatenate` and `pad` return, until someone needs it in one array.

    Args:
        parts: arrays one after another.
        axis: axis along which they follow each other.
        shape: shape of the whole.
    """

    parts: tuple[Value, ...]
    axis: int
    shape: tuple[int, ...]

    def mapped(self, function: Callable[[Value], Value]) -> "Joined":
        """Return a function of each part."""
        return self._replace(parts=tuple(map(function, self.parts)))

    def part(self, start: int, size: int) -> Value | None:
        """Return the elements from a place on, if they lie in one part."""
        begin = 0
        for one in self.parts:
            length = one.shape[self.axis]
            if begin <= start and start + size <= begin + length:
                starts = [0] * len(self.shape)
                sizes = list(one.shape)
                starts[self.axis], sizes[self.axis] = start - begin, size
                return sliced(one, tuple(starts), tuple(sizes), (1,) * len(sizes))
            begin += length
        return None

    def plus(self, other: "Joined", dtype: Any) -> "Joined | None":
        """Return the sum, in parts that both have; None if they are joined along different axes."""
        if self.axis != other.axis:
            return None
        places = sorted({*self._ends(), *other._ends()})
        parts = []
        for start, end in zip([0, *places], places, strict=False):
            a, b = self.part(start, end - start), other.part(start, end - start)
            assert a is not None and b is not None
            parts.append(_sum(a, b, dtype))
        return self._replace(parts=tuple(parts))

    def _ends(self) -> list[int]:
        return np.cumsum([part.shape[self.axis] for part in self.parts]).tolist()


def _sum(a: Value, b: Value, dtype: Any) -> Value:
    for zero, other in ((a, b), (b, a)):
        if isinstance(zero.expression, Number) and zero.expression.value == 0:
            return other
    found = element("add", [a.expression, b.expression], {}, dtype)
    assert found is not None
    return Value(found, a.shape)
