"""Mean and variance of a stream that never ends, in float64 on the host."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from foretrace._rows.saved import MOST, check_number_of_stream, check_within
from foretrace._rows.values import MAX_ABS_VALUE
from foretrace._runs.config_json import from_json

SETTLED = 30
"""Number of samples before running statistics are used to detect outliers."""

MEMORY = 3_000
"""Number of samples that running statistics average over, with exponential weights."""

NEW_LEVEL = 30
"""Number of outliers, less the number of others between them, that is a new level or scale."""

NEW_SCALE, NARROW = 300, 0.05
"""Number of consecutive samples that make a smaller scale, and their greatest distance."""


class SavedWelford(NamedTuple):
    """Saved form of `Welford`."""

    num_samples: int
    mean: float
    variance: float


class SavedMoments(NamedTuple):
    """Saved form of `Moments`."""

    num_samples: int
    mean: float
    variance: float
    excess: int
    run: SavedWelford


class Welford:
    """Mean and variance of the last `MEMORY` numbers; a sum would grow without end.

        mean_n = mean + (x - mean) / n                          n: count, at most MEMORY
        var_n  = var + ((x - mean) (x - mean_n) - var) / n

    Source: Welford, Technometrics 4(3), 1962; with the bound on n, old numbers lose weight
        exponentially.

    Args:
        mean: mean that is known and never changes; None to learn it.
    """

    __slots__ = ("count", "fixed", "mean", "variance")

    def __init__(self, mean: float | None = None) -> None:
        self.fixed = mean is not None
        self.count, self.mean, self.variance = 0, 0.0 if mean is None else mean, 0.0

    def update(self, x: float) -> None:
        """Count one more number; it must be finite."""
        if self.count < MEMORY:
            self.count += 1
        delta = x - self.mean
        if not self.fixed:
            self.mean += delta / self.count
        self.variance += (delta * (x - self.mean) - self.variance) / self.count

    def clear(self) -> None:
        """Forget all numbers."""
        self.count, self.variance = 0, 0.0
        if not self.fixed:
            self.mean = 0.0

    def to_json(self) -> Any:
        """Return the state; floats survive JSON exactly."""
        return SavedWelford(self.count, self.mean, self.variance)

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedWelford, state)
        check_within("num_samples", [saved.num_samples], 0, MEMORY)
        check_number_of_stream("mean", [saved.mean])
        check_within("variance", [saved.variance], 0, (2 * MAX_ABS_VALUE) ** 2)
        self.count, self.mean, self.variance = saved

    def _take(self, other: "Welford") -> None:
        self.count, self.mean, self.variance = other.count, other.mean, other.variance


class Moments(Welford):
    """Running mean and variance that resist outliers and restart at a new level or scale.

    A number beyond a bound is clipped. The numbers of a run that the scale does not fit are also
    counted apart: mostly outliers, or numbers closer to each other than a small part of the scale.
    A run that is long enough replaces mean and variance. So the time until a new level is accepted
    does not depend on how many numbers came before.

    >>> moments = Moments()
    >>> for x in (1.0, 2.0, 6.0):
    ...     clipped = moments.learn(x, bound=10.0)
    >>> moments.mean, round(moments.variance, 4)
    (3.0, 4.6667)
    """

    __slots__ = ("excess", "run")

    def __init__(self, mean: float | None = None) -> None:
        super().__init__(mean)
        self.run, self.excess = Welford(mean), 0

    @property
    def scale(self) -> float:
        """The standard deviation; 1 while all numbers were the same."""
        return math.sqrt(self.variance) or 1.0

    def score(self, x: float) -> float:
        """Return how many standard deviations a number lies above the mean."""
        return (x - self.mean) / (math.sqrt(self.variance) or 1.0)

    def within(self, x: float, bound: float) -> float:
        """Return a number, clipped to `bound` standard deviations once the mean has settled."""
        z = (x - self.mean) / (math.sqrt(self.variance) or 1.0)
        if abs(z) <= bound or self.count < SETTLED or not self.variance:
            return x
        return self.mean + math.copysign(bound, z) * self.scale

    def learn(self, x: float, bound: float) -> float:
        """Count one more number, clipped to the bound; return the counted value."""
        inside = self.within(x, bound)
        self._follow(x, inside != x)
        if self._is_replaced():
            return x
        self.update(inside)
        return inside

    def _follow(self, x: float, is_outlier: bool) -> None:
        """Count a number to the present run, or begin a run with it."""
        run, before = self.run, self.excess
        self.excess = before + 1 if is_outlier else max(before - 1, 0)
        is_far = not self.excess and abs(x - run.mean) > NARROW * self.scale
        if is_far or bool(self.excess) != bool(before):
            run.clear()
        run.update(x)

    def _is_replaced(self) -> bool:
        """Return whether the new level's run is long enough to replace mean and variance."""
        run = self.run
        # A constant is no scale: streams that rest at one value, as rain does at zero, keep theirs.
        is_new_scale = not self.excess and run.count >= NEW_SCALE and run.variance > 0
        if self.excess < NEW_LEVEL and not is_new_scale:
            return False
        self._take(run)
        self.excess = 0
        run.clear()
        return True

    def copy(self) -> Self:
        """Return an object with the same state, which changes on its own."""
        copied = type(self)(self.mean if self.fixed else None)
        copied._take(self)
        copied.run._take(self.run)
        copied.excess = self.excess
        return copied

    def to_json(self) -> SavedMoments:
        """Return the state; floats survive JSON exactly."""
        return SavedMoments(self.count, self.mean, self.variance, self.excess, self.run.to_json())

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedMoments, state)
        check_within("excess", [saved.excess], 0, MOST)
        super().restore(saved[:3])
        self.run.restore(saved.run)
        self.excess = saved.excess


class Vocabulary:
    """Slots for values in the order of their first appearance, up to a capacity.

    Args:
        capacity: maximum number of values.
        values: first values.
        key: what values are compared by. Default: the value itself.

    Raises:
        ValueError: there are more values than the capacity, or two are equal.

    >>> words = Vocabulary(2, key=str.lower)
    >>> [words.add(word) for word in ("a", "b", "A", "c")], words.values
    ([0, 1, 0, None], ['a', 'b'])
    """

    def __init__(
        self,
        capacity: int,
        values: list[Any] | None = None,
        *,
        key: Callable[[Any], Any] | None = None,
    ):
        self.capacity = capacity
        self.values: list[Any] = list(values or [])
        self._key = key
        self._slots = {
            value if key is None else key(value): i for i, value in enumerate(self.values)
        }
        if not len(self._slots) == len(self.values) <= capacity:
            raise ValueError(f"{len(self.values)} values must be distinct, and at most {capacity}")

    def __len__(self) -> int:
        return len(self.values)

    def get(self, value: Any) -> int | None:
        """Return the slot of a value; None if it has none."""
        return self._slots.get(value if self._key is None else self._key(value))

    def add(self, value: Any) -> int | None:
        """Return the slot of a value, a new one if it has none; None if all are taken."""
        key = value if self._key is None else self._key(value)
        slot = self._slots.get(key)
        if slot is None and len(self.values) < self.capacity:
            slot = self._slots[key] = len(self.values)
            self.values.append(value)
        return slot
