"""What is predicted: a class out of a set that grows, or numbers in a running scale; and what is known of it so far."""

from collections import Counter
from typing import Any, Protocol

import numpy as np

from foretrace._anchor import Anchor, Predicted
from foretrace._encode import ABSURD, EncodingError, Outliers, clipped
from foretrace._running import Moments, Vocabulary
from foretrace._schema import as_number, is_missing

Context = list[Any]
"""What was known of the target when a prediction was made, as JSON: scores need it, however late the label comes."""


class Target(Protocol):
    """What `ClassTarget` and `NumberTarget` have in common.

    Args:
        output_size: outputs of the network.
        features: inputs that tell the last known target.
        last: the last known target of the stream that is read; a `Feed` puts that of its stream here.
        counts: targets that could not be used, by reason.
    """

    output_size: int
    features: int
    last: Any
    counts: Counter[str]

    def take(self, value: Any) -> Any:
        """Learn a target that has come; return it as scores need it, None if there is none."""

    def note(self, value: Any) -> None:
        """Let a target that has come be the last one, without learning anything else of it."""

    def describe(self, output: np.ndarray) -> list[Any]:
        """Return an output of the network as what it predicts."""

    def label(self, taken: list[Any], context: Context) -> Any:
        """Return targets as the loss needs them, given what was known at the prediction; None if one is missing.

        A target is asked once for each row: it may learn from it.
        """

    def context(self) -> Context:
        """Return what is known now."""

    def previous(self) -> np.ndarray:
        """Return the last known target as inputs."""

    def to_json(self) -> list[Any]:
        """Return what was learned."""

    def restore(self, state: list[Any]) -> None:
        """Take up what `to_json` returned."""


class ClassTarget:
    """A class; classes get a place in the order of their appearance, up to a capacity.

    Args:
        capacity: most classes. Later ones cannot be learned, are counted, and are wrongly predicted.
        verbatim: every value is a class, even an empty one or "?": for the characters of a text.
        as_text: take classes by their text, as a checkpoint holds them.

    >>> target = ClassTarget(4)
    >>> [target.take(y) for y in ("up", "down", "up", None)]
    [0, 1, 0, None]
    >>> target.context()  # classes, the last one, the most frequent one
    [2, 0, 0]
    """

    def __init__(self, capacity: int, *, verbatim: bool = False, as_text: bool = True):
        if capacity < 2:
            raise ValueError(f"classes={capacity} must be at least 2")
        self.output_size = self.features = capacity
        self.verbatim, self.as_text = verbatim, as_text
        self.classes, self.counts = Vocabulary(capacity), Counter[str]()
        self.frequency = [0] * capacity
        self.last: int | None = None
        self.majority: int | None = None

    def take(self, value: Any) -> int | None:
        """Return the place of a class: -1 if there is none left, None if the value is missing."""
        if not self.verbatim and is_missing(value):
            self.counts["missing targets"] += 1
            return None
        place = self.classes.add(str(value) if self.as_text else value)
        if place is None:
            self.counts["classes without room"] += 1
            return -1
        self.last = place
        self.frequency[place] += 1
        if self.majority is None or self.frequency[place] > self.frequency[self.majority]:
            self.majority = place
        return place

    def note(self, value: Any) -> None:
        """Let a known class be the last one."""
        place = self.classes.get(str(value) if self.as_text else value)
        self.last = self.last if place is None else place

    def probabilities(self, output: np.ndarray) -> np.ndarray:
        """Return the probabilities of the known classes."""
        logits = np.asarray(output, np.float64)[: len(self.classes)]
        weights = np.exp(logits - logits.max(initial=-np.inf))
        return weights / weights.sum()

    def describe(self, output: np.ndarray) -> list[Any]:
        """Return the most probable class and its probability."""
        if not len(self.classes):
            return [None, None]
        probabilities = self.probabilities(output)
        best = int(np.argmax(probabilities))
        return [self.classes.values[best], float(probabilities[best])]

    def label(self, taken: list[Any], context: Context) -> int | None:
        """Return the class."""
        return taken[0] if taken[0] is not None and taken[0] >= 0 else None

    def context(self) -> Context:
        """Return the number of classes, the last and the most frequent one."""
        return [len(self.classes), self.last, self.majority]

    def previous(self) -> np.ndarray:
        """Return a one in the place of the last class."""
        out = np.zeros(self.features)
        if self.last is not None:
            out[self.last] = 1.0
        return out

    def to_json(self) -> list[Any]:
        """Return what was learned."""
        return [self.classes.values, self.frequency, self.last, self.majority, dict(self.counts)]

    def restore(self, state: list[Any]) -> None:
        """Take up what `to_json` returned."""
        values, self.frequency, self.last, self.majority, counts = state
        self.classes, self.counts = Vocabulary(self.output_size, values), Counter(counts)


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
