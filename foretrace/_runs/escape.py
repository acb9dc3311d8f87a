"""Functions that make text from the data, such as column names, safe for each destination."""

import html
import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""Return a text without control characters, which could move the cursor or hide other text.

    >>> for_terminal("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def for_rich(text: str) -> str:
    r"""Return a text that rich prints unchanged, including its brackets.

    >>> for_rich("price [/kWh]")
    'price \\[/kWh]'
    """
    from rich.markup import escape

    return escape(for_terminal(text))


def for_plot(text: str) -> str:
    r"""Return a text that matplotlib does not read as a formula.

    >>> for_plot("cost $_$")
    'cost \\$_\\$'
    """
    return for_terminal(text).replace("$", r"\$")


def for_markdown(text: str) -> str:
    r"""Return a text that Markdown does not read as HTML.

    >>> for_markdown("<script>a & b")
    '&lt;script&gt;a &amp; b'
    """
    return html.escape(for_terminal(text), quote=False)
