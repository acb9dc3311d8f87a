"""Kinds of a stream's columns, determined from its first rows."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from foretrace._runs.escape import for_terminal
from foretrace.stream.read.formats import date_formats, number_format
from foretrace.stream.read.values import as_number, as_time, as_words, is_absent, is_missing

Kind = Literal["numeric", "categorical", "time", "text", "undecided"]
"""Kind of a column's values; undecided until the first value that is not missing."""


class Column(NamedTuple):
    """The name of a column and the kind of its values."""

    name: Any
    kind: Kind


MIN_TEXTS = 20
"""Smallest number of values for which `SEVERAL` words per value make texts; below it, `MANY`."""

SEVERAL, MANY = 3, 8


def infer_kind(values: Iterable[Any]) -> Kind:
    """Return the kind of a column with these values: numbers, dates, or otherwise categories.

    >>> infer_kind(["1", "NA", "2.5"]), infer_kind(["2024-01-31", ""]), infer_kind(["1", "red"])
    ('numeric', 'time', 'categorical')
    >>> infer_kind(["NA", None])
    'undecided'
    """
    present = [value for value in values if not is_missing(value)]
    if not present:
        return "undecided"
    if all(as_number(value) is not None for value in present):
        return "numeric"
    return "time" if all(as_time(value) is not None for value in present) else "categorical"


def is_texts(values: Iterable[Any]) -> bool:
    """Return whether categories are texts: most differ, and they have several words on average.

    Dates, and numbers with words, are not texts.

    >>> is_texts(["the printer does not print any more again"]), is_texts(["light rain showers"])
    (True, False)
    """
    texts = [str(value) for value in values if not is_absent(value)]
    if 2 * len(set(texts)) <= len(texts) or date_formats(texts) or number_format(texts):
        return False
    num_words = sum(word.isalpha() for text in texts for word in as_words(text))
    return num_words >= (SEVERAL if len(texts) >= MIN_TEXTS else MANY) * len(texts) > 0


def infer_columns(
    rows: Sequence[Mapping[str, Any]], overrides: Mapping[str, Kind | None], *, texts: bool = False
) -> list[Column]:
    """Return the columns of the first rows of a stream.

    Args:
        rows: first rows of the stream.
        overrides: kinds that replace the detected ones, by column; None leaves a column out.
        texts: whether a column may be of kind text. If not, texts are categories.

    Raises:
        ValueError: an override names a column that does not exist.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in overrides:
        check_column(name, names)
    found = []
    for name in names:
        values = [row.get(name) for row in rows]
        kind = overrides[name] if name in overrides else infer_kind(values)
        if texts and name not in overrides and kind == "categorical" and is_texts(values):
            kind = "text"
        if kind is not None:
            found.append(Column(name, kind))
    return found


def check_column(name: str, names: Sequence[str]) -> None:
    """Raise a ValueError that lists the columns if `name` is not one of them."""
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        only = for_terminal(listed(names))
        raise ValueError(f"the source has no column {name!r}, only {only}{hint}")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the first names, separated by commas, and the number of the others.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_classes(values: Iterable[Any]) -> bool:
    """Return whether a target is a class: no numbers, or 2 to 20 different whole numbers.

    A single different number is not a class, because nothing can be learned from one class, and a
    measured number may stay constant for a while.

    >>> [is_classes(values) for values in (["1", "0", "1"], ["yes"], [True, True])]
    [True, True, True]
    >>> [is_classes(values) for values in (["0.5", "1"], range(100), ["0.0", "0.0"])]
    [False, False, False]
    """
    present = [value for value in values if not is_missing(value)]
    numbers = [as_number(value) for value in present]
    if any(number is None for number in numbers) or all(
        isinstance(value, bool) for value in present
    ):
        return True
    return 2 <= len(set(numbers)) <= 20 and all(
        number is not None and number % 1 == 0 for number in numbers
    )
