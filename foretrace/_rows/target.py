"""What is predicted: a class out of a set that grows, or numbers in a running scale; and what is known of it so far."""

from collections import Counter
from typing import Any, Protocol

import numpy as np

from foretrace._rows.running import Vocabulary
from foretrace._rows.schema import is_missing

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
