"""The loop of a long run: due work, results in flight, refused steps, and a clock."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

REFUSED_IN_A_ROW = 20
"""Steps with a loss or gradient that is NaN or infinite after which a run has diverged."""

IN_FLIGHT = 2
"""Steps handed to the device ahead of the one that is read: enough to keep it busy."""

T = TypeVar("T")


class DivergenceError(RuntimeError):
    """Training produces nothing but NaN or infinity."""


class Schedule(NamedTuple):
    """When something is due: at every multiple of an interval, and at the last step.

    >>> [step for step in range(12) if Schedule(10).is_due(step, every=4)]
    [0, 4, 8, 10]

    Args:
        last: last step of the run.
    """

    last: int

    def is_due(self, step: int, every: int | None) -> bool:
        """Say whether a step is one of these; never if the interval is None."""
        return every is not None and (step % every == 0 or step == self.last)

    def steps_until_due(self, step: int, *every: int | None) -> int:
        """Return the number of steps to the next one of these, of the nearest of some intervals.

        >>> Schedule(10).steps_until_due(8, 4), Schedule(10).steps_until_due(4, None, 4)
        (2, 4)
        """
        return min(*(each - step % each for each in every if each), self.last - step)


class Pending(Generic[T]):
    """Results of the latest steps, which the device may still compute.

    Reading an older one lets the device work on while the host writes and draws.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, T]] = deque()

    def add(self, step: int, result: T) -> None:
        """Add the result of a step."""
        self._waiting.append((step, result))

    def take(self, *, all: bool) -> Iterator[tuple[int, T]]:
        """Yield steps and results, oldest first: all, or all but the latest ones."""
        while len(self._waiting) > (0 if all else IN_FLIGHT):
            yield self._waiting.popleft()


def check_refused(in_a_row: int, place: str, advice: str) -> None:
    """Check how many steps in a row were refused because loss or gradient was not finite.

    Args:
        in_a_row: their number.
        place: place of the last step.
        advice: what to try when the run diverges.

    Raises:
        DivergenceError: they are too many.
    """
    if in_a_row >= REFUSED_IN_A_ROW:
        raise DivergenceError(
            f"training has diverged: loss or gradient was NaN or infinite in {in_a_row} steps in a "
            f"row, up to {place}; {advice}"
        )


class Clock:
    """Seconds of a run.

    Args:
        before: seconds of its earlier parts.
    """

    def __init__(self, before: float = 0.0):
        self._began = time.monotonic()
        self._before = before

    @property
    def seconds(self) -> float:
        """Seconds of all parts of the run."""
        return round(time.monotonic() - self._began + self._before, 3)
