"""Final table of a run on a stream: its scores, the experts' and the baselines'."""

import os
from pathlib import Path
from statistics import median
from typing import Any

from foretrace._rows.scores import BASELINES, SCORES
from foretrace._runs.escape import for_rich
from foretrace._runs.session import read_run
from foretrace.stream._config import StreamConfig

OWN_NAME = "the mixture"
"""Title of what a run predicts."""


def table(run_dir: str | os.PathLike[str]) -> Any:
    """Return the table of a run, for rich to print: mean scores over all rows that have a label.

    Raises:
        RunError: there is no run, or it has no measurement yet.
    """
    from rich.table import Table

    config, records = read(run_dir)
    last = records[-1]
    total = last.get("total", last)
    names = [name for name in SCORES if name in total]
    # Words of the titles one below the other leave room for the names of experts.
    narrow = len(names) > 3
    columns = (
        SCORES[name].title.replace(" ", "\n") if narrow else SCORES[name].title for name in names
    )
    grid = Table("", *columns, title=for_rich(title(config)))
    grid.add_row(f"this run, {OWN_NAME}", *(SCORES[name].text(total[name]) for name in names))
    for prefix, what in BASELINES.items():
        if any(prefix + name in total for name in names):
            cells = [
                SCORES[name].text(total[prefix + name]) if prefix + name in total else ""
                for name in names
            ]
            grid.add_row(what, *cells)
    score = main_score(total)
    experts = last.get("experts", {})
    for name in sorted(experts, key=lambda name: experts[name], reverse=score == "accuracy"):
        weight = f"expert {name}, weight {last['weights'][name]:.2f}"
        grid.add_row(
            weight,
            *(SCORES[score].text(experts[name]) if other == score else "" for other in names),
        )
    counts = ", ".join(f"{count} {name}" for name, count in last["counts"].items()) or "nothing"
    intervals = _intervals(config, last) if "coverage" in total else ""
    grid.caption = (
        f"{_not_better(last, total)}Each of {last['scored']} rows was predicted before its label "
        f"was used. {intervals}Missing, masked or clipped: {counts}; steps refused: "
        f"{last['refused']}. {_members(last)}{_reach(last)}{last['seconds']:.0f} s. "
        f"{_parts(records)}"
    )
    return grid


def read(run_dir: str | os.PathLike[str]) -> tuple[StreamConfig, list[dict[str, Any]]]:
    """Return the configuration and the record of a run.

    Raises:
        RunError: there is no run, or it has no measurement yet.
    """
    return read_run(run_dir, StreamConfig)


def title(config: StreamConfig) -> str:
    """Return the target and the source of a run."""
    what = "next character" if config.target is None else config.target
    ahead = f", next {config.horizon} rows" if config.horizon else ""
    late = f", labels {config.delay} rows late" if config.delay else ""
    source = "standard input" if config.source == "-" else Path(config.source).name
    return f"{source}: {what}{ahead}{late}"


def main_score(total: dict[str, float]) -> str:
    """Return the score that every expert has."""
    return "accuracy" if "accuracy" in total else "mae"


def typical_parts(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the microseconds a row of each part, the median over the lines of the record."""
    lines = [record["microseconds"] for record in records if "microseconds" in record]
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: median(line.get(name, 0.0) for line in lines) for name in names}


def _intervals(config: StreamConfig, record: dict[str, Any]) -> str:
    asked, recent = (
        f"The intervals are to hold {config.coverage:.0%} of the labels",
        record.get("recent_coverage"),
    )
    of_member = ""
    if "worst_member" in record:
        name, share = for_rich(record["worst_member"]), record["worst_member_coverage"]
        of_member = f"; {share:.1%} of {name}'s, the least of a member"
    if recent is None:
        return f"{asked}{of_member}. "
    return f"{asked}; they held {recent:.1%} of the last {record['recent_labels']:,}{of_member}. "


def _not_better(record: dict[str, Any], total: dict[str, float]) -> str:
    """Return advice if the run is not clearly better than a baseline, else an empty text."""
    names = record.get("not_better_than", [])
    if not names:
        return ""
    score = main_score(total)
    others = " and ".join(
        f"{BASELINES[name]} ({SCORES[score].text(total[name + score])})" for name in names
    )
    own = f"The {SCORES[score].title}, {SCORES[score].text(total[score])},"
    return (
        f"{own} is not better than {others} by two standard errors: the inputs may not tell the "
        "target; try more rows, other inputs, or --size small for rows further back. "
    )


def _parts(records: list[dict[str, Any]]) -> str:
    parts = typical_parts(records)
    each = ", ".join(f"{name} {value:.0f}" for name, value in parts.items())
    return f"Time of a row: {sum(parts.values()):.0f} µs ({each})." if parts else ""


def _reach(record: dict[str, Any]) -> str:
    return f"The lags reach back {record['reach']} rows. " if "reach" in record else ""


def _members(record: dict[str, Any]) -> str:
    if "members" not in record:
        return ""
    return (
        "Members: "
        + ", ".join(f"{count} {what}" for what, count in record["members"].items())
        + ". "
    )
