"""Results of a sweep: a table of its trials and a figure, made from `sweep.jsonl` alone."""

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace._runs.figures import new_page, over_magnitudes, page_as_png
from foretrace._runs.files import write_atomically
from foretrace._runs.metrics import read_metrics
from foretrace.rl._config import RLConfig
from foretrace.stream._config import StreamConfig
from foretrace.sweep._config import Sweep
from foretrace.sweep._kinds import SweptConfig, swept
from foretrace.sweep._space import Dimension, Range
from foretrace.sweep._trials import Trial, assignments, best, ranked, read_trials, run_dir, shown

FIGURE = "sweep.png"


def table(folder: str | os.PathLike[str]) -> Any:
    """Return the trials, the best one first, as a table to be printed by rich.

    Raises:
        RunError: no sweep, or one without a trial.
    """
    from rich.console import Group
    from rich.table import Column, Table

    sweep, trials = _read(folder)
    options = [dimension.option for dimension in sweep.dimensions]
    columns = [Column(option, overflow="fold") for option in options]
    grid = Table("trial", *columns, _label(sweep), "step", "", title=_title(sweep, trials))
    for trial in ranked(trials, sweep.sign):
        values = [
            shown(trial.values[option]) if option in trial.values else "" for option in options
        ]
        score = "" if trial.score is None else f"{trial.score:.4g}"
        state = f"{trial.state}: {trial.reason}" if trial.reason else trial.state
        grid.add_row(str(trial.number), *values, score, str(trial.step), state)
    leader = best(trials, sweep.sign)
    grid.caption = None if leader is None else f"Best: {assignments(leader.values)}."
    return Group(grid, *_repeats(sweep, trials))


def _repeats(sweep: Sweep, trials: Sequence[Trial]) -> list[Any]:
    """Return a table of the scores of several seeds, a row for each choice of other options."""
    from rich.table import Column, Table

    groups = dict[str, dict[Any, float]]()
    for trial in trials:
        if "seed" in trial.values and trial.score is not None and trial.state == "finished":
            groups.setdefault(_but_seed(trial), {})[trial.values["seed"]] = trial.score
    seeds = list(dict.fromkeys(seed for found in groups.values() for seed in found))
    if len(seeds) < 2:
        return []
    table = Table(
        Column("options", overflow="fold"),
        "mean",
        *(f"seed {seed}" for seed in seeds),
        title=_label(sweep),
    )
    for name, found in sorted(
        groups.items(), key=lambda item: sweep.sign * statistics.mean(item[1].values())
    ):
        shares = [f"{found[seed]:.4g}" if seed in found else "" for seed in seeds]
        table.add_row(name, f"{statistics.mean(found.values()):.4g}", *shares)
    return [table]


def _but_seed(trial: Trial) -> str:
    return assignments(
        {option: value for option, value in trial.values.items() if option != "seed"}
    )


def figure(folder: str | os.PathLike[str]) -> Path:
    """Draw the score against each option into `sweep.png`; return its path.

    Raises:
        RunError: no sweep, or one without a trial.
        OSError: the file cannot be written.
    """
    sweep, trials = _read(folder)
    dimensions = sweep.dimensions
    page = new_page(0.8 + 4.2 * (len(dimensions) + 1), 3.8)
    *panels, curves = page.subplots(1, len(dimensions) + 1, sharey=True, squeeze=False)[0]
    for axes, dimension in zip(panels, dimensions, strict=True):
        _panel(axes, dimension, trials, best(trials, sweep.sign))
    if over_magnitudes([t.score for t in trials if t.score is not None]):
        panels[0].set(yscale="log")
    panels[0].set_ylabel(_label(sweep))
    panels[0].legend(loc="upper right")
    _curves(curves, Path(folder), sweep, trials)
    page.suptitle(_title(sweep, trials))
    path = Path(folder) / FIGURE
    write_atomically(path, page_as_png(page))
    return path


def _panel(axes: Any, dimension: Dimension, trials: Sequence[Trial], leader: Trial | None) -> None:
    numbers = _numbers(dimension)
    positions = {value: place for place, value in enumerate(dimension.values)}

    def place(trial: Trial) -> float:
        value = trial.values[dimension.option]
        return positions[value] if numbers is None else float(value)

    marks = {"finished": ("o", "C0"), "running": (".", "C1")}
    for state, (mark, colour) in marks.items():
        found = [t for t in trials if t.state == state and t.score is not None]
        if found or state == "finished":
            scores = [t.score for t in found]
            axes.plot(
                [place(t) for t in found], scores, mark, color=colour, linestyle="", label=state
            )
    if leader is not None:
        axes.plot(
            [place(leader)], [leader.score], "*", color="C3", markersize=13, label="best", zorder=3
        )
    if numbers is None:
        axes.set_xticks(list(positions.values()), [str(value) for value in positions])
        axes.set_xlim(-0.5, len(positions) - 0.5)
    elif (isinstance(dimension, Range) and dimension.log) or over_magnitudes(numbers):
        axes.set(xscale="log")
    axes.set_xlabel(dimension.option)
    axes.grid(alpha=0.3)


def _curves(axes: Any, folder: Path, sweep: Sweep, trials: Sequence[Trial]) -> None:
    """Draw each trial's score over its steps, with a colour for each choice of options."""
    kind, colours = swept(sweep.config).curve, dict[str, str]()
    for trial in trials:
        metrics = Run(run_dir(folder, trial.number)).metrics
        lines = (
            [line for line in read_metrics(metrics) if line["kind"] == kind]
            if metrics.exists()
            else []
        )
        lines = [line for line in lines if sweep.measure in line]
        name = _but_seed(trial)
        label = None if name in colours else name
        colour = colours.setdefault(name, f"C{len(colours) % 10}")
        steps, values = [line["step"] for line in lines], [line[sweep.measure] for line in lines]
        axes.plot(steps, values, color=colour, alpha=0.7, label=label)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if 1 < len(colours) <= 10:
        axes.legend(fontsize="x-small", loc="upper right")


def _numbers(dimension: Dimension) -> list[float] | None:
    """Return the values of an option as numbers; None if one of them is none."""
    try:
        return [float(value) for value in dimension.values]
    except ValueError:
        return None


def _title(sweep: Sweep, trials: Sequence[Trial]) -> str:
    counts = [
        f"{sum(t.state == state for t in trials)} {state}" for state in ("finished", "failed")
    ]
    told = ", ".join(count for count in counts if not count.startswith("0 "))
    return f"{_subject(sweep.config)}: {len(trials)} trials" + (f", {told}" if told else "")


def _subject(config: SweptConfig) -> str:
    """Return the name of the runs' task."""
    if isinstance(config, StreamConfig):
        return Path(config.source).name
    return type(config.environment if isinstance(config, RLConfig) else config.task).__name__


def _label(sweep: Sweep) -> str:
    """Return the name of the scores."""
    return (
        f"validation {sweep.measure}"
        if swept(sweep.config).curve == "validation"
        else sweep.measure
    )


def _read(folder: str | os.PathLike[str]) -> tuple[Sweep, list[Trial]]:
    sweep, trials = read_config_as(folder, Sweep), read_trials(folder)
    if not trials:
        raise RunError(f"{folder} has nothing to report yet")
    return sweep, trials
