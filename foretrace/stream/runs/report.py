"""Final tables of a run on a stream: scores of the run, its experts and the baselines."""

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from foretrace._runs.directory import RunError, read_config_as
from foretrace._runs.escape import for_rich
from foretrace._runs.saved import read_run
from foretrace.stream.read.scores import BASELINES, MANY, SCORES
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.saved import parts_in

OWN_NAME = "this run"
"""Title of the run's own predictions."""

_HEAVIEST = 5
"""Number of experts whose weights are shown, those with the largest weights."""

_WIDE = 72
"""Characters of a table without scores."""

_FEW = 7.0
"""Root of the mean squared error over the mean error from which few rows, a fiftieth if their
errors are equal, have the error.
"""


def _table(config: StreamConfig, records: list[dict[str, Any]]) -> Any:
    """Return the table of a run, with mean scores over all rows that have a label."""
    from rich.table import Table

    last = records[-1]
    total = last.get("total", last)
    names = [name for name in SCORES if name in total]
    # If the words of the titles are below each other, there is room for the names of experts.
    narrow = len(names) > 3
    columns = (
        SCORES[name].title.replace(" ", "\n") if narrow else SCORES[name].title for name in names
    )
    least = 0 if names else _WIDE  # the caption is as wide as the columns
    grid = Table("", *columns, title=for_rich(title(config)), min_width=least)
    grid.add_row(OWN_NAME, *(SCORES[name].text(total[name]) for name in names))
    simple = simple_answers(last)
    for what, scores in simple.items():
        cells = (SCORES[name].text(scores[name]) if name in scores else "" for name in names)
        grid.add_row(what, *cells)
    counts = ", ".join(f"{count} {name}" for name, count in last["counts"].items()) or "nothing"
    intervals = _intervals(config, last) if "coverage" in total else ""
    reach = f"The lags reach back {last['reach']} rows. " if "reach" in last else ""
    grid.caption = (
        f"{_not_better(last, total) or _gain(total, simple)}"
        f"{_of_group(last)}"
        f"{_scored(last)}{_weights(last)}{intervals}"
        f"Missing, masked or clipped: {counts}; steps refused: "
        f"{last['refused']}. {_unusual(last)}{_members(last)}{_changes(last)}{reach}"
        f"{last['seconds']:.0f} s. {_parts(records)}"
    )
    return grid


def _scored(last: dict[str, Any]) -> str:
    """Return how many rows the scores are of."""
    if not last["scored"]:
        return "No row could be scored yet: a score needs a prediction and, later, its label. "
    return f"Each of {last['scored']} rows was predicted before its label was used. "


def records_in(run_dir: str | os.PathLike[str]) -> tuple[StreamConfig, list[dict[str, Any]]]:
    """Return the configuration and the record of a run. The parts of a group are added up.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
    """
    last = []
    for part in parts_in(run_dir):
        with contextlib.suppress(RunError):  # a part may have nothing to report yet
            last.append(read_run(part, StreamConfig)[1][-1])
    if not last:
        return read_run(run_dir, StreamConfig)
    return read_config_as(run_dir, StreamConfig), [added(last)]


def added(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one record line for the last lines of several parts.

    Means are weighted by the number of rows. Scores that are not means over rows are left out.

    >>> one, two = (
    ...     {
    ...         "kind": "result",
    ...         "step": 2,
    ...         "seconds": 1,
    ...         "refused": 0,
    ...         "counts": {"bad": n},
    ...         "scored": n,
    ...         "mae": 1.0 * n,
    ...         "rmse": 1.0 * n,
    ...     }
    ...     for n in (1, 3)
    ... )
    >>> line = added([one, two])
    >>> line["scored"], line["counts"], line["mae"], line["rmse"] == 7**0.5
    (4, {'bad': 4}, 2.5, True)
    """
    totals = [(line.get("total", line), line["scored"]) for line in lines]
    rows = sum(count for _, count in totals)

    def mean(name: str, power: int) -> float:
        return (sum(n * one[name] ** power for one, n in totals if n) / rows) ** (1 / power)

    means = [start + name for name in SCORES for start in ("", *BASELINES)]
    means = [name for name in means if not name.endswith("calibration_error")]
    scores = {
        name: mean(name, 2 if name.endswith("rmse") else 1)
        for name in means
        if rows and all(name in one for one, n in totals if n)
    }
    found: dict[str, Any] = {"kind": "result", "scored": rows, "parts": len(lines), **scores}
    for name in ("step", "refused", "unusual"):
        if name in lines[0]:
            found[name] = sum(line.get(name, 0) for line in lines)
    for name in ("counts", "members"):
        sums = Counter[str]()
        for line in lines:
            sums.update(line.get(name, {}))
        found[name] = dict(sums)
    found["weights"] = {
        name: sum(line["scored"] * line["weights"].get(name, 0.0) for line in lines) / max(rows, 1)
        for line in lines[:1]
        for name in line.get("weights", {})
    }
    return found | {"seconds": max(line["seconds"] for line in lines)}


def page(run_dir: str | os.PathLike[str]) -> Any:
    """Return the tables of a run, for printing with rich: its scores, and those of its classes.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
    """
    from rich.console import Group
    from rich.table import Table

    config, records = records_in(run_dir)
    grids = [_table(config, records)]
    if classes := records[-1].get("classes"):
        names = [*classes[-1]]  # alarms come after the classes, and have more columns
        grid = Table(*(name.replace("_", "\n") for name in names))
        for one in classes:
            grid.add_row(*(_cell(one.get(name)) for name in names))
        grid.caption = (
            f"Recall: share of the labels that were predicted; at most the {MANY} rarest classes. "
            "Precision: share of the predictions that were right."
        )
        grids.append(grid)
    return Group(*grids)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2%}" if isinstance(value, float) else for_rich(str(value))


def simple_answers(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the baselines' scores over all rows, by title."""
    total = record.get("total", record)
    found = {
        what: {name: total[prefix + name] for name in SCORES if prefix + name in total}
        for prefix, what in BASELINES.items()
    }
    if "season" in (experts := record.get("experts", {})):
        found["the last value of the best season"] = {"mae": experts["season"]}
    return {what: scores for what, scores in found.items() if scores}


def heaviest(record: dict[str, Any]) -> dict[str, float]:
    """Return the weights of the experts that have the largest ones, by name."""
    weights = record.get("weights", {})
    return dict(sorted(weights.items(), key=lambda one: -one[1])[:_HEAVIEST])


def _weights(record: dict[str, Any]) -> str:
    """Return a text with the experts that have the largest weights."""
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in heaviest(record).items())
    return f"Weights: {shown}. " if shown else ""


