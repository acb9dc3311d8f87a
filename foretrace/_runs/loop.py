"""The steps of a long run: when work is due, and limits on steps in a row."""

from typing import NamedTuple

REFUSED_IN_A_ROW = 20
"""Steps with a loss or gradient that is NaN or infinite after which a run has diverged."""

IN_FLIGHT = 2
"""Steps handed to the device ahead of the one that is read: enough to keep it busy."""


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
