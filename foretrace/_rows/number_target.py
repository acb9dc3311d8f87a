"""What a number is predicted from: the mean, the last known number, or a point in between; the rest is learned.

    base   = mean + weight * (last - mean)
    y_hat  = base + scale * output            scale: root mean square of y - base so far, for each step ahead

The weight is 0 ("value"), 1 ("change") or that of the best linear guess from the last number so far ("auto"): near 1
where numbers move slowly, near 0 where the last one says nothing.
"""

from collections import Counter
from typing import Any, Literal

import numpy as np

from foretrace._rows.encode import ABSURD, EncodingError, Outliers, clipped
from foretrace._rows.running import SETTLED, Moments
from foretrace._rows.schema import as_number, is_missing
from foretrace._rows.target import Context
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


class NumberTarget:
    """A number now, or at each of the next steps; learned as its distance from a first guess, in a running scale.

    The guess is the running mean ("value"), the last known number ("change"), or a point in between ("auto"): see
    `_anchor`. Before a number is known it is the mean.

    Args:
        outputs: numbers that are predicted.
        bound: farther out, in standard deviations, a target is counted as absurd.
        predict: from where.
        outliers: what is done with an absurd target: "clip" learns it as if it lay at the bound, and scores it as it
            is; "mask" leaves it out as if missing; "stop" refuses it.
    """

    def __init__(
        self, outputs: int = 1, *, bound: float = 10.0, predict: Predicted = "value", outliers: Outliers = "clip"
    ):
        self.output_size, self.features, self.bound, self.outliers = outputs, 2, bound, outliers
        self.moments, self.counts = Moments(), Counter[str]()
        self.anchor = None if predict == "value" else Anchor(outputs, predict, bound)
        self.last: float | None = None

    def take(self, value: Any) -> float | None:
        """Return a number; None if it is missing, none, or absurd and left out.

        Raises:
            EncodingError: it is absurd, and these are to stop.
        """
        number = self._number(value)
        if number is None:
            self.counts["missing targets"] += 1
            return None
        inside = self._bounded(number)
        if inside != number:
            self.counts["absurd targets"] += 1
            if self.outliers == "stop":
                raise EncodingError(
                    f"the target is {str(value)[:80]!r}, more than {self.bound:g} standard deviations from its mean "
                    f"{self.moments.mean:g}; clean the source, or choose --outliers clip or mask"
                )
            if self.outliers == "mask":
                return None
        self.moments.update(inside)
        self.last = number
        return number

    def note(self, value: Any) -> None:
        """Let a number be the last one."""
        number = self._number(value)
        if number is not None and (self.outliers != "mask" or self._bounded(number) == number):
            self.last = number

    def describe(self, output: np.ndarray) -> list[Any]:
        """Return the numbers that are predicted."""
        return number_predictions(self.context(), output).tolist()

    def label(self, taken: list[Any], context: Context) -> list[float] | None:
        """Return the numbers from the guess of then in the present scale, which learns them."""
        if None in taken:
            return None
        if self.anchor is None or context[1] is None:
            return [clipped(self.moments.score(number), self.bound) for number in taken]
        mean, scale, base = self.moments.mean, self.moments.scale, np.asarray(context[2])
        numbers = np.asarray(taken, np.float64)
        inside = np.clip(numbers, mean - self.bound * scale, mean + self.bound * scale)
        return self.anchor.learn(numbers - base, inside - mean, self._bounded(context[1]) - mean).tolist()

    def context(self) -> Context:
        """Return the mean, the last number, and base and scale of a prediction."""
        if self.anchor is None or self.last is None:
            return [self.moments.mean, self.last, self.moments.mean, self.moments.scale]
        mean, weight = self.moments.mean, self.anchor.weight
        base = mean + weight * (self._bounded(self.last) - mean)
        return [mean, self.last, base.tolist(), self.anchor.scale.tolist()]

    def _number(self, value: Any) -> float | None:
        """Return a number; None if it is missing or none."""
        number = None if is_missing(value) else as_number(value)
        return number if number is not None and abs(number) < ABSURD else None

    def _bounded(self, number: float) -> float:
        """Return a number, or the bound if it lies beyond: an absurd one is nothing to start from."""
        return self.moments.within(number, self.bound)

    def previous(self) -> np.ndarray:
        """Return the last number in the present scale, or that it is missing."""
        if self.last is None:
            return np.array([0.0, 1.0])
        return np.array([clipped(self.moments.score(self.last), self.bound), 0.0])

    def to_json(self) -> list[Any]:
        """Return what was learned."""
        anchor = None if self.anchor is None else self.anchor.to_json()
        return [self.moments.to_json(), self.last, anchor, dict(self.counts)]

    def restore(self, state: list[Any]) -> None:
        """Take up what `to_json` returned."""
        moments, self.last, anchor, counts = state
        if self.anchor is not None:
            self.anchor.restore(anchor)
        self.moments, self.counts = Moments.from_json(moments), Counter(counts)


def number_predictions(context: Context, output: np.ndarray) -> np.ndarray:
    """Return the numbers that an output of the network stands for, given what was known then."""
    _, _, base, scale = context
    return np.asarray(base) + np.asarray(scale) * np.asarray(output, np.float64)
