"""Predicted quantity: a class out of a set that grows, or numbers in a running scale."""

from collections import Counter
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from foretrace._rows.running import Vocabulary
from foretrace._rows.saved import MOST, check_counts, check_size, check_within
from foretrace._rows.values import as_label, as_number, check_hashable, is_absent, only_element
from foretrace._runs.config_json import from_json


class ClassContext(NamedTuple):
    """Knowledge of the classes when a prediction was made.

    Args:
        num_classes: number of classes seen so far.
        last: index of the last known class; None before the first.
        majority: index of the most frequent class; None before the first.
    """

    num_classes: int
    last: int | None
    majority: int | None


class NumberContext(NamedTuple):
    """Knowledge of the numbers when a prediction was made.

    Args:
        mean: running mean.
        last: last known number; None before the first.
        deviation: running standard deviation; 1 while all numbers were the same.
        margins: how far the prediction interval reaches below and above the prediction, for each
            step ahead.
        came: number that came with the row, if its next rows are predicted; None if it is missing.
    """

    mean: float
    last: float | None
    deviation: float = 1.0
    margins: list[list[float]] | None = None
    came: float | None = None


Context = ClassContext | NumberContext
"""Knowledge of the target at a prediction, which later scores need."""


class Target(Protocol):
    """What `ClassTarget` and `NumberTarget` have in common.

    Args:
        output_size: number of numbers that are predicted, or maximum number of classes.
        features: number of inputs that tell the last known target.
        last: last known target of the stream that is read; `DelayedLabels` sets it to the one of
            its stream.
        counts: number of targets that could not be used, by reason.
        news: a sentence for the first of them of some reasons, to be said and removed.
    """

    output_size: int
    features: int
    last: Any
    counts: Counter[str]
    news: list[str]

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a target is refused; nothing has changed then.

        Args:
            value: target that comes now, and may be learned later.
            name: name of the target in the error.
        """

    def learn(self, value: Any) -> Any:
        """Learn a target that has come; return it as scores need it, None if it is missing."""

    def observe(self, value: Any) -> None:
        """Set the last known target, and learn nothing else of it."""

    def describe(self, output: np.ndarray, context: Any = None) -> list[Any]:
        """Return a prediction as values of the target.

        Args:
            output: predicted numbers, or logits of the classes.
            context: knowledge of the target when it was predicted. Default: the present knowledge.
        """

    def learn_output(self, output: np.ndarray, targets: list[Any], context: Any) -> None:
        """Learn how far a prediction was from its label, for prediction intervals.

        Args:
            output: prediction of the row.
            targets: values of the row's label.
            context: knowledge of the target when the row was predicted.
        """

    def context(self) -> Context:
        """Return the present knowledge."""

    def context_from_json(self, values: Any) -> Context:
        """Return a context that was saved as JSON."""

    def targets_from_json(self, targets: list[Any]) -> list[Any]:
        """Return the targets of a row that were saved as JSON."""

    def last_from_json(self, value: Any) -> Any:
        """Return a last known target that was saved as JSON."""

    def previous(self) -> np.ndarray:
        """Return the last known target as inputs."""

    def to_json(self) -> Any:
        """Return the learned state."""

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned."""


def class_room(values: Iterable[Any]) -> int:
    """Return the maximum number of classes of a stream whose first labels are given.

    >>> class_room(["a", "b", None]), class_room(range(20))
    (16, 40)
    """
    return max(16, 2 * len({as_label(value) for value in values if not is_absent(value)}))


def _nowhere(capacity: int) -> bool:
    return False


MANY = 256
"""Capacity from which it grows only while classes repeat: names of rows cannot be learned."""

_INDEX: Any = int | None
_TARGETS: Any = list[int | None]
"""Types of what is saved of the classes of a stream."""


class SavedClasses(NamedTuple):
    """Saved form of a target of classes."""

    classes: list[str | bool | int | float]
    frequency: list[int]
    last: int | None
    majority: int | None
    counts: dict[str, int]


