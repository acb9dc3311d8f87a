"""Encoding of a row's values as numbers, in a vector of fixed width.

   numeric      the number itself (NaN if missing), and a place for the missing flag
    categorical  one-hot, in the order of appearance; the first is for missing and unknown values
    time         sine and cosine of the time of day, week and year, and a missing flag
    text         count of each word at the place of its hash, over the root of all words' count
    undecided    as a missing number, until the first value determines the kind

A value that is not a finite number counts as missing. The compiled program of the stream converts
numbers into running units (standard deviations from the running mean).
"""

import copy
import dataclasses
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import numpy as np

from foretrace.stream.read.learned import Counting, check_fits
from foretrace.stream.read.row import RawRow
from foretrace.stream.read.schema import Column, Kind, infer_kind
from foretrace.stream.read.values import (
    MAX_ABS_VALUE,
    as_number,
    as_text,
    as_time,
    as_words,
    is_absent,
    is_missing,
    shown,
)

Outliers = Literal["auto", "clip", "mask", "stop"]

CATEGORIES = 16
"""Default number of inputs of a categorical column."""

WORDS = 8192
"""Default number of inputs for the words of a column of texts."""

SPARE_FEATURES = 32
"""Number of inputs for columns that appear after the first rows."""

_DAY, _WEEK, _YEAR = 86400.0, 604800.0, 31556952.0
_TIME_SIZE = 7


def room(columns: Iterable[Column], categories: int = CATEGORIES, hashed: int = WORDS) -> int:
    """Return the largest number of inputs that columns may need.

    >>> room([Column("x", "numeric"), Column("c", "categorical"), Column("u", "undecided")])
    36
    """
    spare = max(categories, _TIME_SIZE)
    sizes = _sizes(categories, hashed)
    return sum(sizes[c.kind] + spare * (c.kind == "undecided") for c in columns)


def _sizes(categories: int, hashed: int) -> dict[Kind, int]:
    """Return the number of inputs of a column of each kind."""
    return {
        "numeric": 2,
        "undecided": 2,
        "categorical": categories,
        "time": _TIME_SIZE,
        "text": hashed,
    }


class EncodingError(ValueError):
    """A value is refused because of `outliers="stop"`."""


