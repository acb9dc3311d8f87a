"""Mean and variance of a stream that never ends, in float64 on the host."""

import math
from typing import Any, Self

SETTLED = 30
"""Number of samples before running statistics are used to detect outliers."""


class Moments:
    """Running mean and variance (Welford), the variance kept as such: a sum would grow without end.

        mean_n = mean + (x - mean) / n
        var_n  = var + ((x - mean) (x - mean_n) - var) / n

    Source: Welford, Technometrics 4(3), 1962.

    >>> moments = Moments()
    >>> for x in (1.0, 2.0, 6.0):
    ...     moments.update(x)
    >>> moments.mean, round(moments.variance, 4)
    (3.0, 4.6667)
    """

    __slots__ = ("count", "mean", "variance")

    def __init__(self) -> None:
        self.count, self.mean, self.variance = 0, 0.0, 0.0

    def update(self, x: float) -> None:
        """Count one more number; it must be finite."""
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.variance += (delta * (x - self.mean) - self.variance) / self.count

    @property
    def scale(self) -> float:
        """The standard deviation; 1 while all numbers were the same."""
        return math.sqrt(self.variance) or 1.0

    def score(self, x: float) -> float:
        """Return how many standard deviations a number lies above the mean."""
        return (x - self.mean) / (math.sqrt(self.variance) or 1.0)

    def within(self, x: float, bound: float) -> float:
        """Return a number, or the bound in standard deviations if it lies beyond; only once the mean has settled."""
        z = (x - self.mean) / (math.sqrt(self.variance) or 1.0)
        if abs(z) <= bound or self.count < SETTLED or not self.variance:
            return x
        return self.mean + math.copysign(bound, z) * self.scale

    def to_json(self) -> list[Any]:
        """Return the state; floats survive JSON exactly."""
        return [self.count, self.mean, self.variance]

    @classmethod
    def from_json(cls, state: list[Any]) -> Self:
        """Return what `to_json` was called on."""
        moments = cls()
        moments.count, moments.mean, moments.variance = state
        return moments


class Vocabulary:
    """Slots for values in the order of their first appearance, up to a capacity.

    >>> words = Vocabulary(2)
    >>> [words.add(word) for word in ("a", "b", "a", "c")]
    [0, 1, 0, None]
    """

    def __init__(self, capacity: int, values: list[Any] | None = None):
        self.capacity = capacity
        self.values: list[Any] = list(values or [])
        self._slots = {value: i for i, value in enumerate(self.values)}

    def __len__(self) -> int:
        return len(self.values)

    def get(self, value: Any) -> int | None:
        """Return the slot of a value; None if it has none."""
        return self._slots.get(value)

    def add(self, value: Any) -> int | None:
        """Return the slot of a value, a new one if it has none; None if all are taken."""
        slot = self._slots.get(value)
        if slot is None and len(self.values) < self.capacity:
            slot = self._slots[value] = len(self.values)
            self.values.append(value)
        return slot
