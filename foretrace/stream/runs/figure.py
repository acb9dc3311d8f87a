"""Figure of a run on a stream: its scores, those of the baselines, and weights of experts."""

import os
from typing import Any

import numpy as np

from foretrace._runs import figures
from foretrace.stream.read.scores import BASELINES, SCORES
from foretrace.stream.read.values import as_time
from foretrace.stream.runs.report import OWN_NAME, heaviest, records_in, title


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw scores and weights of a run into `curves.png`, and return the file's path.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
        OSError: the file cannot be written.
    """
    config, records = records_in(run_dir)
    # A stream with fewer rows than --log-every has only its result, which is drawn as points.
    lines = [record for record in records if record["kind"] == "stream"] or records[-1:]
    what, places = _places(lines)
    others = {"": OWN_NAME} | BASELINES
    panels = []
    for name, score in SCORES.items():
        curves = {
            shown: [
                (x, line[prefix + name])
                for x, line in zip(places, lines, strict=True)
                if prefix + name in line
            ]
            for prefix, shown in others.items()
        }
        levels = {"the share asked for": config.coverage} if name == "coverage" else {}
        panels.append(figures.Panel(score.title, curves, levels))
    weights = {
        name: [(x, line["weights"][name]) for x, line in zip(places, lines, strict=True)]
        for name in heaviest(lines[-1])
    }
    panels.append(figures.Panel("weight of the heaviest experts", weights))
    heading = f"{title(config)}; a point is {config.log_every} rows"
    return figures.draw_metrics(run_dir, heading, panels, what)


def _places(lines: list[dict[str, Any]]) -> tuple[str, list[Any]]:
    """Return the title of the row axis, and the place of each line: a date if rows have dates.

    Rows are shown if dates are not in order, for example if members follow each other in a file.
    """
    dates = [as_time(line.get("date")) for line in lines]
    if None in dates or dates != sorted(dates):  # type: ignore[type-var]
        return "row", [line["step"] for line in lines]
    return "date", [np.datetime64(round(date), "s") for date in dates if date is not None]
