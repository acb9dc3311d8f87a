"""Rows as vectors of a fixed width: running normalisation, missing values, categories, times.

    numeric      the number in standard deviations from its running mean, and 1 if it is missing
    categorical  one-hot in the order of appearance; the first place is for missing and unknown categories
    time         sine and cosine of the time of day, the day of the week and the day of the year, and 1 if it is missing

No value makes the network infinite: a value that is not a finite number is masked (0, and 1 in its "missing" place), an
outlier is clipped or masked, and both are counted.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import numpy as np

from foretrace._rows.running import Moments, Vocabulary
from foretrace._rows.schema import Column, as_number, as_text, as_time, infer_kind, is_missing

Outliers = Literal["clip", "mask", "stop"]

MAX_ABS_VALUE = 1e30
"""Absolute value from which a number counts as infinite, whatever was seen before."""

_DAY, _WEEK, _YEAR = 86400.0, 604800.0, 31556952.0
_TIME_SIZE = 7


class EncodingError(ValueError):
    """A value that the policy for outliers refuses."""


class Encoder:
    """Turn rows into vectors of a fixed width, learning as it goes.

    Args:
        columns: columns that are encoded.
        width: number of features; by default as many as the columns need. Columns that appear later take the rest.
        categories: number of features of a categorical column, the first of them for missing and unknown categories.
        outliers: what happens to a number more than `bound` standard deviations from its mean: "clip" moves it to the
            bound, so that the running mean follows a real change, "mask" treats it as missing, "stop" raises an error.
        bound: number of standard deviations beyond which a number is an outlier.
        adopt: whether columns that appear later are added, as long as there is room.
        ignore: columns that are never added.

    >>> encoder = Encoder([Column("x", "numeric"), Column("c", "categorical")], categories=3)
    >>> encoder.width
    5
    >>> for x in (1.0, 3.0):
    ...     vector = encoder({"x": x, "c": "red"})
    >>> vector.tolist()
    [1.0, 0.0, 0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        width: int | None = None,
        categories: int = 16,
        outliers: Outliers = "clip",
        bound: float = 10.0,
        adopt: bool = False,
        ignore: Iterable[Any] = (),
    ):
        if categories < 2:
            raise ValueError(f"categories={categories} must be at least 2: one is for the missing and the unknown")
        if not bound > 0:
            raise ValueError(f"bound={bound} must be a positive number of standard deviations")
        self.categories = categories
        self.outliers = outliers
        self.bound = bound
        self.adopt = adopt
        self.ignore = frozenset(ignore)
        self.columns: dict[Any, tuple[str, int]] = {}
        self.numbers: dict[Any, Moments] = {}
        self.words: dict[Any, Vocabulary] = {}
        self.counts: Counter[str] = Counter()
        self.used = 0
        columns = list(columns)
        self.width = sum(self._size(column.kind) for column in columns) if width is None else width
        for column in columns:
            if not self._add(column):
                raise ValueError(f"width={width} has no room for column {column.name!r}; make it larger")

    def __call__(self, row: Mapping[Any, Any], *, learn: bool = True) -> np.ndarray:
        """Return the vector of a row.

        Args:
            row: values of the columns; a column without a value is missing.
            learn: whether the row changes means, deviations and vocabularies for good. The vector is the same either
                way: that of the row after it was learned.

        Raises:
            EncodingError: a number is an outlier, and the policy is to stop.
        """
        if not learn:
            return self._draft()(row)
        self.look_at(row)
        out = [0.0] * self.width  # a list takes single values faster than an array
        for name, (kind, at) in self.columns.items():
            value = row.get(name)
            if kind == "numeric":
                out[at], out[at + 1] = self._number(name, value)
            elif kind == "categorical":
                out[at + self._category(name, value)] = 1.0
            else:
                out[at : at + _TIME_SIZE] = self._time(value)
        return np.array(out)

    def _draft(self) -> Self:
        """Return a copy that learns without changing this encoder, and refuses nothing."""
        draft = copy.copy(self)
        draft.outliers = "mask" if self.outliers == "stop" else self.outliers
        draft.columns, draft.counts = dict(self.columns), Counter()
        draft.numbers = {name: moments.copy() for name, moments in self.numbers.items()}
        draft.words = {name: Vocabulary(words.capacity, words.values) for name, words in self.words.items()}
        return draft

    def look_at(self, row: Mapping[Any, Any]) -> None:
        """Add the columns of a row that are not there yet, if columns that appear later are added."""
        if self.adopt and not row.keys() <= self.columns.keys() | self.ignore:
            self._adopt(row)

    @property
    def number_places(self) -> tuple[int, ...]:
        """Places of the numbers in a row's vector."""
        return tuple(at for kind, at in self.columns.values() if kind == "numeric")

    def _adopt(self, row: Mapping[Any, Any]) -> None:
        # Sorted by name: the order of the row's keys must not matter.
        for name in sorted(row.keys() - self.columns.keys() - self.ignore, key=str):
            if not self._add(Column(name, infer_kind([row[name]]))):
                self.counts["columns without room"] += 1

    def _add(self, column: Column) -> bool:
        size = self._size(column.kind)
        if self.used + size > self.width:
            return False
        self.columns[column.name] = (column.kind, self.used)
        self.used += size
        if column.kind == "numeric":
            self.numbers[column.name] = Moments()
        elif column.kind == "categorical":
            self.words[column.name] = Vocabulary(self.categories - 1)
        return True

    def _size(self, kind: str) -> int:
        return {"numeric": 2, "categorical": self.categories, "time": _TIME_SIZE}[kind]

    def _number(self, name: Any, value: Any) -> tuple[float, float]:
        # Most values are finite numbers, and no text that stands for a missing value is one.
        number = as_number(value)
        if (number is None or number != number) and is_missing(value):
            self.counts["missing"] += 1
            return 0.0, 1.0
        if number is None or not abs(number) < MAX_ABS_VALUE:
            self.counts["not a number" if number is None else "infinite"] += 1
            return self._refuse(name, value)
        moments = self.numbers[name]
        inside = moments.within(number, self.bound)
        if inside != number:
            self.counts["outliers"] += 1
            if self.outliers != "clip":
                return self._refuse(name, value)
        return clip(moments.score(moments.learn(number, self.bound)), self.bound), 0.0

    def _refuse(self, name: Any, value: Any) -> tuple[float, float]:
        if self.outliers == "stop":
            raise EncodingError(
                f"column {name!r} holds {str(value)[:80]!r}, which is not a number or more than {self.bound:g} "
                "standard deviations from its mean; clean the source, or choose --outliers clip or mask"
            )
        return 0.0, 1.0

    def _category(self, name: Any, value: Any) -> int:
        if is_missing(value):
            self.counts["missing"] += 1
            return 0
        slot = self.words[name].add(as_text(value))
        if slot is None:
            self.counts["unknown categories"] += 1
            return 0
        return 1 + slot

    def _time(self, value: Any) -> list[float]:
        seconds = None if is_missing(value) else as_time(value)
        if seconds is None:
            self.counts["missing"] += 1
            return [0.0] * (_TIME_SIZE - 1) + [1.0]
        angles = [2 * math.pi * (seconds % period) / period for period in (_DAY, _WEEK, _YEAR)]
        return [f(angle) for angle in angles for f in (math.sin, math.cos)] + [0.0]

    def to_json(self) -> dict[str, Any]:
        """Return what was learned, as JSON."""
        return {
            "columns": [[name, kind] for name, (kind, _) in self.columns.items()],
            "numbers": [moments.to_json() for moments in self.numbers.values()],
            "words": [words.values for words in self.words.values()],
            "counts": dict(self.counts),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an encoder made with the same arguments.

        Raises:
            ValueError: it had other columns.
        """
        for name, kind in state["columns"][len(self.columns) :]:
            self._add(Column(name, kind))
        if [[name, kind] for name, (kind, _) in self.columns.items()] != state["columns"]:
            raise ValueError(f"the columns are {list(self.columns)}, but were {[c[0] for c in state['columns']]}")
        for name, saved in zip(self.numbers, state["numbers"], strict=True):
            self.numbers[name].restore(saved)
        for name, values in zip(self.words, state["words"], strict=True):
            self.words[name] = Vocabulary(self.categories - 1, values)
        self.counts = Counter(state["counts"])


def clip(x: float, bound: float) -> float:
    """Return the number nearest to x in [-bound, bound]."""
    return min(max(x, -bound), bound)
