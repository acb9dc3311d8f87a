"""A page from its template: the function `name` fills each comment `<!-- name -->`."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def filled(name, parts):
    """Return the template of a page with its parts filled in.

    Args:
        name: name of the template, without its ending.
        parts: function of each part by its name.
    """
    return re.sub(
        r"<!-- (\w+) -->", lambda found: parts[found[1]](), (FOLDER / f"{name}.md").read_text()
    )


def table(head, rows):
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def bold_best(values, shown, best=min):
    """Return texts of some values, the best one in bold; an empty text where there is none."""
    there = [value for value in values if value is not None]
    return [
        "" if value is None else f"**{shown(value)}**" if value == best(there) else shown(value)
        for value in values
    ]


def percent(value):
    """Return a share in per cent."""
    return f"{100 * value:.1f} %"
