"""Words of a row as numbers, in a vector of a fixed width.

    numeric      the number as it is, NaN where it is missing, and a place for a missing flag
    categorical  one-hot in the order of appearance; the first is for missing and unknown ones
    time         sine and cosine of the time of day, of the week and of the year, and a missing flag
    undecided    as a missing number, until the first value decides the kind

A value that is not a finite number is missing, and counted. The program of the stream turns numbers
into running units.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from foretrace._rows.saved import check_counts, check_size, check_within
from foretrace._rows.schema import Column, Kind, infer_kind
from foretrace._rows.values import MAX_ABS_VALUE, as_number, as_text, as_time, is_absent, is_missing
from foretrace._rows.vocabulary import Vocabulary
from foretrace._runs.config_json import from_json

Outliers = Literal["clip", "mask", "stop"]

CATEGORIES = 16
"""Number of inputs of a categorical column, unless another is given."""

_DAY, _WEEK, _YEAR = 86400.0, 604800.0, 31556952.0
_TIME_SIZE = 7


def room(columns: Iterable[Column], categories: int = CATEGORIES) -> int:
    """Return the number of inputs that columns need, whatever those without a value turn out to be.

    >>> room([Column("x", "numeric"), Column("c", "categorical"), Column("u", "undecided")])
    36
    """
    spare = max(categories, _TIME_SIZE)
    return sum(_size(c.kind, categories) + spare * (c.kind == "undecided") for c in columns)


def _size(kind: Kind, categories: int) -> int:
    """Return the number of inputs of a column of a kind."""
    return {"numeric": 2, "undecided": 2, "categorical": categories, "time": _TIME_SIZE}[kind]


class EncodingError(ValueError):
    """A value that the policy for outliers refuses."""


class SavedColumn(NamedTuple):
    """A column of an encoder that is saved, and its first place in the vector of a row."""

    name: Any
    kind: Kind
    at: int


class SavedEncoder(NamedTuple):
    """Saved form of an encoder.

    Args:
        columns: its columns.
        used: number of inputs that they use.
        words: categories of each column of categories.
        counts: number of values that could not be used, by reason.
    """

    columns: list[SavedColumn]
    used: int
    words: list[list[str]]
    counts: dict[str, int]


class Encoded(NamedTuple):
    """A row as numbers.

    Args:
        x: the vector of the row.
        is_number: which places hold numbers as they are.
    """

    x: np.ndarray
    is_number: np.ndarray


class Encoder:
    """Turn rows into vectors of a fixed width, learning columns and categories as it goes.

    Args:
        columns: columns that are encoded. The first value of an undecided one decides its kind.
        width: number of features; by default as many as the columns need. Columns that appear later
            take the rest.
        categories: number of features of a categorical column, the first of them for missing and
            unknown categories.
        stops: whether a value of a column of numbers that is no finite number raises an error; else
            it is missing.
        adopt: whether columns that appear later are added, as long as there is room.
        ignore: columns that are never added.

    `news` holds a sentence for the first value of each kind that could not be used, to be said and
    removed.

    >>> encoder = Encoder([Column("x", "numeric"), Column("c", "categorical")], categories=3)
    >>> encoder.width
    5
    >>> for x in (1.0, 3.0):
    ...     vector = encoder.encode({"x": x, "c": "red"}).x
    >>> vector.tolist()
    [3.0, 0.0, 0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        width: int | None = None,
        categories: int = CATEGORIES,
        stops: bool = False,
        adopt: bool = False,
        ignore: Iterable[Any] = (),
    ):
        if categories < 2:
            raise ValueError(
                f"categories={categories} must be at least 2: one is for the missing and the "
                "unknown"
            )
        self.categories = categories
        self.stops = stops
        self.adopt = adopt
        self.ignore = frozenset(ignore)
        self.given = list(columns)
        self.columns: dict[Any, tuple[Kind, int]] = {}
        self.undecided: dict[Any, None] = {}
        self.words: dict[Any, Vocabulary] = {}
        self.counts: Counter[str] = Counter()
        self.news: list[str] = []
        self.used = 0
        self.width = room(self.given, categories) if width is None else width
        for column in self.given:
            if not self._add(column):
                raise ValueError(
                    f"width={width} has no room for column {column.name!r}; make it larger"
                )

    def encode(self, row: Mapping[Any, Any], *, learn: bool = True) -> Encoded:
        """Return a row as numbers.

        Args:
            row: values of the columns; a column without a value is missing.
            learn: whether the row changes columns and vocabularies for good. The vector is the same
                either way: the row's after it was learned.

        Raises:
            EncodingError: a value is no finite number, and the policy is to stop.
        """
        if not learn:
            return self._draft().encode(row)
        self.look_at(row)
        out, numbers = [0.0] * self.width, [0.0] * self.width  # faster than arrays, value by value
        for name, (kind, at) in self.columns.items():
            value = row.get(name)
            if kind == "numeric":
                out[at], numbers[at] = self._number(name, value), 1.0
            elif kind == "categorical":
                out[at + self._category(name, value)] = 1.0
            elif kind == "time":
                out[at : at + _TIME_SIZE] = self._time(name, value)
            else:
                out[at + 1] = 1.0
                self.counts["missing"] += 1
        return Encoded(np.array(out), np.array(numbers))

    def _draft(self) -> Self:
        """Return a copy that learns without changing this encoder, and refuses nothing."""
        draft = copy.copy(self)
        draft.stops = False
        draft.columns, draft.undecided = dict(self.columns), dict(self.undecided)
        draft.counts, draft.news = Counter(), []
        draft.words = {
            name: Vocabulary(words.capacity, words.values) for name, words in self.words.items()
        }
        return draft

    def look_at(self, row: Mapping[Any, Any]) -> None:
        """Decide undecided columns that have a value, and add later columns, if asked for."""
        for name in [name for name in self.undecided if not is_missing(row.get(name))]:
            self._decide(name, row[name])
        if self.adopt and not row.keys() <= self.columns.keys() | self.ignore:
            self._adopt(row)

    @property
    def number_places(self) -> tuple[int, ...]:
        """Places of the numbers in a row's vector, and of what may turn out to be one."""
        return tuple(at for kind, at in self.columns.values() if kind in ("numeric", "undecided"))

    @property
    def category_places(self) -> tuple[tuple[int, int], ...]:
        """Place and number of the indicators of each column of categories in a row's vector."""
        places = (at for kind, at in self.columns.values() if kind == "categorical")
        return tuple((at, self.categories) for at in places)

    def _adopt(self, row: Mapping[Any, Any]) -> None:
        # Sorted by name: the order of the row's keys must not matter.
        for name in sorted(row.keys() - self.columns.keys() - self.ignore, key=str):
            column = Column(name, infer_kind([row[name]]))
            # A column without a value loses nothing yet.
            if not self._add(column) and column.kind != "undecided":
                self._tell_no_room(name)

    def _decide(self, name: Any, value: Any) -> None:
        """Give an undecided column the kind of its first value; a number stays in place."""
        kind = infer_kind([value])
        at = self.columns[name][1] if kind == "numeric" else self._take(kind)
        if at is None:
            self._tell_no_room(name)
        else:
            self._place(Column(name, kind), at)

    def _add(self, column: Column) -> bool:
        at = self._take(column.kind)
        if at is not None:
            self._place(column, at)
        return at is not None

    def _take(self, kind: Kind) -> int | None:
        """Return the place of a new column of a kind; None if there is no room."""
        at, size = self.used, _size(kind, self.categories)
        if at + size > self.width:
            return None
        self.used += size
        return at

    def _place(self, column: Column, at: int) -> None:
        name, kind = column
        self.columns[name] = (kind, at)
        self.undecided.pop(name, None)
        if kind == "categorical":
            self.words[name] = Vocabulary(self.categories - 1)
        elif kind == "undecided":
            self.undecided[name] = None

    def _tell_no_room(self, name: Any) -> None:
        self._tell(
            "values of columns without room",
            f"{_shown(name)} finds no room in {self.width} inputs and is left out, as is every "
            "later column that needs more; raise `features`",
        )

    def _number(self, name: Any, value: Any) -> float:
        """Return a number; NaN if it is missing, or none."""
        # Most values are finite numbers, and no text that stands for a missing value is one.
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
                f"{_shown(name)} is a column of numbers and holds {_shown(value)}, which "
                "counts as missing, as does every later value that is no number",
            )
        if self.stops:
            raise EncodingError(
                f"column {name!r} holds {str(value)[:80]!r}, which is no finite number; clean the "
                "source, or choose --outliers clip or mask"
            )
        return math.nan

    def _tell(self, what: str, news: str) -> None:
        """Count what could not be used, and say so the first time."""
        self.counts[what] += 1
        if self.counts[what] == 1:
            self.news.append(news)

    def _category(self, name: Any, value: Any) -> int:
        if is_absent(value):
            self.counts["missing"] += 1
            return 0
        slot = self.words[name].add(as_text(value))
        if slot is None:
            self.counts["unknown categories"] += 1
            return 0
        return 1 + slot

    def _time(self, name: Any, value: Any) -> list[float]:
        seconds = None if is_missing(value) else as_time(value)
        if seconds is None:
            if is_missing(value):
                self.counts["missing"] += 1
            else:
                self._tell(
                    "not a date",
                    f"{_shown(name)} is a column of dates and holds {_shown(value)}, which counts "
                    "as missing, as does every later value that is not read as a date",
                )
            return [0.0] * (_TIME_SIZE - 1) + [1.0]
        angles = [2 * math.pi * (seconds % period) / period for period in (_DAY, _WEEK, _YEAR)]
        return [f(angle) for angle in angles for f in (math.sin, math.cos)] + [0.0]

    def to_json(self) -> dict[str, Any]:
        """Return the learned state, as JSON."""
        kinds = {name: kind for name, (kind, _) in self.columns.items()}
        return SavedEncoder(
            [SavedColumn(name, kind, at) for name, (kind, at) in self.columns.items()],
            self.used,
            [self.words[name].values for name in kinds if kinds[name] == "categorical"],
            dict(self.counts),
        )._asdict()

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an encoder made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns, or had other columns.
        """
        saved = from_json(SavedEncoder, state)
        self._check_given([Column(name, kind) for name, kind, _ in saved.columns])
        check_within("used", [saved.used], 0, self.width)
        check_counts("counts", saved.counts)
        categorical = sum(column.kind == "categorical" for column in saved.columns)
        check_size("columns, categorical", saved.words, categorical)
        self.columns, self.undecided, self.words = {}, {}, {}
        words = iter(saved.words)
        for name, kind, at in saved.columns:
            check_within(f"place of {name}", [at], 0, saved.used - _size(kind, self.categories))
            self._place(Column(name, kind), at)
            if kind == "categorical":
                self.words[name] = Vocabulary(self.categories - 1, next(words))
        check_size("columns", self.columns, len(saved.columns))
        self.used = saved.used
        self.counts = Counter(saved.counts)

    def _check_given(self, saved: list[Column]) -> None:
        """Check that a state begins with the given columns; undecided ones may be decided there."""
        same = [
            a.name == b.name and a.kind in (b.kind, "undecided")
            for a, b in zip(self.given, saved, strict=False)
        ]
        if (
            not all(same)
            or len(saved) < len(self.given)
            or (len(saved) > len(self.given) and not self.adopt)
        ):
            raise ValueError(f"the columns are {self.given}, but were {saved}"[:1000])


def _shown(value: Any) -> str:
    return repr(value)[:80]
