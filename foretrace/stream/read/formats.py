"""Formats of dates, and formats of numbers that cannot be read."""

import datetime
import re
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from foretrace.stream.read.values import as_number

_EPOCH = datetime.datetime(1970, 1, 1)
_SPACES = "\u00a0\u202f "
_CURRENCY = r"[$€£¥₹₽₩₺₫₪฿]|\b(?:USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL)\b"

_NUMBERS = (
    ("a comma between thousands", r"\d{1,3}(,\d{3}){2,}(\.\d+)?|\d{1,3}(,\d{3})+\.\d+"),
    ("a point between thousands and a decimal comma", r"\d{1,3}(\.\d{3})+,\d+"),
    ("a point between thousands", r"\d{1,3}(\.\d{3}){2,}"),
    ("a space between thousands", rf"\d{{1,3}}([{_SPACES}]\d{{3}})+([.,]\d+)?"),
    ("an apostrophe between thousands", r"\d{1,3}(['’]\d{3})+([.,]\d+)?"),
    ("an underscore between digits", r"\d+(_\d+)+(\.\d+)?"),
    ("a comma, for decimals or thousands", r"\d{1,3}(,\d{3})+"),
    ("a decimal comma", r"\d*,\d+"),
    ("", r"\d+\.?\d*|\.\d+"),
)
"""Formats of numbers, each with a name and a pattern.

Only the last format can be read, and only without a currency or percent sign.
"""

_DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%Y"),
    *("%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y"),
)
_HOURS = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", ", %H:%M", ", %H:%M:%S", "T%H:%M:%S"),
    *(" %I:%M %p", " %I:%M:%S %p"),
)
UNIX = "unix"
"""Name of the format of seconds since 1970 in UTC."""

_OF_LOGS = "%d/%b/%Y:%H:%M:%S %z"
_DATES = (*map("".join, product(_DAYS, _HOURS)), _OF_LOGS, UNIX)
"""Date formats to try. ISO dates are read without a given format."""

_FIRST, _LAST = 1e8, 1e10
"""Range in which seconds since 1970 are recognised: the years from 1973 to 2286."""


class Written(NamedTuple):
    """A format of numbers that cannot be read.

    Args:
        how: description of the format.
        example: a text in this format.
    """

    how: str
    example: str


def number_format(texts: Sequence[str]) -> Written | None:
    """Return the unreadable number format of most texts, or None.

    >>> for texts in (["1,5", "2"], ["1.234,50 €"], ["12 %"], ["1,234"], ["1.5"], ["red", "1,5"]):
    ...     print((number_format(texts) or "none")[0])
    a decimal comma
    a point between thousands and a decimal comma, and a currency
    a percent sign
    a comma, for decimals or thousands
    n
    n
    """
    ways = {text: _way(text) for text in dict.fromkeys(texts)}
    found = [text for text in texts if ways[text] is not None]
    unread = [text for text in found if ways[text]]
    if not unread or 2 * len(found) <= len(texts):
        return None
    # A text with only one possible reading determines the reading of the others.
    clear = [text for text in unread if " or " not in (ways[text] or "")]
    example = (clear or unread)[0]
    return Written(ways[example] or "", example)


def _way(text: str) -> str | None:
    """Return the format of a number: "" if it can be read, None if the text is no number."""
    bare, signs = text.strip(), []
    for name, pattern in (("a currency", _CURRENCY), ("a percent sign", "[%‰]")):
        rest = re.sub(pattern, "", bare, count=1).strip()
        signs += [name] * (rest != bare)
        bare = rest
    bare = bare.strip("()").lstrip("+-− ")
    for name, pattern in _NUMBERS:
        if re.fullmatch(pattern, bare, re.ASCII):
            return ", and ".join(filter(None, [name, *signs]))
    return None


def date_formats(texts: Sequence[str]) -> list[str]:
    """Return the date formats that fit every text with a digit; most texts must have a digit.

    >>> date_formats(["01.03.2025 08:37", "13.03.2025 09:01", "unknown"])
    ['%d.%m.%Y %H:%M']
    >>> date_formats(["01/03/2025"]), date_formats(["1.5"])
    (['%d/%m/%Y', '%m/%d/%Y'], [])
    """
    dated = [text for text in texts if any(map(str.isdigit, text))]
    found = list(_DATES) if 2 * len(dated) > len(texts) else []
    if not all(_FIRST < (as_number(text) or 0) < _LAST for text in dated):
        found = found[:-1]
    for text in dict.fromkeys(dated):
        found = [form for form in found if read_date(text, form) is not None]
    return found


def read_date(value: Any, form: str) -> datetime.datetime | None:
    """Return a date in a format of `strptime` or in `UNIX`; None if the value does not fit.

    >>> read_date("01.03.2025", "%d.%m.%Y"), read_date("red", "%d.%m.%Y")
    (datetime.datetime(2025, 3, 1, 0, 0), None)
    >>> read_date("86400", "unix"), read_date(None, "unix")
    (datetime.datetime(1970, 1, 2, 0, 0), None)
    """
    try:
        if form == UNIX and (seconds := as_number(value)) is not None:
            return _EPOCH + datetime.timedelta(seconds=seconds)
        return datetime.datetime.strptime(value.strip(), form) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def check_date_format(form: str, name: str) -> None:
    """Raise an error if a text is neither `UNIX` nor a format of `strptime`.

    Raises:
        ValueError: no date can be written in the format.
    """
    example = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    if form != UNIX and read_date(example.strftime(form), form) is None:
        raise ValueError(
            f"{name}: {form!r} is no format of a date; write it as strptime of Python takes it, "
            "such as %d.%m.%Y %H:%M, or unix for seconds since 1970"
        )
