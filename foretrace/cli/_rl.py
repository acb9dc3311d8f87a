"""What `foretrace rl` and the report of its run do."""

import dataclasses
from pathlib import Path

from foretrace._runs.directory import default_path
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import RL
from foretrace.rl._grid import RLGrid, train_grid
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
        return report(run_dir)
    return stopped(f"after step {result.step} of {command.config.steps}; the state is saved", again("rl", run_dir))


def _grid(command: RL, run_dir: Path) -> int:
    """Run every combination of rules and seeds; return the exit code."""
    grid = RLGrid(command.config, command.rules, command.seeds)
    result = train_grid(grid, run_dir, resume=command.resume)
    if result.stopped:
        return stopped(f"after {result.finished} of {result.planned} runs; the state is saved", again("rl", run_dir))
    if result.finished:
        report(run_dir)
    for path in result.diverged:
        print(f"diverged: {path}; its checkpoint has the last good state")
    return 1 if result.diverged else 0