def title(config: StreamConfig) -> str:
    """Return the target and the source of a run."""
    what = "next character" if config.target is None else config.target
    ahead = f", next {config.horizon} rows" if config.horizon else ""
    late = f", labels {config.delay} rows late" if config.delay else ""
    source = "standard input" if config.source == "-" else Path(config.source).name
    if (topic := config.topic) is not None and topic.partition is not None:
        source = f"partition {source} of {topic.name}"
    return f"{source}: {what}{ahead}{late}"


def main_score(total: dict[str, float]) -> str:
    """Return the name of the score that every expert has."""
    return "accuracy" if "accuracy" in total else "mae"


def _intervals(config: StreamConfig, record: dict[str, Any]) -> str:
    asked, of_member = f"The intervals are to hold {config.coverage:.0%} of the labels", ""
    recent = record.get("recent_coverage")
    if "worst_member" in record:
        name, share = for_rich(record["worst_member"]), record["worst_member_coverage"]
        of_member = f"; {share:.1%} of {name}'s, the least of a member"
    if recent is None:
        return f"{asked}{of_member}. "
    return f"{asked}; they held {recent:.1%} of the last {record['recent_labels']:,}{of_member}. "


def _gain(total: dict[str, float], simple: dict[str, dict[str, float]]) -> str:
    """Return a text with the gain of a run over the best baseline."""
    score = main_score(total)
    known = {what: scores[score] for what, scores in simple.items() if score in scores}
    if not known:
        return ""
    is_accuracy = score == "accuracy"
    what = (max if is_accuracy else min)(known, key=lambda what: known[what])
    before, now = (1 - value if is_accuracy else value for value in (known[what], total[score]))
    if not before:
        return f"The best simple answer, {what}, makes no error. "
    errors = "Wrong answers" if is_accuracy else "The mean absolute error"
    change = f"{abs(1 - now / before):.0%} {'less' if now <= before else 'more'}"
    return f"{errors}: {change} than by the best simple answer, {what}. "


def _not_better(record: dict[str, Any], total: dict[str, float]) -> str:
    """Return advice if the run is not clearly better than a baseline; otherwise an empty text."""
    names = record.get("not_better_than", [])
    if not names:
        return ""
    score = main_score(total)
    others = " and ".join(
        f"{BASELINES[name]} ({SCORES[score].text(total[name + score])})" for name in names
    )
    own = f"The {SCORES[score].title}, {SCORES[score].text(total[score])},"
    start = f"{own} is not better than {others} by two standard errors: "
    if total.get("rmse", 0.0) > _FEW * total.get("mae", 0.0):
        return f"{start}few predictions have most of the error; --predictions shows which. "
    return (
        f"{start}the inputs may not tell the "
        "target; try more rows, other inputs, or --size small for rows further back. "
    )


def _of_group(record: dict[str, Any]) -> str:
    """Return a text with the number of parts of a group."""
    if "parts" not in record:
        return ""
    return f"{record['parts']} partitions, whose scores are weighted by their rows. "


def _parts(records: list[dict[str, Any]]) -> str:
    """Return a text with the time of a row and of its steps, as medians over record lines."""
    lines = [record["microseconds"] for record in records if "microseconds" in record]
    compiled = "" if lines[1:] else ", programs included that were compiled"
    lines = lines[1:] or lines  # the first rows of a run wait for the compiler
    names = dict.fromkeys(name for line in lines for name in line)
    parts = {name: median(line.get(name, 0.0) for line in lines) for name in names}
    each = ", ".join(f"{name} {value:.0f}" for name, value in parts.items())
    return f"Time of a row: {sum(parts.values()):.0f} µs ({each}{compiled})." if parts else ""


def _unusual(record: dict[str, Any]) -> str:
    return f"Unusual labels: {record['unusual']}. " if "unusual" in record else ""


def _members(record: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {what}" for what, count in record.get("members", {}).items())
    return f"Members: {counts}. " if counts else ""


def _changes(record: dict[str, Any]) -> str:
    """Return a text with the columns that changed last, each with the row of the change."""
    newest = sorted(record.get("changes", {}).items(), key=lambda one: -one[1][0])
    text = "from {1:.3g} ± {2:.3g} to {3:.3g} ± {4:.3g} by row {0:,}"
    found = "; ".join(f"{for_rich(name)} {text.format(*change)}" for name, change in newest[:5])
    return f"Columns that changed: {found}. " if found else ""
