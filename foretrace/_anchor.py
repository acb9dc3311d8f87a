"""What a number is predicted from: the mean, the last known number, or a point in between; the rest is learned.

    base   = mean + weight * (last - mean)
    y_hat  = base + scale * output            scale: root mean square of y - base so far, for each step ahead

The weight is 0 ("value"), 1 ("change") or that of the best linear guess from the last number so far ("auto"): near 1
where numbers move slowly, near 0 where the last one says nothing.
"""

from typing import Any, Literal

import numpy as np

from foretrace._running import SETTLED
from foretrace._types import Float

Predicted = Literal["auto", "change", "value"]


class Anchor:
    """Running scale of what is left to predict at each step ahead, and weight of the last known number.

    Args:
        outputs: steps ahead.
        kind: "change" or "auto".
        bound: what lies more than so many scales out counts as if it lay there, once the scale has settled.

    >>> anchor = Anchor(1, "change", 10.0)
    >>> for y, last in ((3.0, 1.0), (4.0, 3.0), (6.0, 4.0)):
    ...     label = anchor.learn(np.array([y - last]), np.zeros(1), 0.0)
    >>> round(float(anchor.scale[0]) ** 2, 4)
    3.0
    """

    def __init__(self, outputs: int, kind: Predicted, bound: float):
        self.kind, self.bound, self.count = kind, bound, 0
        self.square = np.zeros(outputs)
        self.product = np.zeros(outputs)
        self.power = 0.0

    @property
    def scale(self) -> Float[np.ndarray, "O"]:
        """The root mean square of what was left; 1 while nothing was."""
        scale = np.sqrt(self.square)
        return np.where(scale > 0, scale, 1.0)

    @property
    def weight(self) -> Float[np.ndarray, "O"]:
        """The share of the last number's distance from the mean that is expected to be there still, in [0, 1]."""
        if self.kind == "change" or not self.power > 0:
            return np.ones_like(self.product)
        return np.clip(self.product / self.power, 0.0, 1.0)

    def learn(self, rest: Float[np.ndarray, "O"], ahead: Float[np.ndarray, "O"], last: float) -> Float[np.ndarray, "O"]:
        """Count what was left to predict of a row; return it in the present scale.

        Args:
            rest: y - base.
            ahead: y - mean, for the weight.
            last: last - mean.
        """
        if self.count >= SETTLED:
            most = self.bound * self.scale
            rest = np.clip(rest, -most, most)
        self.count += 1
        self.square += (rest**2 - self.square) / self.count
        self.product += (ahead * last - self.product) / self.count
        self.power += (last**2 - self.power) / self.count
        return np.clip(rest / self.scale, -self.bound, self.bound)

    def to_json(self) -> list[Any]:
        """Return what was learned."""
        return [self.count, self.square.tolist(), self.product.tolist(), self.power]

    def restore(self, state: list[Any]) -> None:
        """Take up what `to_json` returned."""
        self.count, square, product, self.power = state
        self.square, self.product = np.asarray(square, np.float64), np.asarray(product, np.float64)
