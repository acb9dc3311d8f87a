"""What the columns of a stream hold, decided from its first rows."""

import datetime
import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from foretrace._runs.escape import for_terminal

Kind = Literal["numeric", "categorical", "time"]

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none", "-"))
"""Texts that stand for a missing value, in lower case."""

_EPOCH = datetime.datetime(1970, 1, 1)


class Column(NamedTuple):
    """The name of a column and the kind of its values."""

    name: Any
    kind: Kind


def is_missing(value: Any) -> bool:
    """Return whether a value is missing.

    >>> [is_missing(value) for value in (None, " NA", float("nan"), 0, "0")]
    [True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


MAX_TEXT = 256
"""Maximum number of characters of a category or class; a checkpoint holds every one that was seen."""


def as_text(value: Any) -> str:
    """Return a category as text; the end of a long one is replaced by its digest.

    >>> as_text(1.5), len(as_text("a" * 10**6)), as_text("a" * 10**6) == as_text("a" * 10**6 + "b")
    ('1.5', 256, False)
    """
    text = str(value)
    if len(text) <= MAX_TEXT:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return text[: MAX_TEXT - len(digest) - 1] + "…" + digest


def as_number(value: Any) -> float | None:
    """Return a value as a number, which may be infinite; None if it is not a number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def as_flag(value: Any) -> bool | None:
    """Return a truth value, False if it is missing; None if it is not true, false, 1 or 0.

    >>> [as_flag(value) for value in (True, "1", "False", 0.0, "", "2")]
    [True, True, False, False, False, None]
    """
    if is_missing(value):
        return False
    text = str(value).strip().lower()
    number = as_number(value)
    return True if text == "true" or number == 1 else False if text == "false" or number == 0 else None


def as_time(value: Any) -> float | None:
    """Return a date, or a text in ISO format, as seconds since 1970; None if it is not one.

    >>> as_time("1970-01-02 00:00:30")
    86430.0
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        return None
    if value.tzinfo is not None:
        try:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError:  # in UTC the year is 0 or 10,000
            return None
    return (value - _EPOCH).total_seconds()


def infer_kind(values: Iterable[Any]) -> Kind:
    """Return the kind of a column with these values: numbers, dates in ISO format, or else categories.

    >>> infer_kind(["1", "NA", "2.5"]), infer_kind(["2024-01-31", ""]), infer_kind(["1", "red"])
    ('numeric', 'time', 'categorical')
    """
    present = [value for value in values if not is_missing(value)]
    if all(as_number(value) is not None for value in present):
        return "numeric"
    return "time" if all(as_time(value) is not None for value in present) else "categorical"


def infer_columns(rows: Sequence[Mapping[str, Any]], overrides: Mapping[str, Kind | None]) -> list[Column]:
    """Return the columns of the first rows of a stream.

    Args:
        rows: first rows of the stream.
        overrides: kinds of some columns, whatever their values; None leaves a column out.

    Raises:
        ValueError: an override names a column that does not exist.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in overrides:
        check_column(name, names)
    found = []
    for name in names:
        kind = overrides[name] if name in overrides else infer_kind(row.get(name) for row in rows)
        if kind is not None:
            found.append(Column(name, kind))
    return found


def check_column(name: str, names: Sequence[str]) -> None:
    """Raise a ValueError that lists the columns if `name` is not one of them."""
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        shown = for_terminal(", ".join(names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise ValueError(f"the source has no column {name!r}, only {shown}{hint}")


def is_classes(values: Iterable[Any], max_classes: int = 20) -> bool:
    """Return whether a target with these values is a class: it is not a number, or has few whole numbers.

    >>> is_classes(["1", "0", "1"]), is_classes(["0.5", "1"]), is_classes(range(100)), is_classes(["yes"])
    (True, False, False, True)
    """
    present = [value for value in values if not is_missing(value)]
    numbers = [as_number(value) for value in present]
    if any(number is None for number in numbers) or all(isinstance(value, bool) for value in present):
        return True
    return len(set(numbers)) <= max_classes and all(number is not None and number % 1 == 0 for number in numbers)