@dataclasses.dataclass(init=False, eq=False)
class Encoder(Counting):
    """Turn rows into vectors of a fixed width, and learn new columns and categories on the way.

    Args:
        columns: columns that are encoded. The first value of an undecided column determines its
            kind.
        width: number of features. Columns that appear later use the features that are still free.
            Default: the number that the columns need.
        categories: number of features of a categorical column, of which the first is for missing
            and unknown categories.
        hashed: number of features of a column of texts, which come last in a row. Words with the
            same hash share a feature.
        stops: whether an error is raised if the value of a numeric column is not a finite number.
            If not, the value is missing.
        adopt: whether columns that appear later are added while there are free features.
        ignore: columns that are never added.
        unlagged: columns whose earlier values are in other columns of the row.

    Attributes:
        columns: kind of each column, and its first place in the vector of a row.
        words: categories of each categorical column, numbered from 1 in the order of appearance.
        used: number of features that are used by all columns except texts.

    >>> encoder = Encoder([Column("x", "numeric"), Column("c", "categorical")], categories=3)
    >>> encoder.width
    5
    >>> for x in (1.0, 3.0):
    ...     vector = encoder.encode({"x": x, "c": "red"}).x
    >>> vector.tolist()
    [3.0, 0.0, 0.0, 1.0, 0.0]
    """

    columns: dict[Any, tuple[Kind, int]]
    words: dict[Any, dict[str, int]]
    used: int

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        width: int | None = None,
        categories: int = CATEGORIES,
        hashed: int = WORDS,
        stops: bool = False,
        adopt: bool = False,
        ignore: Iterable[Any] = (),
        unlagged: Iterable[Any] = (),
    ):
        if categories < 2:
            raise ValueError(
                f"categories={categories} must be at least 2: one is for the missing and the "
                "unknown"
            )
        super().__init__()
        self.categories = categories
        self.sizes = _sizes(categories, hashed)
        self.stops = stops
        self.adopt = adopt
        self.ignore = frozenset(ignore)
        self.unlagged = frozenset(unlagged)
        self.given = list(columns)
        self.columns, self.words, self.used = {}, {}, 0
        self.num_words = hashed * sum(column.kind == "text" for column in self.given)
        self.width = room(self.given, categories, hashed) if width is None else width
        self._look_up()
        for column in self.given:
            if not self._add(column):
                raise ValueError(
                    f"width={width} has no room for column {column.name!r}; make it larger"
                )

    def encode(self, row: Mapping[Any, Any], *, learn: bool = True) -> RawRow:
        """Return a row as numbers.

        Args:
            row: values of the columns. A column without a value is missing.
            learn: whether new columns and categories of the row are remembered. The vector is the
                same in both cases, and includes what the row adds.

        Raises:
            EncodingError: a value is not a finite number, and `stops` is true.
        """
        if not learn:
            return self._draft().encode(row)
        self.look_at(row)
        out = [0.0] * (
            self.width - self.num_words
        )  # faster than an array if values are set one by one
        for name, (kind, at) in self.columns.items():
            value = row.get(name)
            if kind == "numeric":
                out[at] = self._number(name, value)
            elif kind == "categorical":
                out[at + self._category(name, value)] = 1.0
            elif kind == "time":
                out[at : at + _TIME_SIZE] = self._time(name, value)
            elif kind == "undecided":
                out[at + 1] = 1.0
                self.counts["missing"] += 1
        found = np.zeros(self.width)
        found[: len(out)] = out
        for name, (kind, at) in self.columns.items():
            if kind == "text":
                self._count_words(found[at : at + self.sizes[kind]], row.get(name))
        return RawRow(found, self._is_number)

    def _draft(self) -> Self:
        """Return a copy that learns independently and accepts every value."""
        draft = copy.copy(self)
        draft.stops = False
        draft.columns, draft.counts, draft.news = dict(self.columns), Counter(), []
        draft.words = {name: dict(words) for name, words in self.words.items()}
        return draft

    def has_values(self, row: Mapping[Any, Any]) -> bool:
        """Return whether a row has a value in any of the columns."""
        return any(
            not (is_absent if kind in ("categorical", "text") else is_missing)(row.get(name))
            for name, (kind, _) in self.columns.items()
        )

    def look_at(self, row: Mapping[Any, Any]) -> None:
        """Determine the kind of columns with a first value; add new columns if `adopt` is true."""
        for name in self.undecided:
            if not is_missing(row.get(name)):
                self._decide(name, row[name])
        if self.adopt and not row.keys() <= self.columns.keys() | self.ignore:
            self._adopt(row)

    @property
    def number_places(self) -> tuple[int, ...]:
        """Places of numbers with lags in the vector of a row, including undecided columns."""
        lagged = (place for name, place in self.columns.items() if name not in self.unlagged)
        return tuple(at for kind, at in lagged if kind in ("numeric", "undecided"))

    @property
    def category_places(self) -> tuple[tuple[int, int], ...]:
        """Place and number of the indicators of each categorical column in the vector of a row."""
        places = (at for kind, at in self.columns.values() if kind == "categorical")
        return tuple((at, self.categories) for at in places)

    def _adopt(self, row: Mapping[Any, Any]) -> None:
        # Sorted by name, because the order of the row's keys must not matter.
        for name in sorted(row.keys() - self.columns.keys() - self.ignore, key=str):
            self._add(Column(name, infer_kind([row[name]])))

    def _decide(self, name: Any, value: Any) -> None:
        """Give an undecided column the kind of its first value. A number keeps its place."""
        kind = infer_kind([value])
        self._add(Column(name, kind), self.columns[name][1] if kind == "numeric" else None)

    def _add(self, column: Column, at: int | None = None) -> bool:
        """Add a column, at a given place if there is one; return whether there was room."""
        name, kind = column
        at = self._take(kind) if at is None else at
        if at is not None:
            self.columns[name] = (kind, at)
            if kind == "categorical":
                self.words[name] = {}
            self._look_up()
        elif kind != "undecided":  # a column without a value loses nothing yet
            self._tell(
                "values of columns without room",
                f"{shown(name)} finds no room in {self.width} inputs and is left out, as is every "
                "later column that needs more; in Python, raise `features`",
            )
        return at is not None

    def _take(self, kind: Kind) -> int | None:
        """Return the place of a new column of a kind; None if there is no free place."""
        at, size = self.used, self.sizes[kind]
        if kind == "text":
            others = sum(other == "text" for other, _ in self.columns.values())
            return self.width - (others + 1) * size
        if at + size > self.width - self.num_words:
            return None
        self.used += size
        return at

    def _look_up(self) -> None:
        """Prepare the lookup of columns in rows; a copy has a separate lookup."""
        kinds = {name: kind for name, (kind, _) in self.columns.items()}
        self.undecided = [name for name, kind in kinds.items() if kind == "undecided"]
        self._is_number = np.zeros(self.width - self.num_words)
        self._is_number[[at for kind, at in self.columns.values() if kind == "numeric"]] = 1.0

    def _number(self, name: Any, value: Any) -> float:
        """Return a number; NaN if the value is missing or not a number."""
        # Most values are finite numbers, and no text that means "missing" is a finite number.
        number = as_number(value)
        if number is not None and abs(number) < MAX_ABS_VALUE:
            return number
        if (number is None or number != number) and is_missing(value):
            self.counts["missing"] += 1
            return math.nan
        if number is not None:
            self.counts["infinite"] += 1
        else:
            self._tell(
                "not a number",
                f"{shown(name)} is a column of numbers and holds {shown(value)}, which "
                "counts as missing, as does every later value that is no number",
            )
        if self.stops:
            raise EncodingError(
                f"column {name!r} holds {str(value)[:80]!r}, which is no finite number; clean the "
                "source, or choose --outliers clip or mask"
            )
        return math.nan

    def _category(self, name: Any, value: Any) -> int:
        if is_absent(value):
            self.counts["missing"] += 1
            return 0
        words, word = self.words[name], as_text(value)
        number = words.get(word)
        if number is None:
            if len(words) == self.categories - 1:
                self._tell(
                    "unknown categories",
                    f"{shown(name)} has more than {len(words)} categories: {shown(value)} and all "
                    "other new ones count as unknown; begin a run with more --categories",
                )
                return 0
            number = words[word] = len(words) + 1
        return number

    def _time(self, name: Any, value: Any) -> list[float]:
        seconds = None if is_missing(value) else as_time(value)
        if seconds is None:
            if is_missing(value):
                self.counts["missing"] += 1
            else:
                self._tell(
                    "not a date",
                    f"{shown(name)} is a column of dates and holds {shown(value)}, which counts "
                    "as missing, as does every later value that is not read as a date",
                )
            return [0.0] * (_TIME_SIZE - 1) + [1.0]
        angles = [2 * math.pi * (seconds % period) / period for period in (_DAY, _WEEK, _YEAR)]
        return [f(angle) for angle in angles for f in (math.sin, math.cos)] + [0.0]

    def _count_words(self, out: np.ndarray, value: Any) -> None:
        """Write the inputs of a text, from the hashes of its words."""
        words = as_words(value)
        self.counts["missing"] += not words
        for word, count in Counter(words).items():
            # Python's own hash differs between processes.
            place = zlib.crc32(word.encode(errors="surrogatepass")) % len(out)
            out[place] += count * len(words) ** -0.5

    def _restored(self) -> None:
        columns = [Column(name, kind) for name, (kind, _) in self.columns.items()]
        pairs = zip(self.given, columns, strict=False)
        fits = all(a.name == b.name and a.kind in (b.kind, "undecided") for a, b in pairs)
        others = len(columns) - len(self.given)
        fits &= others == 0 or (others > 0 and self.adopt)
        check_fits(fits, "columns", columns, f"{self.given}"[:1000])
        check_fits(0 <= self.used <= self.width, "used", self.used, f"0 to {self.width}")
        for name, (kind, at) in self.columns.items():
            most = (self.width if kind == "text" else self.used) - self.sizes[kind]
            check_fits(0 <= at <= most, f"place of {name}", at, f"0 to {most}")
        names = {column.name for column in columns if column.kind == "categorical"}
        check_fits(self.words.keys() == names, "words", self.words, f"categories of {names}")
        for name, words in self.words.items():
            fits = [*words.values()] == [*range(1, len(words) + 1)] and len(words) < self.categories
            check_fits(fits, f"words of {name}", words, f"at most {self.categories - 1}, numbered")
        self._look_up()
