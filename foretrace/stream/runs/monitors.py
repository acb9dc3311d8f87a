"""Warnings about scores and labels: too few labels in intervals, lost levels, unusual labels."""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from foretrace._learner.forgetting import BLOCK, HELD, LossWatch

LABELS = BLOCK
"""Minimum number of labels over which the recent coverage of intervals is measured."""

_ERRORS = 10.0
"""Number of standard errors of independent labels by which the coverage may be too small.

Errors of forecasts depend on each other, so a few standard errors are common. A coverage that is
too large causes no warning: around exact predictions, an interval contains every label.
"""

QUIET = 200
"""Number of labels of a member after an alarm that give no further one."""

_LEAST_RISE = 0.05
"""Smallest rise to a lost level: of the log loss, or relative to the last value's error."""


class Monitors:
    """Monitors of the coverage of intervals, of lost levels of the score, and of unusual labels.

    Args:
        coverage: fraction of the labels that intervals should contain.
        unusual: surprise at which a label gives an alarm; None for no alarms.

    `num_unusual` counts the alarms. `recent` has the fraction of the last labels inside their
    intervals; it is empty before `LABELS` labels.
    """

    def __init__(self, coverage: float = 0.9, unusual: float | None = None) -> None:
        self.unusual = math.inf if unusual is None else unusual
        self.num_unusual, self.quiet = 0, dict[Hashable, int]()
        self.least = coverage - _ERRORS * math.sqrt(coverage * (1 - coverage) / LABELS)
        self.is_low = False
        self.watch = LossWatch(_LEAST_RISE)
        self.lost: list[str] = []
        self.last = [0.0, 0.0]  # labels of the last block, and labels inside their intervals
        self.recent: dict[str, float] = {}

    def look(self, block: Mapping[str, float]) -> bool:
        """Read the sums of scores since the last block; return whether a block ends here.

        Levels are means over blocks. The recent coverage is measured over the present block. Until
        this block has `LABELS` labels, the block before is included.
        """
        is_class = "log_loss" in block
        names = "rows log_loss squared rows" if is_class else "rows mae squared no_change_mae"
        count, *loss = (block[name] for name in names.split())
        inside, ends = block.get("coverage", 0.0), count >= LABELS
        seen = [count, inside] if ends else [self.last[0] + count, self.last[1] + inside]
        if not is_class and seen[0] >= LABELS:
            share = round(seen[1] / seen[0], 6)
            self.recent = {"recent_coverage": share, "recent_labels": int(seen[0])}
        if not ends:
            return False
        self.last = [count, inside]
        if (lost := self.watch.add_block(count, *loss)) is not None:
            what = "log loss" if is_class else "error, relative to that of the last known number,"
            self.lost.append(
                f"the {what} was {lost[0]:.3g} in the last {HELD * count:,.0f} rows with a label, "
                f"and at most {lost[1]:.3g} for as long before: the stream has changed, or what "
                "was learned is lost"
            )
        return True

    def alarms(self, labels: Iterable[tuple[int, Hashable, float]]) -> list[str]:
        """Return a line for each alarm.

        Args:
            labels: row, member and surprise of each label; NaN gives no alarm.
        """
        lines = []
        for row, name, surprise in labels:
            left = self.quiet.pop(name, 0)
            if not left and surprise >= self.unusual:
                left, self.num_unusual = QUIET + 1, self.num_unusual + 1
                whose = "" if name is None else f" of {name}"
                lines.append(f"row {row}: unusual label{whose}, surprise {surprise:.1f}")
            if left > 1:
                self.quiet[name] = left - 1
        return lines

    def warnings(self) -> list[str]:
        """Return a warning for a coverage that is too small, and for a lost level."""
        lines, self.lost = self.lost, []
        if self.recent:
            was_low, share = self.is_low, self.recent["recent_coverage"]
            self.is_low = share < self.least
            if self.is_low and not was_low:
                lines.append(
                    f"recent_coverage is {share:.4g}, clearly less than asked for: intervals hold "
                    "too few labels"
                )
        return lines

    def to_json(self) -> list[Any]:
        """Return the state as JSON."""
        alarms = [self.num_unusual, [*self.quiet.items()]]
        return [self.is_low, self.watch.to_json(), self.last, alarms]

    def restore(self, state: list[Any]) -> None:
        """Restore the state from the result of `to_json`."""
        self.is_low, watch, self.last = state[:3]
        self.num_unusual, quiet = state[3]
        self.quiet = dict(quiet)
        self.watch.restore(watch)
