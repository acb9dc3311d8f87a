"""Tables of the paper's experiments with the paper's results and ours, made from the records."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foretrace._runs.escape import for_markdown
from foretrace.paper._catalogue import load
from foretrace.paper._experiment import Entry, Experiment, Scale

LEGEND = (
    "Each cell: mean ± standard deviation over seeds (seeds, learning rate, what the gradient was "
    "computed on); the paper's number. A training loss is the mean over the last epoch, an "
    "accuracy that of the network that was best on validation."
)


class Cell(NamedTuple):
    """One cell of a table of results: an entry of the experiment, with the records of its runs.

    Args:
        entry: entry of the experiment.
        values: reported scores of the runs that did not diverge, ordered by seed.
        records: records of the reported runs.
        searched: records of the runs that chose the learning rate.
    """

    entry: Entry
    values: list[float]
    records: list[dict[str, Any]]
    searched: list[dict[str, Any]]

    @property
    def mean(self) -> float:
        """Mean over the runs that did not diverge; NaN if there is none."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation over the runs that did not diverge; NaN for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    @property
    def diverged(self) -> int:
        """Number of runs whose score is NaN."""
        return len(self.records) - len(self.values)


class ExperimentResults(NamedTuple):
    """An experiment at one scale, with the cells of its table."""

    experiment: Experiment
    cells: list[Cell]


def collect(records: Sequence[dict[str, Any]]) -> list[ExperimentResults]:
    """Return the cells of every recorded experiment and scale, in the order of the records.

    Raises:
        ValueError: a record belongs to an experiment that this version does not know.
    """
    recorded: dict[tuple[str, Scale], list[dict[str, Any]]] = {}
    for record in records:
        recorded.setdefault((record["experiment"], record["scale"]), []).append(record)
    found = []
    for (name, scale), mine in recorded.items():
        experiment = load(name, scale)
        cells = [_cell(experiment, entry, mine) for entry in experiment.entries]
        found.append(ExperimentResults(experiment, cells))
    return found


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return all tables as Markdown.

    >>> markdown([])
    ''
    """
    return "\n".join(_section(found) for found in collect(records))


def number(experiment: Experiment, value: float) -> str:
    """Return a score as printed: an accuracy in percent, a loss with three digits."""
    if math.isnan(value):
        return "–"
    return f"{value:.2%}".replace("%", " %") if experiment.metric == "accuracy" else f"{value:.2e}"


def _cell(experiment: Experiment, entry: Entry, records: list[dict[str, Any]]) -> Cell:
    mine = [r for r in records if r["entry"] == entry.name]
    reported = sorted(
        (r for r in mine if r["purpose"] == "report"), key=lambda r: (r["seed"], r["rate"])
    )
    place = reported if experiment.metric == "training_loss" else [r["test"] for r in reported]
    values = [scores[experiment.metric] for scores in place]
    finite = [float(value) for value in values if math.isfinite(value)]
    return Cell(entry, finite, reported, [r for r in mine if r["purpose"] == "search"])


def _section(found: ExperimentResults) -> str:
    experiment, cells = found
    columns = list(dict.fromkeys(cell.entry.column for cell in cells))
    rows = list(dict.fromkeys(cell.entry.row for cell in cells))
    at = {(cell.entry.row, cell.entry.column): _text(experiment, cell) for cell in cells}
    runs = [_run(experiment, r) for cell in cells for r in (*cell.records, *cell.searched)]
    every = _table(next(iter(runs), ()), [[*run.values()] for run in runs])
    paragraphs = [
        f"## {experiment.title}, scale `{experiment.scale}`",
        experiment.note,
        LEGEND,
        _table(["", *columns], [[row, *(at.get((row, c), "") for c in columns)] for row in rows]),
        f"<details><summary>Every run</summary>\n\n{every}\n\n</details>\n",
    ]
    return "\n\n".join(text for text in paragraphs if text)


def _text(experiment: Experiment, cell: Cell) -> str:
    entry, records = cell.entry, cell.records
    theirs = "" if entry.published is None else f"; paper {number(experiment, entry.published)}"
    if not records:
        return f"not run{theirs}"
    spread = "" if math.isnan(cell.spread) else f" ± {number(experiment, cell.spread)}"
    count = len({record["seed"] for record in records})
    rates = ", ".join(f"{rate:g}" for rate in sorted({record["rate"] for record in records}))
    chunk = entry.config.chunk
    way = "whole sequences" if chunk is None else f"streamed in chunks of {chunk}"
    about = [f"{count} seed{'s' * (count > 1)}", f"rate {rates}", way]
    if entry.note:
        about.append(entry.note)
    if cell.diverged:
        about.append(f"{cell.diverged} of {len(records)} runs diverged, not in the mean")
    return f"**{number(experiment, cell.mean)}**{spread} ({', '.join(about)}){theirs}"


def _run(experiment: Experiment, record: dict[str, Any]) -> dict[str, str]:
    """Return the row of a run, as texts by column."""
    test, place = record["test"], record["surroundings"]
    commit = place.get("commit") or ""
    return {
        "entry": record["entry"],
        "purpose": record["purpose"],
        "seed": str(record["seed"]),
        "rate": f"{record['rate']:g}",
        "steps": str(record["step"]),
        "training loss": f"{record['training_loss']:.2e}",
        "validation": f"{record['validation'][experiment.selected_by]:.3g}",
        "test loss": "" if test is None else f"{test['loss']:.2e}",
        "test accuracy": "" if test is None else f"{test['accuracy']:.2%}",
        "s": f"{record['seconds']:.0f}",
        # A record may come from any machine.
        "commit": for_markdown(commit[:8] + ", modified" * commit.endswith("-dirty")),
        "hardware": for_markdown(f"{place['cores']} cores, {place['devices']}"),
    }


def _table(head: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(_row, [[*head], ["---" for _ in head], *rows]))


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"
