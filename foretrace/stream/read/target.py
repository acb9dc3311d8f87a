"""The predicted quantity: a class from a growing set, or numbers."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from foretrace.stream.read.learned import Counting, check_fits
from foretrace.stream.read.values import (
    MAX_ABS_VALUE,
    as_label,
    as_number,
    check_hashable,
    check_number,
    is_absent,
    is_missing,
    only_element,
    shown,
)

ROOM = 16
"""Number of classes for which there is room, unless there are two, or more than half of them."""

SURE = 20
"""Number of first labels after which two classes are taken for all that there are."""


def class_room(values: Sequence[Any]) -> int:
    """Return the maximum number of classes for given first labels.

    >>> class_room(["a", "b", None]), class_room(["a", "b"] * 10), class_room(range(20))
    (16, 2, 40)
    """
    labels = [as_label(value) for value in values if not is_absent(value)]
    found = len({*labels})
    return 2 if found == 2 and len(labels) >= SURE else max(ROOM, 2 * found)


def _nowhere(capacity: int) -> bool:
    return False


def _names_of(value: Any) -> set[str]:
    """Return the texts by which an option may name a class: those of Python and of JSON."""
    return {str(value), str(value).lower()} if isinstance(value, bool) else {str(value)}


MANY = 256
"""Capacity above which classes must repeat for more: names of rows cannot be learned."""


@dataclasses.dataclass(init=False, eq=False)
class ClassTarget(Counting):
    """A class. Classes are numbered in the order of their appearance, up to a capacity.

    Every value is a class, also " " or "?". Only None, NaN and the empty text are missing.

    Args:
        capacity: maximum number of classes. Later classes are not learned. Their labels are
            counted, and count as wrongly predicted.
        grows: whether the capacity doubles, to `ROOM` at least, for a later class if `has_room`
            returns True. From a capacity of `MANY` on, the known classes must also have occurred
            twice on average.
        look_ahead: number of labels after which a new class may show that the classes are numbers.
            This is reported once. None if the target certainly has classes.
        as_text: whether classes are compared by their text (`as_label`), as for rows of files,
            where the number 1 equals the text "1". If not, they are compared as keys of a
            dictionary. In both cases 1, 1.0 and True are one class, which is predicted in the form
            of its first label.
        alarms: texts of the classes with an alarm.

    Attributes:
        classes: classes in the order of their appearance, each in the form of its first label.
        num_labels: number of labels whose class has a place.

    >>> target = ClassTarget(4)
    >>> [target.read(y) for y in ("up", "-", "up", None)]
    [0.0, 1.0, 0.0, nan]
    """

    classes: list[str | bool | int | float]
    num_labels: int

    def __init__(
        self,
        capacity: int,
        *,
        as_text: bool = True,
        grows: bool = False,
        look_ahead: int | None = None,
        alarms: Iterable[str] = (),
    ):
        if capacity < 2:
            raise ValueError(f"classes={capacity} must be at least 2")
        super().__init__()
        self.output_size = self.first_size = capacity
        self.as_text = as_text
        self.grows = grows
        self.look_ahead = look_ahead
        self.alarms = tuple(alarms)
        self._later_numbers = 0
        self._is_memory_full = False
        self.has_room: Callable[[int], bool] = _nowhere
        self.classes, self.num_labels = [], 0
        self._places: dict[Any, int] = {}
        self._shown: dict[str, int] = {}

    def lacks(self, value: Any) -> bool:
        """Return whether a value is no label, because it is missing."""
        return is_absent(value)

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a value cannot be a class.

        Raises:
            TypeError: the value cannot be hashed, and classes are not compared by their text.
        """
        if not self.as_text:
            check_hashable(value, name)

    def read(self, value: Any, *, learn: bool = True) -> float:
        """Return the index of a class: -1 if it has no place, NaN if the value is missing."""
        if is_absent(value):
            self.counts["missing targets"] += learn
            return math.nan
        plain = self.plain(value)
        key = as_label(plain) if self.as_text else plain
        place = self._places.get(key)
        if place is None:
            if not learn:
                return math.nan
            self._doubt(value)
            if len(self.classes) == self.output_size and not self._grow(value):
                self._count_without_room(value)
                return -1.0
            place, names = len(self.classes), _names_of(plain)  # some integers have no text
            self._places[key] = place
            self._shown |= dict.fromkeys(names, place)
            self.classes.append(plain)
        self.num_labels += learn
        return float(place)

    @property
    def watched(self) -> list[int]:
        """Index of each class with an alarm, found by its text; -1 before its first label."""
        return [self._places.get(as_label(a), self._shown.get(a, -1)) for a in self.alarms]

    def plain(self, value: Any) -> Any:
        """Return a class in the stored form, which is JSON if classes are compared by text."""
        if is_absent(value):
            return None
        value = only_element(value)
        if isinstance(value, np.generic) and value.dtype.kind not in "mM":
            value = value.item()  # NumPy's numbers do not compare with all of Python's
        if not self.as_text or (isinstance(value, bool | int | float) and abs(value) < 2**53):
            return value
        return as_label(value)

    def _doubt(self, value: Any) -> None:
        """Warn if new classes look like numbers rather than names.

        A single new whole number may be a rare class, so the warning begins with two.
        """
        labels = self.num_labels + self.counts["missing targets"]
        if self.look_ahead is None or labels < self.look_ahead:
            return
        numbers = [as_number(one) for one in (value, *self.classes)]
        finite = [one for one in numbers if one is not None and math.isfinite(one)]
        if len(finite) < len(numbers) or not self.classes:
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

    @property
    def _larger(self) -> int:
        return max(ROOM, 2 * self.output_size)

    def _grow(self, value: Any) -> bool:
        """Double the capacity if classes repeat and there is memory; return whether it grew."""
        size, larger = self.output_size, self._larger
        if not self.grows or (size >= MANY and self.num_labels < 2 * size):
            return False
        if self._is_memory_full or not self.has_room(larger):
            self._is_memory_full = True
            return False
        self.output_size = larger
        self.news.append(
            f"the class {shown(value)} is one more than the {size} there was room for: from "
            f"here on there is room for {larger}, in a new program; what was learned is kept. "
            "Give the number of `classes` for room from the beginning"
        )
        return True

    def _count_without_room(self, value: Any) -> None:
        advice = "room grows once the known ones have come twice on average"
        if not self.grows or self._is_memory_full:
            advice = "there is no memory for more" if self.grows else "raise `classes`"
        self._tell(
            "classes without room",
            f"the class {shown(value)} is one more than the {self.output_size} there is room "
            f"for, so it is neither learned nor predicted, as are all later ones; {advice}",
        )

    def probabilities(self, output: np.ndarray, count: int | None = None) -> np.ndarray:
        """Return the probabilities of the first `count` classes. Default: all known classes."""
        logits = np.asarray(output, np.float64)[: len(self.classes) if count is None else count]
        weights = np.exp(logits - logits.max(initial=-np.inf))
        return weights / weights.sum()

    def _restored(self) -> None:
        self.output_size = self.first_size  # it has grown for a class without a place
        while self.grows and self.output_size < len(self.classes):
            self.output_size = self._larger
        self._places = {as_label(value): i for i, value in enumerate(self.classes)}
        self._shown = {name: i for i, one in enumerate(self.classes) for name in _names_of(one)}
        fits = len(self._places) == len(self.classes) <= self.output_size
        check_fits(fits, "classes", self.classes, f"distinct, and at most {self.output_size}")


