"""Detection of forgetting: the loss of a stream stays above a level that it had held."""

import math
import warnings
from collections import deque
from typing import Any

import jax

from foretrace._types import Array, Float

BLOCK, HELD = 1000, 5
"""Losses of a block, and blocks in a row that make a level: one that was held for 5,000 losses."""

WORSE, LEAST = 0.5, 0.05
"""Smallest rise that counts, as a share of the level held, and as a share of the loss at first."""


class Forgetting(UserWarning):
    """Warning that the loss stays clearly above its earlier level: forgetting, or a new stream."""


class LossWatch:
    """Means of blocks of losses, and the lowest level of the loss that was held.

    A level is held once HELD means in a row lie below it. It is lost once HELD means in a row lie
    clearly above it: by WORSE times the level, or by `least`. Single bad blocks and noise around a
    level change nothing.

        held = min over time of max(the last HELD means)
        lost: min(the last HELD means - 2 standard errors) > held + max(WORSE |held|, least)

    Args:
        least: smallest rise that counts; `LEAST` of the mean of the first block if None.

    >>> watch = LossWatch(least=0.1)
    >>> found = [watch.add(loss) for loss in [0.2] * 5000 + [0.6] * 5000]
    >>> [i for i, lost in enumerate(found) if lost is not None]
    [9999]
    """

    def __init__(self, least: float | None = None):
        self.restore([least, [], [], None, False, [0, 0.0, 0.0, 0.0]])

    def to_json(self) -> list[Any]:
        """Return the state."""
        return [self.least, [*self.means], [*self.lows], self.held, self.told, self._block]

    def restore(self, state: list[Any]) -> None:
        """Restore the state from the result of `to_json`."""
        self.least, means, lows, self.held, self.told, self._block = state
        self.means: deque[float] = deque(means, maxlen=HELD)
        self.lows: deque[float] = deque(lows, maxlen=HELD)

    def add(self, loss: float, weight: float = 1.0) -> tuple[float, float] | None:
        """Count a loss. If a level has just been lost, return the last blocks' mean and the level.

        Args:
            loss: loss, or sum of losses; it is left out if it is not finite.
            weight: number of losses in it, or the loss of a baseline; the mean of a block is
                sum(loss) / sum(weight).
        """
        if not math.isfinite(loss + weight):
            return None
        more = 1, loss, loss**2, weight
        block = [old + new for old, new in zip(self._block, more, strict=True)]
        full = block[0] >= BLOCK
        self._block = [0, 0.0, 0.0, 0.0] if full else block
        return self.add_block(*block) if full else None

    def add_block(
        self, count: float, total: float, squares: float, weight: float
    ) -> tuple[float, float] | None:
        """Count a block of losses, as `add` does.

        Args:
            count: number of losses.
            total: their sum.
            squares: sum of their squares.
            weight: sum of their weights.
        """
        error = math.sqrt(max(squares - total**2 / count, 0.0))  # standard error of the sum
        if not weight or not math.isfinite(total + weight + error):
            return None
        self.means.append(total / weight)
        self.lows.append((total - 2 * error) / weight)
        if self.least is None:
            self.least = LEAST * abs(self.means[0])
        if len(self.means) < HELD:
            return None
        highest = max(self.means)
        self.held = highest if self.held is None else min(self.held, highest)
        limit = self.held + max(WORSE * abs(self.held), self.least)
        if highest <= limit:
            self.told = False  # the level is held again
        if self.told or min(self.lows) <= limit:
            return None
        self.told = True
        return sum(self.means) / HELD, self.held


def warn_if_forgotten(watch: LossWatch, losses: list[tuple[Float[Array, ""], int]]) -> None:
    """Add losses to the watch; warn if the loss has lost an earlier, lower level.

    The warning names the line that called the caller of this function.

    Args:
        watch: watch of the stream.
        losses: for each call, the loss summed over its rows, and the number of rows.
    """
    for loss, rows in jax.device_get(losses):
        if (lost := watch.add(float(loss), rows)) is not None:
            warnings.warn(
                f"the loss of a row was {lost[0]:.3g} in the last {BLOCK * HELD:,} calls, and at "
                f"most {lost[1]:.3g} for as long before: the stream has changed, or the network "
                "has lost what it had learned (docs/streaming.md, What a long run loses)",
                Forgetting,
                stacklevel=3,
            )
