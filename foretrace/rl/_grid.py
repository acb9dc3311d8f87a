"""Runs of one configuration under several rules and seeds, a run directory for each, in one folder."""

import dataclasses
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._rule import rule_text
from foretrace._runs.config_json import check_types
from foretrace._runs.directory import Run, RunError, create, read_config_as, reopen
from foretrace._runs.figures import new_page, page_as_png
from foretrace._runs.files import locked, write_atomically
from foretrace._runs.loop import DivergenceError
from foretrace._runs.metrics import read_metrics
from foretrace._runs.session import find_result
from foretrace.rl._config import RLConfig
from foretrace.rl._report import score_of
from foretrace.rl._run import train


@dataclasses.dataclass(frozen=True)
class RLGrid:
    """Every combination of some rules and seeds.

    Args:
        config: configuration of the runs, but for rule and seed.
        rules: learning rules; none for that of the configuration.
        seeds: seeds; none for that of the configuration.

    Raises:
        ValueError: a rule or a seed twice, an unknown rule, or a seed out of range.
    """

    config: RLConfig
    rules: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(map(rule_text, self.rules)) or (self.config.rule,))
        object.__setattr__(self, "seeds", tuple(self.seeds) or (self.config.seed,))
        check_types(self)
        for name in ("rules", "seeds"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={' '.join(map(str, values))} names one twice; each is run once")
        for _ in self.runs("."):
            pass  # says what does not fit

    def runs(self, folder: str | os.PathLike[str]) -> "Iterator[GridRun]":
        """Yield each run: all seeds of a rule, then the next rule."""
        for rule in self.rules:
            for seed in self.seeds:
                config = dataclasses.replace(self.config, rule=rule, seed=seed)
                yield GridRun(rule, seed, config, Path(folder) / f"{rule}-seed{seed}")


class GridRun(NamedTuple):
    """A run of a grid and its directory."""

    rule: str
    seed: int
    config: RLConfig
    path: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of its record; none before it has begun."""
        metrics = Run(self.path).metrics
        return read_metrics(metrics) if metrics.exists() else []

    @property
    def result(self) -> dict[str, Any] | None:
        """Its result; None if it is not finished."""
        return find_result(Run(self.path), self.config)


class GridResult(NamedTuple):
    """State of a grid when `train_grid` returns.

    Args:
        finished: number of finished runs.
        planned: number of runs.
        diverged: directories of the runs that have diverged.
        stopped: whether it was stopped before its end.
    """

    finished: int
    planned: int
    diverged: list[Path]
    stopped: bool


def train_grid(
    grid: RLGrid, folder: str | os.PathLike[str], *, resume: bool = False, show_progress: bool = True
) -> GridResult:
    """Run what is not finished, one after another, until Ctrl-C or SIGTERM; `resume` goes on from there.

    Args:
        grid: what to run.
        folder: new or empty directory; with `resume`, the directory of the grid.
        resume: whether to continue the grid that is there.
        show_progress: whether each run shows its progress on standard error.

    Raises:
        ValueError: a configuration that makes no agent, or (`RunError`) a directory that cannot be used.
        LockedError: another process runs the grid.
        CheckpointError: the checkpoint of a run is damaged.
        OSError: a file could not be written.
    """
    top = reopen(folder, grid) if resume else create(folder, grid)
    finished, diverged, runs = 0, [], list(grid.runs(top.path))
    with locked(top.path):
        for number, each in enumerate(runs, 1):
            if show_progress:
                print(f"run {number} of {len(runs)}: {each.path.name}", file=sys.stderr)
            try:
                again = Run(each.path).config.exists()
                result = train(each.config, each.path, resume=again, show_progress=show_progress)
            except DivergenceError as error:
                print(f"foretrace: {each.path}: {error}", file=sys.stderr)
                diverged.append(each.path)
                continue
            if result.scores is None:
                return GridResult(finished, len(runs), diverged, stopped=True)
            finished += 1
    return GridResult(finished, len(runs), diverged, stopped=False)


def grid_table(folder: str | os.PathLike[str]) -> Any:
    """Return the table of a grid, to be printed by rich: a rule a row, a seed a column.

    Raises:
        RunError: no grid, or one without a finished run.
    """
    from rich.table import Table

    grid = read_config_as(folder, RLGrid)
    name, title = score_of(grid.config)
    results = {(each.rule, each.seed): each.result for each in grid.runs(folder)}
    if not any(results.values()):
        raise RunError(f"{folder} has no finished run yet; go on with --resume")
    table = Table("rule", "mean", *[f"seed {seed}" for seed in grid.seeds], title=f"{title}, {grid.config.steps} steps")
    for rule in grid.rules:
        found = [None if (line := results[rule, seed]) is None else line[name] for seed in grid.seeds]
        known = [value for value in found if value is not None]
        mean = f"{statistics.mean(known):.3g}" if known else "-"
        table.add_row(rule, mean, *["-" if value is None else f"{value:.3g}" for value in found])
    table.caption = "Mean of the last tenth of the steps of each run; - is not finished."
    return table


def grid_figure(folder: str | os.PathLike[str]) -> str:
    """Draw the curve of every run, a colour for each rule, into `curves.png`; return the file's path.

    Raises:
        RunError: no grid.
        OSError: the file cannot be written.
    """
    grid = read_config_as(folder, RLGrid)
    name, title = score_of(grid.config)
    page = new_page(6.4, 3.8)
    axes = page.subplots()
    for each in grid.runs(folder):
        lines = [line for line in each.lines if line["kind"] == "train"]
        colour, first = f"C{grid.rules.index(each.rule)}", each.seed == grid.seeds[0]
        steps, values = [line["step"] for line in lines], [line[name] for line in lines]
        axes.plot(steps, values, color=colour, alpha=0.7, label=each.rule if first else None)
    axes.set(title=title, xlabel="step", yscale="log" if name == "error" else "linear")
    axes.grid(alpha=0.3)
    axes.legend()
    path = Run(Path(folder)).figure
    write_atomically(path, page_as_png(page))
    return str(path)
