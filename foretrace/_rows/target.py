"""Predicted quantity: a class out of a set that grows, or numbers."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from foretrace._rows.saved import MOST, check_counts, check_within
from foretrace._rows.values import (
    MAX_ABS_VALUE,
    as_label,
    as_number,
    check_hashable,
    check_number,
    is_absent,
    is_missing,
    only_element,
)
from foretrace._rows.vocabulary import Vocabulary
from foretrace._runs.config_json import from_json


class Target(Protocol):
    """What `ClassTarget` and `NumberTarget` have in common.

    Args:
        output_size: number of numbers that are predicted, or maximum number of classes.
        counts: number of targets that could not be used, by reason.
        news: a sentence for the first of them of some reasons, to be said and removed.
    """

    output_size: int
    counts: Counter[str]
    news: list[str]

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a target is refused; nothing has changed then.

        Args:
            value: target that comes now, and may be learned later.
            name: name of the target in the error.
        """

    def read(self, value: Any, *, learn: bool = True) -> float:
        """Return a target as a number; NaN if it is missing.

        Args:
            value: target that has come.
            learn: whether it is counted, and a new class gets a place.
        """

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


class SavedClasses(NamedTuple):
    """Saved form of a target of classes."""

    classes: list[str | bool | int | float]
    num_labels: int
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
    >>> [target.read(y) for y in ("up", "-", "up", None)]
    [0.0, 1.0, 0.0, nan]
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
        self.output_size = self.first_size = capacity
        self.as_text = as_text
        self.grows = grows
        self.look_ahead = look_ahead
        self._later_numbers = 0
        self._is_memory_full = False
        self.has_room: Callable[[int], bool] = _nowhere
        self.classes = self._vocabulary()
        self.counts = Counter[str]()
        self.news: list[str] = []
        self.num_labels = 0

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a value cannot be a class.

        Raises:
            TypeError: it cannot be hashed, and classes are not compared by their text.
        """
        if not self.as_text:
            check_hashable(value, name)

    def read(self, value: Any, *, learn: bool = True) -> float:
        """Return a class's index: -1 if there is no room for it, NaN if the value is missing."""
        if not learn:
            index = None if is_absent(value) else self.classes.get(self._plain(value))
            return math.nan if index is None else float(index)
        if is_absent(value):
            self.counts["missing targets"] += 1
            return math.nan
        known = len(self.classes)
        index = self.classes.add(self._plain(value))
        if index in (None, known) and self.look_ahead is not None:
            self._doubt(value, known)
        if index is None and self._grow(value):
            index = self.classes.add(self._plain(value))
        if index is None:
            self._count_without_room(value)
            return -1.0
        self.num_labels += 1
        return float(index)

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
        labels = self.num_labels + self.counts["missing targets"]
        if self.look_ahead is None or labels < self.look_ahead:
            return
        numbers = [as_number(one) for one in (value, *self.classes.values[:known])]
        finite = [one for one in numbers if one is not None and math.isfinite(one)]
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
        if not self.grows or (size >= MANY and self.num_labels < 2 * size):
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
        self.output_size = self.classes.capacity = capacity

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

    def to_json(self) -> SavedClasses:
        """Return the learned state."""
        return SavedClasses(self.classes.values, self.num_labels, dict(self.counts))

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedClasses, state)
        size = self.first_size  # it has grown for the first class without a place
        while self.grows and size < len(saved.classes):
            size *= 2
        check_within("num_labels", [saved.num_labels], 0, MOST)
        check_counts("counts", saved.counts)
        self.output_size = size
        self.classes = self._vocabulary(saved.classes)
        self.num_labels, self.counts = saved.num_labels, Counter(saved.counts)


class SavedNumbers(NamedTuple):
    """Saved form of a target of numbers."""

    counts: dict[str, int]


class NumberTarget:
    """A number now, or at each of the next steps.

    Args:
        outputs: how many numbers are predicted: one, or one for each step ahead.
        strict: whether a target that is neither a number nor missing is refused instead of counted.
    """

    def __init__(self, outputs: int = 1, *, strict: bool = False):
        self.output_size = outputs
        self.strict = strict
        self.counts = Counter[str]()
        self.news: list[str] = []

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a target is neither a number nor missing, and such a one is refused.

        Raises:
            ValueError: the target is something else.
        """
        if self.strict:
            check_number(value, name)

    def read(self, value: Any, *, learn: bool = True) -> float:
        """Return a target as a number; NaN if it is missing, infinite, or no number."""
        number = as_number(value)  # no text that stands for a missing value is a finite number
        if number is not None and abs(number) < MAX_ABS_VALUE:
            return number
        if learn:
            self._count_unusable(value, number)
        return math.nan

    def _count_unusable(self, value: Any, number: float | None) -> None:
        if is_missing(value):
            self.counts["missing targets"] += 1
        elif number is not None:
            self.counts["infinite targets"] += 1
        else:
            self.counts["targets that are no number"] += 1
            if self.counts["targets that are no number"] == 1:
                self.news.append(
                    f"the target holds {repr(value)[:80]}, which is no number: nothing is learned "
                    "from this row, nor from later ones like it"
                )

    def to_json(self) -> SavedNumbers:
        """Return the learned state."""
        return SavedNumbers(dict(self.counts))

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedNumbers, state)
        check_counts("counts", saved.counts)
        self.counts = Counter(saved.counts)
