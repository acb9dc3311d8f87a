"""`docs/reproduction.md`: our numbers beside the paper's."""

from functools import cache
from statistics import mean

from benchmarks import ledger
from benchmarks.pages.template import by_columns, percent, table
from foretrace.paper._page import read_all
from foretrace.paper._tables import collect

RULES = {"bptt": "BPTT", "online": "online", "truncated": "truncated", "spatial": "spatial"}


@cache
def cells(name, scale):
    """Return an experiment's results by row and column."""
    folders = sorted(path.parent for path in (ledger.ROOT / "results").glob("*/records.jsonl"))
    every = {(r.experiment.name, r.experiment.scale): r for r in collect(read_all(folders))}
    found = every[name, scale]
    return {(cell.entry.row, cell.entry.column): cell for cell in found.cells if cell.records}


def beside(column):
    """Return final training losses of Table 1 at the paper's scale, beside the paper's."""
    found = {rule: cells("table1", "paper")[rule, column] for rule in RULES}
    rows = [
        [RULES[rule], loss(cell.mean), loss(cell.entry.published), runs(cell), *settings(cell)]
        for rule, cell in found.items()
    ]
    head = ["rule", "final training loss", "the paper", "runs", "learning rate", "seconds a run"]
    return table(head, rows)


def settings(cell):
    """Return the learning rates of a cell's runs, and the range of their times."""
    rates = sorted({record["rate"] for record in cell.records})
    times = [record["seconds"] for record in cell.records]
    return [", ".join(map(str, rates)), f"{min(times):,.0f} to {max(times):,.0f}"]


def accuracies(name, scale):
    """Return the test accuracy of each rule on each task."""
    found = cells(name, scale)
    columns = list(dict.fromkeys(column for _, column in found))
    rows = {}
    for rule, label in RULES.items():
        there = [found.get((rule, column)) for column in columns]
        rows[label] = [None if cell is None else cell.mean for cell in there]
    return table(["rule", *columns], by_columns(rows, [(percent, max)] * len(columns)))


def depth():
    """Return the share of the gap between online and BPTT on images that depth closes."""
    every = cells("table2", "cpu").items()
    found = {row: cell.mean for (row, column), cell in every if column == "sCIFAR"}
    low, high = found["online"], found["bptt"]
    rows = []
    for row, value in found.items():
        if "depth" in row:
            share = f"{100 * (value - low) / (high - low):.0f} %"
            rows.append([row.removeprefix("online, "), percent(value), share])
    return table(["", "test accuracy", "share of the gap"], rows)


def alignments():
    """Return the cosine of the online gradient with BPTT's after training, by depth."""
    rows = []
    for (name, _), cell in cells("figure2ab", "cpu").items():
        (record,) = cell.records
        found = record["curve"][-1]["alignment"]
        shown = (mean(found["layers"]), found["layers"][0], found["total"])
        rows.append([name, *map("{:.3f}".format, shown)])
    return table(["network", "mean of the layers", "first layer", "whole gradient"], rows)


def runs(cell):
    """Return the number of runs, and of those that diverged and are not in the mean."""
    return f"{len(cell.records)}" + (f", {cell.diverged} of them diverged" if cell.diverged else "")


def loss(value):
    """Return a loss with two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1e}"
