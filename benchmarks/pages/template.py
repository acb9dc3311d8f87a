"""A page from its template: a function of the page's module fills each comment.

`<!-- name WORD ... -->` stands for what the function `name` returns for the words.
"""

import importlib
import re
import shlex
from functools import cache

from benchmarks import ledger

PAGES = {
    "forecasting": "docs/forecasting.md",
    "learners": "results/streams.md",
    "memory": "results/memory.md",
    "paper": "docs/reproduction.md",
    "rules": "docs/rules_compared.md",
    "streams": "docs/streams_compared.md",
    "suite": "results/suite.md",
    "yardsticks": "docs/yardsticks.md",
}


def filled(name):
    """Return a page, its template filled in from the committed records."""
    module = importlib.import_module(f"benchmarks.pages.{name}")
    template = ledger.ROOT / "benchmarks" / "pages" / f"{name}.md"

    def part(comment):
        function, *words = shlex.split(comment[1])
        return getattr(module, function)(*words)

    return re.sub(r"<!-- (.+) -->", part, template.read_text())


@cache
def records(*names):
    """Return the lines of some records, one record behind the other."""
    return [line for name in names for line in ledger.read(ledger.RECORDS / f"{name}.jsonl")]


def results(*names, **where):
    """Return pairs of cell and result of some records, of cells with some settings."""
    pairs = [(line["cell"], line["found"]) for line in records(*names)]
    return [(cell, found) for cell, found in pairs if cell | where == cell]


def found_rows(name, **where):
    """Return the rows that the cells of a record with some settings have found."""
    return [row for _, found in results(name, **where) for row in found["rows"]]


def grouped(pairs, name):
    """Return lists of results by a setting of their cells."""
    groups = {}
    for cell, found in pairs:
        groups.setdefault(cell[name], []).append(found)
    return groups


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


def by_columns(rows, columns):
    """Return rows of a table, the best value of each column in bold.

    Args:
        rows: values by the name of the row, None where there is none.
        columns: for each column, how a value is shown, and which is best.
    """
    values = zip(*rows.values(), strict=True)
    texts = [bold_best(column, *how) for column, how in zip(values, columns, strict=True)]
    return [[name, *row] for name, row in zip(rows, zip(*texts, strict=True), strict=True)]


def percent(value):
    """Return a share in per cent."""
    return f"{100 * value:.1f} %"
