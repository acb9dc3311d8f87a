"""Tables of the paper's experiments from records alone: its number beside ours."""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace._runs.escape import for_markdown
from foretrace.paper._catalogue import NAMES, load, scales
from foretrace.paper._experiment import Entry, Experiment
from foretrace.paper._fairness import (
    about_test_data,
    beats_guessing,
    gradient_mode,
    modified,
    searches,
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
    """Return the cells of every recorded experiment and scale, in the paper's order.

    Raises:
        ValueError: a record of an experiment that this version does not know.
    """
    recorded: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        recorded.setdefault((record["experiment"], record["scale"]), []).append(record)
    known = [(name, scale) for name in NAMES for scale in scales(name)]
    if unknown := recorded.keys() - known:
        name, scale = min(unknown)
        raise ValueError(f"a record of {name} at scale {scale}, which is not known here")
    found = []
    for kind in known:
        if mine := recorded.get(kind):
            experiment = load(*kind)
            cells = [_cell(experiment, entry, mine) for entry in experiment.entries]
            found.append(ExperimentResults(experiment, cells))
    return found


def score(experiment: Experiment, record: dict[str, Any]) -> float:
    """Return the score of a run that the paper reports for this experiment."""
    value = (
        record["training_loss"]
        if experiment.metric == "training_loss"
        else record["test"][experiment.metric]
    )
    return math.nan if value is None else float(value)


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
    paragraphs = [
        f"## {experiment.title}, scale `{experiment.scale}`",
        experiment.note,
        _legend(experiment),
        searches([(cell.entry, cell.searched) for cell in cells]),
        about_test_data(experiment, [cell.entry for cell in cells]),
        _table(["", *columns], [[row, *(at.get((row, c), "") for c in columns)] for row in rows]),
        f"<details><summary>Every run</summary>\n\n{_every_run(experiment, cells)}\n\n</details>\n",
    ]
    return "\n\n".join(text for text in paragraphs if text)


def _legend(experiment: Experiment) -> str:
    what = {
        "training_loss": "mean training loss over the last epoch",
        "accuracy": "test accuracy of the network that was best on validation",
    }[experiment.metric]
    return (
        f"Each cell: {what}, mean ± standard deviation over seeds (seeds, learning rate, what the "
        "gradient was computed on); the paper's number."
    )


def verdict(experiment: Experiment, cell: Cell) -> str:
    """Compare a cell at paper scale with the paper's number. Reduced runs compare with nothing.

    A loss agrees within a factor of two, an accuracy within two points: about the spread of the
    paper's seeds. Where a network is little better than guessing, both numbers are near guessing,
    and only the order of the rules is informative.
    """
    paper, ours = cell.entry.published, cell.mean
    if experiment.scale != "paper" or paper is None or not cell.values:
        return ""
    if math.isnan(ours):
        return "diverged"
    if not beats_guessing(experiment, cell.entry.config.task, ours):
        return "order only"
    if experiment.metric == "accuracy":
        return "agrees" if abs(ours - paper) <= 0.02 else "higher" if ours > paper else "lower"
    return "agrees" if paper / 2 <= ours <= 2 * paper else "higher" if ours > paper else "lower"


def _text(experiment: Experiment, cell: Cell) -> str:
    entry, records = cell.entry, cell.records
    theirs = "" if entry.published is None else f"; paper {number(experiment, entry.published)}"
    theirs += f": {found}" if (found := verdict(experiment, cell)) else ""
    if not cell.values:
        return f"not run{theirs}"
    spread = "" if math.isnan(cell.spread) else f" ± {number(experiment, cell.spread)}"
    count = len({record["seed"] for record in records})
    rates = ", ".join(f"{rate:g}" for rate in sorted({record["rate"] for record in records}))
    about = [f"{count} seed{'s' * (count > 1)}", f"rate {rates}", gradient_mode(entry.config)]
    if entry.note:
        about.append(entry.note)
    if cell.diverged:
        about.append(f"{cell.diverged} of {len(cell.values)} runs diverged, not in the mean")
    if changed := sum(map(modified, records)):
        about.append(f"{changed} of {len(records)} from a modified tree")
    return f"**{number(experiment, cell.mean)}**{spread} ({', '.join(about)}){theirs}"


HEADER = "entry, seed, rate, training loss, test loss, test accuracy, s, commit, hardware"


def _every_run(experiment: Experiment, cells: list[Cell]) -> str:
    rows = []
    for cell in cells:
        name = cell.entry.name
        rows += [[name, *_run(record)] for record in cell.records]
        if cell.searched:
            tried = ", ".join(
                f"{r['rate']:g}: {r['validation'][experiment.selected_by]:.3g}"
                for r in sorted(cell.searched, key=lambda r: r["rate"])
            )
            steps = f"{cell.searched[0]['step']} steps"
            rows.append([name, "search", steps, f"validation, by rate: {tried}", *[""] * 5])
    return _table(HEADER.split(", "), rows)


def _run(record: dict[str, Any]) -> list[str]:
    test, place = record["test"], record["surroundings"]
    commit = (place.get("commit") or "")[:8] + ", modified" * modified(record)
    return [
        str(record["seed"]),
        f"{record['rate']:g}",
        f"{record['training_loss']:.2e}",
        f"{test['loss']:.2e}",
        f"{test['accuracy']:.2%}",
        f"{record['seconds']:.0f}",
        for_markdown(commit),  # a record may come from anywhere
        for_markdown(f"{place['cores']} cores, {place['devices']}"),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(_row, [head, ["---"] * len(head), *rows]))


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"
