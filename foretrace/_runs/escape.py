"""Text from data, such as names of columns, made safe for each destination."""

import html
import re
from urllib.parse import unquote

_PASSWORD = re.compile(r"(://[^:/@\s]*):([^/\s]*)@")
_IN_QUERY = re.compile(
    r"([?&;][^=&;\s]*(?:pass|pwd|secret|token|key)[^=&;\s]*=)[^&;#\s]*", re.IGNORECASE
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""Return a text without control characters, which could move the cursor or hide what follows.

    >>> for_terminal("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def for_rich(text: str) -> str:
    r"""Return a text that rich prints as it is, brackets among it.

    >>> for_rich("price [/kWh]")
    'price \\[/kWh]'
    """
    from rich.markup import escape

    return escape(for_terminal(text))


def for_plot(text: str) -> str:
    r"""Return a text in which matplotlib sees no formulas.

    >>> for_plot("cost $_$")
    'cost \\$_\\$'
    """
    return for_terminal(text).replace("$", r"\$")


def for_markdown(text: str) -> str:
    r"""Return a text that is no HTML in a page of Markdown.

    >>> for_markdown("<script>a & b")
    '&lt;script&gt;a &amp; b'
    """
    return html.escape(for_terminal(text), quote=False)


def without_password(text: str) -> str:
    """Return a text in which the passwords of addresses are stars.

    >>> without_password("postgresql://me:a:b@c@host/name")
    'postgresql://me:***@host/name'
    >>> without_password("postgresql://host/name?user=me&password=secret&sslmode=require")
    'postgresql://host/name?user=me&password=***&sslmode=require'
    """
    return _IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def without_secrets(text: str, address: str) -> str:
    """Return a text in which the passwords of an address are stars, also where they stand alone.

    >>> without_secrets("bad dsn: host=h password=p%41ss", "postgresql://h/name?password=p%41ss")
    'bad dsn: host=h password=***'
    """
    found = [match.group(2) for match in _PASSWORD.finditer(address)]
    found += [match.group()[len(match.group(1)) :] for match in _IN_QUERY.finditer(address)]
    for secret in sorted(
        {form for each in found for form in (each, unquote(each)) if each}, key=len, reverse=True
    ):
        text = text.replace(secret, "***")
    return without_password(text)
