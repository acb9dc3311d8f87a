"""`docs/reproduction.md`: our numbers beside the paper's."""

from functools import cache, partial

from benchmarks import ledger
from benchmarks.pages.template import bold_best, filled, percent, table
from foretrace.paper._page import read_all
from foretrace.paper._tables import collect

PAGE = ledger.ROOT / "docs" / "reproduction.md"
RULES = {"bptt": "BPTT", "online": "online", "truncated": "truncated", "spatial": "spatial"}


def text():
    """Return the page."""
    parts = {name: partial(beside, column) for name, column in COLUMNS.items()}
    parts |= {f"table2_{scale}": partial(accuracies, "table2", scale) for scale in ("cpu", "long")}
    parts |= {"table3": partial(accuracies, "table3", "cpu"), "depth": depth}
    return filled("paper", parts)


COLUMNS = {"lru": "LRU x 4", "linear": "linear RNN x 4", "gru": "GRU x 4", "one_gru": "GRU x 1"}


@cache
def cells(name, scale):
    """Return an experiment's results by row and column."""
    folders = sorted(path.parent for path in (ledger.ROOT / "results").glob("*/records.jsonl"))
    (found,) = [
        r
        for r in collect(read_all(folders))
        if (r.experiment.name, r.experiment.scale) == (name, scale)
    ]
    return {(cell.entry.row, cell.entry.column): cell for cell in found.cells if cell.values}


def beside(column):
    """Return final training losses of Table 1 at the paper's scale, beside the paper's."""
    found = {rule: cells("table1", "paper")[rule, column] for rule in RULES}
    rows = [
        [RULES[rule], loss(cell.mean), loss(cell.entry.published), runs(cell)]
        for rule, cell in found.items()
    ]
    return table(["rule", "final training loss", "the paper", "runs"], rows)


def accuracies(name, scale):
    """Return the test accuracy of each rule on each task."""
    found = cells(name, scale)
    columns = list(dict.fromkeys(column for _, column in found))
    best = {}
    for column in columns:
        there = [found.get((rule, column)) for rule in RULES]
        values = [None if cell is None else cell.mean for cell in there]
        best[column] = dict(zip(RULES, bold_best(values, percent, best=max), strict=True))
    return table(
        ["rule", *columns],
        [[RULES[rule], *(best[column][rule] for column in columns)] for rule in RULES],
    )


def depth():
    """Return the share of the gap between online and BPTT on images that depth closes."""
    found = {
        row: cell.mean
        for (row, column), cell in cells("table2", "cpu").items()
        if column == "sCIFAR"
    }
    low, high = found["online"], found["bptt"]
    rows = [
        [
            row.removeprefix("online, "),
            percent(value),
            f"{100 * (value - low) / (high - low):.0f} %",
        ]
        for row, value in found.items()
        if "depth" in row
    ]
    return table(["", "test accuracy", "share of the gap"], rows)


def runs(cell):
    """Return the number of runs, and of those that diverged and are not in the mean."""
    return f"{len(cell.values)}" + (f", {cell.diverged} of them diverged" if cell.diverged else "")


def loss(value):
    """Return a loss with two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1e}"
