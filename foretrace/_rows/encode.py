"""Rows as vectors of a fixed width: running normalisation, missing values, categories, times.

    numeric      the number in standard deviations from its running mean, and a missing flag
    categorical  one-hot in the order of appearance; the first is for missing and unknown ones
    time         sine and cosine of the time of day, of the week and of the year, and a missing flag
    undecided    as a missing number, until the first value decides the kind

No value makes the network infinite: a value that is not a finite number is masked (0, and 1 in its
"missing" place), an outlier is clipped or masked, and both are counted.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from foretrace._rows.running import Moments, SavedMoments, Vocabulary
from foretrace._rows.saved import check_counts, check_size, check_within
from foretrace._rows.schema import Column, Kind, infer_kind
from foretrace._rows.values import MAX_ABS_VALUE, as_number, as_text, as_time, is_absent, is_missing
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
        numbers: moments of each column of numbers.
        words: categories of each column of categories.
        counts: number of values that could not be used, by reason.
    """

    columns: list[SavedColumn]
    used: int
    numbers: list[SavedMoments]
    words: list[list[str]]
    counts: dict[str, int]


class Encoded(NamedTuple):
    """A row as vectors.

    Args:
        scores: the vector of the row.
        raw: its numbers as they are, the mean in place of a missing one, at the places of their
            scores; 0 elsewhere.
    """

    scores: np.ndarray
    raw: np.ndarray


class Encoder:
    """Turn rows into vectors of a fixed width, learning as it goes.

    Args:
        columns: columns that are encoded. The first value of an undecided one decides its kind.
        width: number of features; by default as many as the columns need. Columns that appear later
            take the rest.
        categories: number of features of a categorical column, the first of them for missing and
            unknown categories.
        outliers: what happens to a number more than `bound` standard deviations from its mean:
            "clip" moves it to the bound, so that the running mean follows a real change, "mask"
            treats it as missing, "stop" raises an error.
        bound: number of standard deviations beyond which a number is an outlier.
        adopt: whether columns that appear later are added, as long as there is room.
        ignore: columns that are never added.

    `news` holds a sentence for the first value of each kind that could not be used, to be said and
    removed.

    >>> encoder = Encoder([Column("x", "numeric"), Column("c", "categorical")], categories=3)
    >>> encoder.width
    5
    >>> for x in (1.0, 3.0):
    ...     vector = encoder.encode({"x": x, "c": "red"}).scores
    >>> vector.tolist()
    [1.0, 0.0, 0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        width: int | None = None,
        categories: int = CATEGORIES,
        outliers: Outliers = "clip",
        bound: float = 10.0,
        adopt: bool = False,
        ignore: Iterable[Any] = (),
    ):
        if categories < 2:
            raise ValueError(
                f"categories={categories} must be at least 2: one is for the missing and the "
                "unknown"
            )
        if not bound > 0:
            raise ValueError(f"bound={bound} must be a positive number of standard deviations")
        self.categories = categories
        self.outliers = outliers
        self.bound = bound
        self.adopt = adopt
        self.ignore = frozenset(ignore)
        self.given = list(columns)
        self.columns: dict[Any, tuple[Kind, int]] = {}
        self.undecided: dict[Any, None] = {}
        self.numbers: dict[Any, Moments] = {}
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
        """Return the vector of a row, and its numbers as they are.

        Args:
            row: values of the columns; a column without a value is missing.
            learn: whether the row changes means, deviations and vocabularies for good. The vector
                is the same either way: the row's after it was learned.

        Raises:
            EncodingError: a number is an outlier, and the policy is to stop.
        """
        if not learn:
            return self._draft().encode(row)
        self.look_at(row)
        out, raw = [0.0] * self.width, [0.0] * self.width  # faster than arrays for single values
        for name, (kind, at) in self.columns.items():
            value = row.get(name)
            if kind == "numeric":
                out[at], out[at + 1], raw[at] = self._number(name, value)
            elif kind == "categorical":
                out[at + self._category(name, value)] = 1.0
            elif kind == "time":
                out[at : at + _TIME_SIZE] = self._time(name, value)
            else:
                out[at + 1] = 1.0
                self.counts["missing"] += 1
        return Encoded(np.array(out), np.array(raw))

    def _draft(self) -> Self:
        """Return a copy that learns without changing this encoder, and refuses nothing."""
        draft = copy.copy(self)
        draft.outliers = "mask" if self.outliers == "stop" else self.outliers
        draft.columns, draft.undecided = dict(self.columns), dict(self.undecided)
        draft.counts, draft.news = Counter(), []
        draft.numbers = {name: moments.copy() for name, moments in self.numbers.items()}
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
        if kind == "numeric":
            self.numbers[name] = Moments()
        elif kind == "categorical":
            self.words[name] = Vocabulary(self.categories - 1)
        elif kind == "undecided":
            self.undecided[name] = None

    def _tell_no_room(self, name: Any) -> None:
        self._tell(
            "values of columns without room",
            f"{_shown(name)} finds no room in {self.width} inputs and is left out, as is every "
            "later column that needs more; raise `features`",
        )

    def _number(self, name: Any, value: Any) -> tuple[float, float, float]:
        """Return the score of a number, whether it is missing, and the number or the mean."""
        # Most values are finite numbers, and no text that stands for a missing value is one.
        number = as_number(value)
        if (number is None or number != number) and is_missing(value):
            self.counts["missing"] += 1
            return 0.0, 1.0, self.numbers[name].mean
        if number is None or not abs(number) < MAX_ABS_VALUE:
            if number is not None:
                self.counts["infinite"] += 1
            else:
                self._tell(
                    "not a number",
                    f"{_shown(name)} is a column of numbers and holds {_shown(value)}, which "
                    "counts as missing, as does every later value that is no number",
                )
            return self._refuse(name, value)
        moments = self.numbers[name]
        inside = moments.within(number, self.bound)
        if inside != number:
            self.counts["outliers"] += 1
            if self.outliers != "clip":
                return self._refuse(name, value)
        score = moments.score(moments.learn(number, self.bound))
        return clip(score, self.bound), 0.0, number

    def _tell(self, what: str, news: str) -> None:
        """Count what could not be used, and say so the first time."""
        self.counts[what] += 1
        if self.counts[what] == 1:
            self.news.append(news)

    def _refuse(self, name: Any, value: Any) -> tuple[float, float, float]:
        if self.outliers == "stop":
            raise EncodingError(
                f"column {name!r} holds {str(value)[:80]!r}, which is not a number or more than "
                f"{self.bound:g} standard deviations from its mean; clean the source, or choose "
                "--outliers clip or mask"
            )
        return 0.0, 1.0, self.numbers[name].mean

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
            [self.numbers[name].to_json() for name in kinds if kinds[name] == "numeric"],
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
        for kind, values in (("numeric", saved.numbers), ("categorical", saved.words)):
            check_size(
                f"columns, {kind}", values, sum(column.kind == kind for column in saved.columns)
            )
        self.columns, self.undecided, self.numbers, self.words = {}, {}, {}, {}
        numbers, words = iter(saved.numbers), iter(saved.words)
        for name, kind, at in saved.columns:
            check_within(f"place of {name}", [at], 0, saved.used - _size(kind, self.categories))
            self._place(Column(name, kind), at)
            if kind == "numeric":
                self.numbers[name].restore(next(numbers))
            elif kind == "categorical":
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


def clip(x: float, bound: float) -> float:
    """Return the number nearest to x in [-bound, bound]."""
    return min(max(x, -bound), bound)
