"""What `foretrace rl` and the report of its run do."""

import dataclasses
import shlex
from pathlib import Path

from foretrace._runs.directory import default_path, files
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import RL
from foretrace.rl import _report as report
from foretrace.rl._grid import RLGrid, grid_figure, grid_table, train_grid
from foretrace.rl._run import train
from foretrace.rl._series import Series


def rl(command: RL) -> int:
    """Let an agent learn; return the exit code."""
    run_dir = default_path(command.task) if command.run_dir is None else command.run_dir
    environment = command.config.environment
    if isinstance(environment, Series):
        command = dataclasses.replace(
            command, config=dataclasses.replace(command.config, environment=environment.pinned())
        )
    if command.rules or command.seeds:
        return _grid(command, run_dir)
    result = train(command.config, run_dir, resume=command.resume)
    if result.scores is not None:
        return report_rl(run_dir)
    print(f"stopped after step {result.step} of {command.config.steps}; {_go_on(run_dir)}")
    return STOPPED


def _grid(command: RL, run_dir: Path) -> int:
    """Run every combination of rules and seeds; return the exit code."""
    grid = RLGrid(command.config, command.rules, command.seeds)
    result = train_grid(grid, run_dir, resume=command.resume)
    if result.stopped:
        print(f"stopped after {result.finished} of {result.planned} runs; {_go_on(run_dir)}")
        return STOPPED
    if result.finished:
        report_grid(run_dir)
    for path in result.diverged:
        print(f"diverged: {path}; its checkpoint has the last good state")
    return 1 if result.diverged else 0


def _go_on(run_dir: Path) -> str:
    again = f"foretrace rl --resume {shlex.quote(str(run_dir))}"
    return f"the state is saved. Go on with:\n    {again}"


def report_grid(folder: Path) -> int:
    """Print the table of a grid and draw its curves; return the exit code."""
    from rich.console import Console

    Console().print(grid_table(folder))
    grid_figure(folder)
    print(files(folder, {"config.json": "what was run", "curves.png": "the curve of every run"}))
    print("    <rule>-seed<seed>        the run directories; `foretrace report` shows one")
    return 0


def report_rl(run_dir: Path) -> int:
    """Print the table of a run and draw its curves; return the exit code."""
    from rich.console import Console

    Console().print(report.table(run_dir))
    report.figure(run_dir)
    print(files(run_dir, report.CONTENTS))
    return 0
