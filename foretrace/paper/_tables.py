"""Tables of the paper's experiments from records alone: its number beside ours."""

import math
import statistics
from collections.abc import Sequence
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
    """Results of an entry in the records.

    Args:
        entry: entry of the experiment.
        values: reported score of each seed, in the order of the seeds.
        records: records of the reported runs.
        searched: records of the runs that chose the learning rate.
    """

    entry: Entry
    values: list[float]
    records: list[dict[str, Any]]
    searched: list[dict[str, Any]]

    @property
    def mean(self) -> float:
        """Mean over the runs that did not diverge; NaN without any."""
        return statistics.fmean(self._finite) if self._finite else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation over the runs that did not diverge; NaN for fewer than two."""
        return statistics.stdev(self._finite) if len(self._finite) > 1 else math.nan

    @property
    def diverged(self) -> int:
        """Number of runs whose score is no number."""
        return len(self.values) - len(self._finite)

    @property
    def _finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]


class ExperimentResults(NamedTuple):
    """An experiment at a scale, and its cells."""

    experiment: Experiment
    cells: list[Cell]


def collect(records: Sequence[dict[str, Any]]) -> list[ExperimentResults]:
    """Return the cells of every recorded experiment and scale, in the order of the records.

    Raises:
        ValueError: a record of an experiment that this version does not know.
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


def score(experiment: Experiment, record: dict[str, Any]) -> float:
    """Return the score of a run that the paper reports for this experiment."""
    scores = record if experiment.metric == "training_loss" else record["test"]
    return float(scores[experiment.metric])


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return all tables as Markdown.

    >>> markdown([])
    ''
    """
    return "\n".join(_section(found) for found in collect(records))


def number(experiment: Experiment, value: float) -> str:
    """Return a score as it is printed: accuracies in percent, losses with three digits."""
    if math.isnan(value):
        return "–"
    return f"{value:.2%}".replace("%", " %") if experiment.metric == "accuracy" else f"{value:.2e}"


def _cell(experiment: Experiment, entry: Entry, records: list[dict[str, Any]]) -> Cell:
    mine = [r for r in records if r["entry"] == entry.name]
    reported = sorted(
        (r for r in mine if r["purpose"] == "report"), key=lambda r: (r["seed"], r["rate"])
    )
    values = [score(experiment, record) for record in reported]
    return Cell(entry, values, reported, [r for r in mine if r["purpose"] == "search"])


def _section(found: ExperimentResults) -> str:
    experiment, cells = found
    columns = list(dict.fromkeys(cell.entry.column for cell in cells))
    rows = list(dict.fromkeys(cell.entry.row for cell in cells))
    at = {(cell.entry.row, cell.entry.column): _text(experiment, cell) for cell in cells}
    runs = [_run(experiment, r) for cell in cells for r in (*cell.records, *cell.searched)]
    every = _table(HEADER.split(", "), runs)
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
    if not cell.values:
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
        about.append(f"{cell.diverged} of {len(cell.values)} runs diverged, not in the mean")
    return f"**{number(experiment, cell.mean)}**{spread} ({', '.join(about)}){theirs}"


HEADER = (
    "entry, purpose, seed, rate, steps, training loss, validation, test loss, test accuracy, s, "
    "commit, hardware"
)


def _run(experiment: Experiment, record: dict[str, Any]) -> list[str]:
    test, place = record["test"], record["surroundings"]
    tested = ["", ""] if test is None else [f"{test['loss']:.2e}", f"{test['accuracy']:.2%}"]
    commit = place.get("commit") or ""
    return [
        record["entry"],
        record["purpose"],
        str(record["seed"]),
        f"{record['rate']:g}",
        str(record["step"]),
        f"{record['training_loss']:.2e}",
        f"{record['validation'][experiment.selected_by]:.3g}",
        *tested,
        f"{record['seconds']:.0f}",
        # A record may come from anywhere.
        for_markdown(commit[:8] + ", modified" * commit.endswith("-dirty")),
        for_markdown(f"{place['cores']} cores, {place['devices']}"),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(_row, [head, ["---"] * len(head), *rows]))


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"
