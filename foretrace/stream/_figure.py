"""Figure of a run on a stream: scores over rows, weights, and experts' scores."""

import os
from pathlib import Path
from typing import Any

from foretrace._rows.scores import BASELINES, SCORES
from foretrace._runs.directory import Run
from foretrace._runs.escape import for_plot
from foretrace._runs.figures import new_page, page_as_png
from foretrace._runs.files import write_atomically
from foretrace.stream._config import StreamConfig
from foretrace.stream._report import OWN_NAME, main_score, read, title, typical_parts

_OWN, _BASELINE, _EXPERT, _REST = "tab:blue", "tab:orange", "0.65", "0.85"
_SHOWN = 7
"""Number of experts with a colour of their own; the others are one area."""


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw a run into its `curves.png`; return the file's path.

    Scores of the lines of the record; if there are experts, their weights and their scores over all
    rows; the time of a row, part by part, and memory.

    Raises:
        RunError: there is no run, or it has no measurement yet.
        OSError: the file cannot be written.
    """
    run = Run(Path(run_dir))
    config, records = read(run.path)
    # A stream with fewer rows than --log-every has no line but its result: points instead of
    # curves.
    lines = [record for record in records if record["kind"] == "stream"] or records[-1:]
    total = records[-1].get("total", records[-1])
    names = [name for name, score in SCORES.items() if score.curve and name in total]
    experts = bool(records[-1].get("experts"))
    columns = max(len(names), 3)
    page = new_page(4.4 * columns, 7.4)
    axes = page.subplots(2, columns, squeeze=False)
    for place, name in zip(axes[0], names, strict=False):
        _draw_score(place, name, lines, config)
    lower = list(axes[1])
    if experts:
        _draw_weights(lower.pop(0), lines)
        _draw_ranking(lower.pop(0), records[-1], total, config)
    _draw_parts(lower.pop(0), records)
    if lower and any("resident_mib" in line for line in lines):
        _draw_memory(lower.pop(0), lines)
    for empty in (*axes[0][len(names) :], *lower):
        empty.axis("off")
    page.suptitle(for_plot(title(config)))
    write_atomically(run.figure, page_as_png(page))
    return str(run.figure)


def _draw_score(axes: Any, name: str, lines: list[dict[str, Any]], config: StreamConfig) -> None:
    marker = "o" if len(lines) == 1 else None
    for prefix, what in {"": OWN_NAME, **BASELINES}.items():
        points = [(line["step"], line[prefix + name]) for line in lines if prefix + name in line]
        if points:
            axes.plot(
                *zip(*points, strict=True), label=what, lw=1.5 if not prefix else 1, marker=marker
            )
    if name == "coverage":
        axes.axhline(config.coverage, color=_BASELINE, lw=1, label="the share asked for")
        axes.set_ylim(min(0.5, *axes.get_ylim()), 1)
    if axes.lines:
        axes.legend(fontsize=8, loc="upper right")
    axes.set(title=SCORES[name].title, xlabel=f"row; a point is {config.log_every} rows")
    axes.grid(alpha=0.3)


def _draw_weights(axes: Any, lines: list[dict[str, Any]]) -> None:
    """Draw the weights of the experts over the rows, the heaviest ones in colours of their own."""
    lines = [line for line in lines if line.get("weights")]
    mean = {
        name: sum(line["weights"][name] for line in lines) / len(lines)
        for name in lines[0]["weights"]
    }
    heavy = sorted(mean, key=lambda name: mean[name], reverse=True)[:_SHOWN]
    steps = [line["step"] for line in lines]
    areas = [[line["weights"][name] for line in lines] for name in heavy]
    rest = [max(1 - sum(values), 0.0) for values in zip(*areas, strict=True)]
    labels, areas = [*heavy, "all others"], [*areas, rest]
    colors = [f"C{i}" for i in range(len(heavy))] + [_REST]
    if len(steps) == 1:
        axes.barh(labels[::-1], [values[0] for values in areas][::-1], color=colors[::-1])
        axes.set(title="weights of the experts")
        return
    axes.stackplot(steps, areas, labels=labels, colors=colors)
    handles, found = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], found[::-1], fontsize=7, loc="lower left", framealpha=0.7)
    axes.set(
        title="weights: what the stream needed",
        xlabel="row",
        ylim=(0, 1),
        xlim=(steps[0], steps[-1]),
    )


def _draw_ranking(
    axes: Any, last: dict[str, Any], total: dict[str, float], config: StreamConfig
) -> None:
    """Draw the scores of mixture, baselines and experts over all rows, best on top."""
    score = main_score(total)
    found = [(OWN_NAME, total[score], _OWN)]
    found += [
        (what, total[prefix + score], _BASELINE)
        for prefix, what in BASELINES.items()
        if prefix + score in total
    ]
    found += [(name, value, _EXPERT) for name, value in last["experts"].items()]
    found.sort(key=lambda row: row[1], reverse=score != "accuracy")
    names, values, colors = zip(*found, strict=True)
    places = range(len(names))
    axes.barh(places, values, color=colors)
    axes.set_yticks(places, names, fontsize=7)
    if score == "mae":  # one expert that is far off would hide the others
        axes.set_xlim(0, 3 * min(values) if max(values) > 3 * min(values) > 0 else None)
    axes.set(title=f"{SCORES[score].title} over all rows")
    axes.grid(alpha=0.3, axis="x")


def _draw_parts(axes: Any, records: list[dict[str, Any]]) -> None:
    parts = typical_parts(records)
    if not parts:
        axes.text(0.5, 0.5, "fewer rows than --log-every", ha="center", transform=axes.transAxes)
        axes.axis("off")
        return
    names, values = list(parts)[::-1], list(parts.values())[::-1]
    bars = axes.barh(names, values, color=_OWN)
    axes.bar_label(bars, fmt="%.0f", padding=2)
    axes.margins(x=0.15)
    memory = [record["resident_mib"] for record in records if "resident_mib" in record]
    axes.set(title=f"time of a row: {sum(values):.0f} µs; memory: {memory[-1]:.0f} MiB")


def _draw_memory(axes: Any, lines: list[dict[str, Any]]) -> None:
    points = [(line["step"], line["resident_mib"]) for line in lines if "resident_mib" in line]
    axes.plot(*zip(*points, strict=True))
    axes.set(title="resident memory, MiB", xlabel="row", ylim=(0, None))
    axes.grid(alpha=0.3)
