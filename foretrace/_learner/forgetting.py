"""Detection of forgetting: the loss of a stream stays above an earlier, lasting level."""

import math
import warnings
from collections import deque
from typing import Any

import jax

from foretrace._types import Array, Float

BLOCK, HELD = 1000, 5
"""Losses in a block, and number of consecutive blocks that make a level, here 5,000 losses."""

WORSE, LEAST = 0.5, 0.05
"""Smallest rise that counts, as fractions of the level and of the initial loss."""


class Forgetting(UserWarning):
    """Warning that the loss stays clearly above its earlier level: forgetting, or a new stream."""


class LossWatch:
    """Detector of a lasting rise of the loss, from means over blocks of losses.

    A level is reached when HELD consecutive means lie below it. It is lost when HELD consecutive
    means lie clearly above it, that is, by more than WORSE times the level and by more than
    `least`. Single bad blocks and noise around a level have no effect.

        held = min over time of max(the last HELD means)
        lost: min(the last HELD means - 2 standard errors) > held + max(WORSE |held|, least)

    Args:
        least: smallest rise that counts. Default: the fraction `LEAST` of the first block's mean.

    >>> watch = LossWatch(least=0.1)
    >>> found = [watch.add(loss) for loss in [0.2] * 5000 + [0.6] * 5000]
    >>> [i for i, lost in enumerate(found) if lost is not None]
    [9999]
    """

    def __init__(self, least: float | None = None):
        self.restore([least, [], [], None, False, [0, 0.0, 0.0, 0.0]])

    def to_json(self) -> list[Any]:
        """Return the state as JSON."""
        return [self.least, [*self.means], [*self.lows], self.held, self.told, self._block]

    def restore(self, state: list[Any]) -> None:
        """Restore the state from the result of `to_json`."""
        self.least, means, lows, self.held, self.told, self._block = state
        self.means: deque[float] = deque(means, maxlen=HELD)
        self.lows: deque[float] = deque(lows, maxlen=HELD)

    def add(self, loss: float, weight: float = 1.0) -> tuple[float, float] | None:
        """Add a loss; return the mean of the last blocks and the level if it has just been lost.

        Args:
            loss: a loss, or a sum of losses. It is ignored if it is NaN or infinite.
            weight: number of losses in the sum, or the loss of a baseline. The mean of a block is
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
        """Add a block of losses, as `add` does.

        Args:
            count: number of losses.
            total: sum of the losses.
            squares: sum of the squared losses.
            weight: sum of the weights of the losses.
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
            self.told = False  # the level is reached again
        if self.told or min(self.lows) <= limit:
            return None
        self.told = True
        return sum(self.means) / HELD, self.held


def warn_if_forgotten(watch: LossWatch, losses: list[tuple[Float[Array, ""], int]]) -> None:
    """Add losses to the watch, and warn if the loss has risen above an earlier level for long.

    The warning points at the line that called the caller of this function.

    Args:
        watch: watch of the stream.
        losses: for each call, the sum of the losses of its rows, and the number of rows.
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
