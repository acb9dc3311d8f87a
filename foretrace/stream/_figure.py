"""Figure of a run on a stream: its score beside the best simple answer, and experts."""

import os
from typing import Any

import numpy as np

from foretrace._rows.scores import BASELINES, SCORES
from foretrace._rows.values import as_time
from foretrace._runs.escape import for_plot
from foretrace._runs.figures import draw, new_page
from foretrace._runs.saved import read_run
from foretrace.stream._config import StreamConfig
from foretrace.stream._report import OWN_NAME, main_score, simple_answers, title

_OWN, _BASELINE, _EXPERT = "tab:blue", "tab:orange", "0.65"


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw a run into its `curves.png`; return the file's path.

    Above, the main score of the lines of the record beside the simple answers'; below, the share of
    the labels in the intervals, or of wrong probabilities; and the score of every expert over all
    rows.

    Raises:
        RunError: there is no run, or it has no measurement yet.
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context

    config, records = read_run(run_dir, StreamConfig)
    # A stream with fewer rows than --log-every has no line but its result: points instead of
    # curves.
    lines = [record for record in records if record["kind"] == "stream"] or records[-1:]
    last = records[-1]
    total = last.get("total", last)
    score = main_score(total)
    others = [name for name, one in SCORES.items() if one.curve and name in total and name != score]
    experts = bool(last.get("experts"))
    columns = min(len(others), 2 if experts else 3) + experts
    page = new_page(13.2, 8.4)
    with rc_context({"date.converter": "concise"}):  # whole dates would cover each other
        top, below = page.subfigures(2, 1, height_ratios=(1.1, 1))
        _draw_score(top.subplots(), score, lines, config)
        lower = list(below.subplots(1, columns, squeeze=False)[0])
        if experts:
            _draw_ranking(lower.pop(0), last, total)
        for axes, name in zip(lower, reversed(others), strict=False):
            _draw_score(axes, name, lines, config)
    page.suptitle(for_plot(f"{title(config)}; a point is {config.log_every} rows"))
    return draw(page, run_dir)


def _draw_score(axes: Any, name: str, lines: list[dict[str, Any]], config: StreamConfig) -> None:
    what, xs = _places(lines)
    curves = {}
    for prefix in ("", *BASELINES):
        pairs = zip(xs, lines, strict=True)
        curves[prefix] = [(x, line[prefix + name]) for x, line in pairs if prefix + name in line]
    for prefix, points in curves.items():
        if points:
            color, width = ("0.6", 1) if prefix else (_OWN, 2)
            marker = "o" if len(lines) == 1 else None
            axes.plot(*zip(*points, strict=True), color=color, lw=width, marker=marker)
            if any(curves[other] for other in curves if other != prefix):
                title = f" {BASELINES.get(prefix, OWN_NAME)}"
                axes.annotate(title, points[-1], color=color, va="center", annotation_clip=False)
    if name == "coverage":
        axes.axhline(config.coverage, color=_BASELINE, lw=1, label="the share asked for")
        axes.set_ylim(min(0.5, *axes.get_ylim()), 1)
        axes.legend(loc="lower right")
    axes.margins(x=0.01)
    axes.set(title=SCORES[name].title, xlabel=what)
    axes.grid(alpha=0.3)


def _places(lines: list[dict[str, Any]]) -> tuple[str, list[Any]]:
    """Return what the axis of rows shows, and the place of each line: its date where rows have one.

    Rows are shown where dates are not in order, such as in a file of one member after another.
    """
    dates = [as_time(line.get("date")) for line in lines]
    if None in dates or dates != sorted(dates):  # type: ignore[type-var]
        return "row", [line["step"] for line in lines]
    return "date", [np.datetime64(round(date), "s") for date in dates if date is not None]


def _draw_ranking(axes: Any, last: dict[str, Any], total: dict[str, float]) -> None:
    """Draw the scores of run, simple answers and experts over all rows, best on top."""
    score = main_score(total)
    found = [(OWN_NAME, total[score], _OWN)]
    found += [
        (what, of[score], _BASELINE) for what, of in simple_answers(last).items() if score in of
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
