"""What `foretrace rl` and the report of its run do."""

import dataclasses
import shlex
from pathlib import Path

from foretrace._runs.directory import default_path, files
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import RL
from foretrace.rl import _report as report
from foretrace.rl._run import train
from foretrace.rl._series import Series


def rl(command: RL) -> int:
    """Let an agent learn; return the exit code."""
    run_dir = default_path(command.task) if command.run_dir is None else command.run_dir
    config = command.config
    if isinstance(config.environment, Series):
        config = dataclasses.replace(config, environment=config.environment.pinned())
    result = train(config, run_dir, resume=command.resume)
    if result.scores is not None:
        return report_rl(run_dir)
    again = f"foretrace rl {command.task} --run-dir {shlex.quote(str(run_dir))} --resume"
    print(f"stopped after step {result.step} of {command.config.steps}; the state is saved. Go on with:\n    {again}")
    return STOPPED


def report_rl(run_dir: Path) -> int:
    """Print the table of a run and draw its curves; return the exit code."""
    from rich.console import Console

    Console().print(report.table(run_dir))
    report.figure(run_dir)
    print(files(run_dir, report.CONTENTS))
    return 0