class ClassTarget:
    """A class; classes are numbered in the order of their appearance, up to a capacity.

    Every value is a class as it is, such as " " or "?", but for None, NaN and the empty text: these
    are missing.

    Args:
        capacity: maximum number of classes. Later ones are counted, and count as wrongly predicted;
            they are not learned.
        grows: whether the capacity doubles for a later class, if `has_room` says so. From `MANY`
            on, the known classes must have come twice on average.
        look_ahead: number of labels from which a new class may show that numbers were taken for
            classes, which is told once; None if they are classes for sure.
        as_text: whether classes are compared by their text, `as_label`, as for rows of files: the
            number 1 is also the text "1". Otherwise they are compared as keys of a dictionary.
            Either way 1, 1.0 and True are one class, which is predicted as it came first.

    >>> target = ClassTarget(4)
    >>> [target.learn(y) for y in ("up", "-", "up", None)]
    [0, 1, 0, None]
    >>> target.context()
    ClassContext(num_classes=2, last=0, majority=0)
    """

    def __init__(
        self,
        capacity: int,
        *,
        as_text: bool = True,
        grows: bool = False,
        look_ahead: int | None = None,
    ):
        if capacity < 2:
            raise ValueError(f"classes={capacity} must be at least 2")
        self.output_size = self.features = self.first_size = capacity
        self.as_text = as_text
        self.grows = grows
        self.look_ahead = look_ahead
        self._later_numbers = 0
        self._is_memory_full = False
        self.has_room: Callable[[int], bool] = _nowhere
        self.classes = self._vocabulary()
        self.counts = Counter[str]()
        self.news: list[str] = []
        self.frequency = [0] * capacity
        self.last: int | None = None
        self.majority: int | None = None

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a value cannot be a class.

        Raises:
            TypeError: it cannot be hashed, and classes are not compared by their text.
        """
        if not self.as_text:
            check_hashable(value, name)

    def learn(self, value: Any) -> int | None:
        """Return a class's index: -1 if there is no room for it, None if the value is missing."""
        if is_absent(value):
            self.counts["missing targets"] += 1
            return None
        known = len(self.classes)
        index = self.classes.add(self._plain(value))
        if index in (None, known) and self.look_ahead is not None:
            self._doubt(value, known)
        if index is None and self._grow(value):
            index = self.classes.add(self._plain(value))
        if index is None:
            self._count_without_room(value)
            return -1
        self.last = index
        self.frequency[index] += 1
        if self.majority is None or self.frequency[index] > self.frequency[self.majority]:
            self.majority = index
        return index

    def observe(self, value: Any) -> None:
        """Set the last class, if it is a known one."""
        index = None if is_absent(value) else self.classes.get(self._plain(value))
        self.last = self.last if index is None else index

    def _plain(self, value: Any) -> Any:
        """Return a class as it is stored: as JSON can hold it, if compared by text."""
        value = only_element(value)
        if isinstance(value, np.generic) and value.dtype.kind not in "mM":
            value = value.item()  # NumPy's own numbers do not compare with all of Python's
        if not self.as_text or (isinstance(value, bool | int | float) and abs(value) < 2**53):
            return value
        return as_label(value)

    def _vocabulary(self, values: list[Any] | None = None) -> Vocabulary:
        return Vocabulary(self.output_size, values, key=as_label if self.as_text else None)

    def _doubt(self, value: Any, known: int) -> None:
        """Tell if a new class is a number among numbers that classes would hardly be named by.

        One more whole number beside the others may be a rare class; two are told.
        """
        labels = sum(self.frequency) + self.counts["missing targets"]
        if self.look_ahead is None or labels < self.look_ahead:
            return
        numbers = [as_number(one) for one in (value, *self.classes.values[:known])]
        finite = [one for one in numbers if one is not None and isfinite(one)]
        if len(finite) < len(numbers) or not known:
            return
        number, *others = finite
        is_beside = number % 1 == 0 and min(others) - 1 <= number <= max(others) + 1
        self._later_numbers += 1
        if is_beside and self._later_numbers < 2:
            return
        self.look_ahead = None
        self.news.append(
            f"the target is {str(value)[:80]}, a number that was not among the first labels, and "
            "is taken for a class; if it is a number, begin again with --task regression, else "
            "say --task classification"
        )

    def _grow(self, value: Any) -> bool:
        """Double the capacity, if classes repeat and there is room."""
        size = self.output_size
        if not self.grows or (size >= MANY and sum(self.frequency) < 2 * size):
            return False
        if self._is_memory_full or not self.has_room(2 * size):
            self._is_memory_full = True
            return False
        self._resize(2 * size)
        self.news.append(
            f"the class {repr(value)[:80]} is one more than the {size} there was room for: from "
            f"here on there is room for {2 * size}, in a new program; what was learned is kept. "
            "Give the number of `classes` for room from the beginning"
        )
        return True

    def _resize(self, capacity: int) -> None:
        self.frequency += [0] * (capacity - self.output_size)
        self.output_size = self.features = self.classes.capacity = capacity

    def _count_without_room(self, value: Any) -> None:
        self.counts["classes without room"] += 1
        if self.counts["classes without room"] == 1:
            advice = "room grows once the known ones have come twice on average"
            if not self.grows or self._is_memory_full:
                advice = "there is no memory for more" if self.grows else "raise `classes`"
            self.news.append(
                f"the class {repr(value)[:80]} is one more than the {self.output_size} there is "
                f"room for, so it is neither learned nor predicted, as are all later ones; {advice}"
            )

    def probabilities(self, output: np.ndarray, count: int | None = None) -> np.ndarray:
        """Return the probabilities of the first `count` classes. Default: of all that are known."""
        logits = np.asarray(output, np.float64)[: len(self.classes) if count is None else count]
        weights = np.exp(logits - logits.max(initial=-np.inf))
        return weights / weights.sum()

    def describe(self, output: np.ndarray, context: ClassContext | None = None) -> list[Any]:
        """Return the most probable class and its probability."""
        count = len(self.classes) if context is None else context.num_classes
        if not count:
            return [None, None]
        probabilities = self.probabilities(output, count)
        best = int(np.argmax(probabilities))
        return [self.classes.values[best], float(probabilities[best])]

    def learn_output(self, output: np.ndarray, targets: list[Any], context: ClassContext) -> None:
        """Do nothing: the probabilities of the classes already describe the error."""

    def context(self) -> ClassContext:
        """Return the number of classes, the last and the most frequent one."""
        return ClassContext(len(self.classes), self.last, self.majority)

    def context_from_json(self, values: Any) -> ClassContext:
        """Return a context that was saved as JSON.

        Raises:
            ValueError: it is nothing that `context` returns.
        """
        context = from_json(ClassContext, values)
        check_within("num_classes", [context.num_classes], 0, self.output_size)
        for index in (context.last, context.majority):
            self._check_index(index)
        return context

    def targets_from_json(self, targets: list[Any]) -> list[int | None]:
        """Return the target of a row that was saved as JSON.

        Raises:
            ValueError: it is nothing that `learn` returns.
        """
        indices = from_json(_TARGETS, targets)
        check_size("targets", indices, 1)
        self._check_index(indices[0], least=-1)
        return indices

    def last_from_json(self, value: Any) -> int | None:
        """Return a last class that was saved as JSON.

        Raises:
            ValueError: it is none.
        """
        index = from_json(_INDEX, value)
        self._check_index(index)
        return index

    def _check_index(self, index: int | None, least: int = 0) -> None:
        check_within("class", [] if index is None else [index], least, self.output_size - 1)

    def previous(self) -> np.ndarray:
        """Return the last class, one-hot; zeros if there is none."""
        out = np.zeros(self.features)
        if self.last is not None:
            out[self.last] = 1.0
        return out

    def to_json(self) -> SavedClasses:
        """Return the learned state."""
        return SavedClasses(
            self.classes.values, self.frequency, self.last, self.majority, dict(self.counts)
        )

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedClasses, state)
        size = self.first_size
        while self.grows and size < len(saved.frequency):
            size *= 2
        check_size("frequency", saved.frequency, size)
        self.output_size = self.features = size
        check_within("frequency", saved.frequency, 0, MOST)
        check_counts("counts", saved.counts)
        self._check_index(saved.majority)
        self.last = self.last_from_json(saved.last)
        self.classes = self._vocabulary(saved.classes)
        self.frequency, self.majority = saved.frequency, saved.majority
        self.counts = Counter(saved.counts)
