"""Meaning of a single value: missing, a number, a time, a truth value, a category or a class.

These meanings are defined only in this file.
"""

import datetime
import hashlib
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np

MISSING = frozenset(
    ("", "?", "na", "n/a", "nan", "+nan", "-nan", "<na>", "nat", "null", "none", "-")
)
"""Texts that mean a missing number or time, in lower case."""

MAX_ABS_VALUE = 1e30
"""Absolute value above which a number counts as infinite, independent of earlier numbers."""

MAX_TEXT = 256
"""Maximum length of a category or class in characters. A checkpoint contains all of them."""

_NOT_REAL = (np.datetime64, complex, np.complexfloating, bytes, bytearray, np.ma.MaskedArray)
"""Types that Python converts to a number, although they are not numbers."""

_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)


def is_absent(value: Any) -> bool:
    """Return whether a value is absent, for every kind of column.

    None and the empty text are absent. A value that does not equal itself is also absent: NaN and
    NaT of any type, and the NA of pandas.

    >>> [is_absent(value) for value in ("", np.float16("nan"), np.datetime64("NaT", "s"), "-")]
    [True, True, True, False]
    """
    if value is None or isinstance(value, str):
        return not value
    value = only_element(value)
    try:
        unequal = value != value
        # The NA of pandas and the masked value of NumPy give a special answer to this comparison.
        return bool(unequal) if isinstance(unequal, bool | np.bool_) else unequal is value
    except ArithmeticError:  # a signalling NaN
        return True


def is_missing(value: Any) -> bool:
    """Return whether a number or a time is absent, or is a text such as "NA".

    >>> [is_missing(value) for value in (None, " NA", float("nan"), 0, "0")]
    [True, True, True, False, False]
    """
    return value.strip().lower() in MISSING if isinstance(value, str) else is_absent(value)


def as_number(value: Any) -> float | None:
    """Return a value as a number, which may be infinite or NaN; None if it is not a number.

    A duration becomes its number of seconds, and an array of one element becomes this element.
    Neither a date nor a text with underscores is a number.

    >>> [as_number(value) for value in ("2.5", True, datetime.timedelta(minutes=1), "2%", "1_000")]
    [2.5, 1.0, 60.0, None, None]
    """
    if type(value) is float:
        return value
    if not isinstance(value, str | int):
        value = only_element(value)
        if isinstance(value, datetime.timedelta | np.timedelta64):
            return _seconds(value)
        if isinstance(value, _NOT_REAL):
            return None
    try:
        return None if isinstance(value, str) and "_" in value else float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def as_flag(value: Any) -> bool | None:
    """Return a truth value; False if it is missing, None if it is not true, false, 1 or 0.

    >>> [as_flag(value) for value in (True, "1", "False", 0.0, "", "2")]
    [True, True, False, False, False, None]
    """
    if is_missing(value):
        return False
    text = str(value).strip().lower()
    number = as_number(value)
    return (
        True if text == "true" or number == 1 else False if text == "false" or number == 0 else None
    )


def as_time(value: Any) -> float | None:
    """Return a date or an ISO text as seconds since 1970; None for other values.

    >>> as_time("1970-01-02 00:00:30"), as_time(np.datetime64("1970-01-02")), as_time("red")
    (86430.0, 86400.0, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    value = only_element(value)
    if is_absent(value):
        return None
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[us]").astype(np.int64)) / 1e6
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        return None
    if value.tzinfo is not None:
        try:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError:  # in UTC the year is 0 or 10,000
            return None
    return (value - _EPOCH).total_seconds()


def as_text(value: Any) -> str:
    """Return a category as text; a digest replaces the end of a long text.

    >>> as_text(1.5), len(as_text("a" * 10**6)), as_text("a" * 10**6) == as_text("a" * 10**6 + "b")
    ('1.5', 256, False)
    """
    text = str(value)
    if len(text) <= MAX_TEXT:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return text[: MAX_TEXT - len(digest) - 1] + "…" + digest


def member_text(value: Any) -> str:
    """Return the name of a member in a run. A run compares members by this text.

    >>> member_text(" a1 "), member_text(1), member_text(None)
    ('a1', '1', '')
    """
    return "" if value is None else as_text(str(value).strip())


def as_words(value: Any) -> list[str]:
    """Return the words of a text in lower case, without punctuation; an absent text has none.

    >>> as_words("The printer's tray, again: Error 404!"), as_words(None)
    (['the', 'printer', 's', 'tray', 'again', 'error', '404'], [])
    """
    return [] if is_absent(value) else re.findall(r"\w+", str(value).lower())


def as_label(value: Any) -> str:
    """Return the text by which a class is compared. Equal numbers have the same text.

    >>> [as_label(value) for value in (1, 1.0, True, "1", "1.0", 0.5, " ")]
    ['1', '1', '1', '1', '1.0', '0.5', ' ']
    """
    if isinstance(value, str):
        return as_text(value)
    value = only_element(value)
    if isinstance(value, int | np.integer | np.bool_) and not isinstance(value, np.timedelta64):
        return as_text(int(value))
    number = as_number(value) if isinstance(value, float | np.floating | Decimal) else None
    if number is None or not math.isfinite(number):
        return as_text(value)
    return as_text(int(number) if number == int(number) else number)


def check_hashable(value: Any, name: str) -> None:
    """Raise an error if a value cannot be the name of a class or of a member.

    Raises:
        TypeError: the value cannot be hashed.
    """
    try:
        hash(only_element(value))
    except TypeError:
        raise TypeError(
            f"{name}={shown(value)} is a {type(value).__name__}, which cannot be hashed; give a "
            "text, a number or another value that can be a key of a dictionary"
        ) from None


def check_number(value: Any, name: str) -> None:
    """Raise an error if a value is neither a number nor missing.

    Raises:
        ValueError: the value is something else, such as "2%" or a date.
    """
    if as_number(value) is None and not is_missing(value):
        raise ValueError(
            f"{name}={shown(value)}, expected a number, or None or NaN where it is missing; write "
            "a number as 1234.5"
        )


def only_element(value: Any) -> Any:
    """Return the element of an array of size one; other values are unchanged.

    >>> only_element(np.array([[2]])), only_element("a")
    (np.int64(2), 'a')
    """
    if isinstance(value, str | np.generic) or value is np.ma.masked:
        return value
    if getattr(value, "size", None) != 1 or not hasattr(value, "ndim"):
        return value
    return (value if isinstance(value, np.ndarray) else np.asarray(value)).reshape(())[()]


def _seconds(value: Any) -> float | None:
    try:
        return float(
            value / (np.timedelta64(1, "s") if isinstance(value, np.timedelta64) else _SECOND)
        )
    except TypeError:  # of months, or without a unit
        return None


def shown(value: Any) -> str:
    """Return the beginning of a value, for messages."""
    return repr(value)[:80]