class NumberTarget(Counting):
    """A number, or a number at each of the next steps.

    Args:
        outputs: number of predicted numbers: one, or one for each step ahead.
        strict: whether a target that is neither a number nor missing raises an error. If not, it is
            counted.
        at_least: lower bound of predictions. The first number below it causes a warning.
    """

    watched = ()  # no class has an alarm

    def __init__(self, outputs: int = 1, *, strict: bool = False, at_least: float | None = None):
        super().__init__()
        self.at_least = at_least
        self.output_size = outputs
        self.strict = strict

    def lacks(self, value: Any) -> bool:
        """Return whether a value is no label, because it is missing."""
        return is_missing(value)

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a target is refused because it is neither a number nor missing.

        Raises:
            ValueError: the target is neither a number nor missing.
        """
        if self.strict:
            check_number(value, name)

    def read(self, value: Any, *, learn: bool = True) -> float:
        """Return a target as a number; NaN if it is missing, infinite, or not a number."""
        number = as_number(value)  # no text that means "missing" is a finite number
        if number is not None and abs(number) < MAX_ABS_VALUE:
            if learn and self.at_least is not None and number < self.at_least:
                self._tell(
                    "targets below the bound",
                    f"the target is {number:g}, and no prediction is below at_least="
                    f"{self.at_least:g}; choose a lower bound, or none",
                )
            return number
        if learn:
            self._count_unusable(value, number)
        return math.nan

    def plain(self, value: Any) -> float | str | None:
        """Return a pending target in the stored form, which is JSON."""
        number = as_number(value)
        return None if is_missing(value) else as_label(value) if number is None else number

    def _count_unusable(self, value: Any, number: float | None) -> None:
        if is_missing(value):
            self.counts["missing targets"] += 1
        elif number is not None:
            self.counts["infinite targets"] += 1
        else:
            self._tell(
                "targets that are no number",
                f"the target holds {shown(value)}, which is no number: nothing is learned from "
                "this row, nor from later ones like it",
            )


Target = ClassTarget | NumberTarget
"""A predicted quantity."""
