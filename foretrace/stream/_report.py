"""The report of a run on a stream: a table of scores beside baselines, and curves."""

import os
from pathlib import Path
from typing import Any

from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace._runs.escape import for_plot, for_rich
from foretrace._runs.figures import page_as_png
from foretrace._runs.files import write_atomically
from foretrace._runs.metrics import read_metrics
from foretrace.stream._config import StreamConfig

_BASELINES = {
    "no_change_": "predicting the last one known",
    "majority_": "the most frequent class",
    "mean_": "the mean",
}

_SCORES = {"accuracy": "accuracy", "log_loss": "log loss", "mae": "mean absolute error", "rmse": "root mean square"}


def table(run_dir: str | os.PathLike) -> Any:
    """Return the table of a run, for rich to print: mean scores over all rows that have a label.

    Raises:
        RunError: there is no run, or it has no measurement yet.
    """
    from rich.table import Table

    config, records = _read(run_dir)
    last = records[-1]
    total = last.get("total", last)
    names = [name for name in _SCORES if name in total]
    grid = Table("", *(_SCORES[name] for name in names), title=for_rich(_title(config)))
    own = config.model.rule if config.model.expert_names() == ("network",) else "the mixture"
    grid.add_row(f"this run, {own}", *(_shown(name, total[name]) for name in names))
    for prefix, what in _BASELINES.items():
        if any(prefix + name in total for name in names):
            cells = [_shown(name, total[prefix + name]) if prefix + name in total else "" for name in names]
            grid.add_row(what, *cells)
    score = "accuracy" if "accuracy" in names else "mae"
    experts = last.get("experts", {})
    for name in sorted(experts, key=lambda name: experts[name], reverse=score == "accuracy"):
        weight = f"expert {name}, weight {last['weights'][name]:.2f}"
        grid.add_row(weight, *(_shown(score, experts[name]) if other == score else "" for other in names))
    counts = ", ".join(f"{count} {name}" for name, count in last["counts"].items()) or "nothing"
    grid.caption = (
        f"Each of {last['scored']} rows was predicted before its label was used. Missing, masked or clipped: {counts}; "
        f"steps refused: {last['refused']}. {_members(last)}{last['seconds']:.0f} s."
    )
    return grid


def figure(run_dir: str | os.PathLike) -> str:
    """Draw scores, speed and memory over the rows of a run into its `curves.png`; return the file's path.

    Raises:
        RunError: there is no run, or it has no measurement yet.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    run = Run(Path(run_dir))
    config, records = _read(run.path)
    # A stream with fewer rows than --log-every has no line but its result: points instead of curves.
    lines = [record for record in records if record["kind"] == "stream"] or records[-1:]
    marker = "o" if len(lines) == 1 else None
    page = Figure(figsize=(13, 3.8), layout="constrained")
    FigureCanvasAgg(page)
    names = [name for name in _SCORES if name in records[-1] or name in records[-1].get("total", {})]
    *scored, machine = page.subplots(1, len(names) + 1, squeeze=False)[0]
    for axes, name in zip(scored, names, strict=True):
        for prefix, what in {"": "this run", **_BASELINES}.items():
            points = [(r["step"], r[prefix + name]) for r in lines if prefix + name in r]
            if points:
                axes.plot(*zip(*points, strict=True), label=what, lw=1.5 if not prefix else 1, marker=marker)
        axes.set(title=f"{_SCORES[name]}, of {config.log_every} rows each")
        if axes.lines:
            axes.legend()
    for name, what in {"resident_mib": "resident memory, MiB", "rows_per_second": "rows per second"}.items():
        points = [(r["step"], r[name]) for r in lines if name in r]
        if points:
            machine.plot(*zip(*points, strict=True), label=what, marker=marker)
    if machine.lines:
        machine.set(title="machine", ylim=(0, None))
        machine.legend()
    else:
        machine.text(0.5, 0.5, "fewer rows than --log-every", ha="center", transform=machine.transAxes)
    for axes in (*scored, machine):
        axes.set_xlabel("row")
        axes.grid(alpha=0.3)
    page.suptitle(for_plot(_title(config)))
    write_atomically(run.figure, page_as_png(page))
    return str(run.figure)


def _read(run_dir: str | os.PathLike) -> tuple[StreamConfig, list[dict[str, Any]]]:
    run = Run(Path(run_dir))
    config = read_config_as(run.path, StreamConfig)
    records = read_metrics(run.metrics) if run.metrics.exists() else []
    if not records:
        raise RunError(f"{run_dir} has nothing to report yet")
    return config, records


def _title(config: StreamConfig) -> str:
    what = "next character" if config.target is None else config.target
    ahead = f", next {config.horizon} rows" if config.horizon else ""
    late = f", labels {config.delay} rows late" if config.delay else ""
    source = "standard input" if config.source == "-" else Path(config.source).name
    return f"{source}: {what}{ahead}{late}"


def _members(record: dict[str, Any]) -> str:
    if "members" not in record:
        return ""
    return "Members: " + ", ".join(f"{count} {what}" for what, count in record["members"].items()) + ". "


def _shown(name: str, value: float) -> str:
    return f"{value:.2%}" if name == "accuracy" else f"{value:.4g}"
