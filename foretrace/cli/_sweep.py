"""The command about sweeps: what `foretrace sweep` does."""

import os
import shlex
from pathlib import Path

from foretrace._runs.directory import default_path, files, read_config_as
from foretrace._runs.escape import without_password
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import Sweep
from foretrace.sweep import _report as _sweep_report
from foretrace.sweep import _run as sweeps
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.sweep._trials import best, read_trials, run_dir

_CONTENTS = {
    "config.json": "what was searched, with versions and hardware",
    "sweep.jsonl": "the trials, a line each",
    "sweep.png": "score against each option",
    "sweep.db": "the same for workers",
    "trials": "a run directory for each trial",
}


def sweep(command: Sweep) -> int:
    """Run a sweep; return the exit code."""
    folder = default_path(f"sweep-{command.task}") if command.run_dir is None else command.run_dir
    # Workers share the accelerators with this process and with each other: nobody takes all memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    outcome = sweeps.run(
        command.config, folder, workers=command.workers, storage=command.storage, resume=command.resume
    )
    if not outcome.stopped:
        return report_sweep(folder)
    done = sum(trial.state in ("finished", "pruned", "failed") for trial in outcome.trials)
    print(f"stopped after {done} of {len(outcome.trials)} trials; the state is saved. Go on with:")
    print(f"    {_again(command, folder)}")
    return STOPPED


def report_sweep(folder: Path) -> int:
    """Print the table of a sweep and draw its figure; return the exit code."""
    from rich.console import Console

    Console().print(_sweep_report.table(folder))
    _sweep_report.figure(folder)
    print(files(folder, _CONTENTS))
    leader = best(read_trials(folder), read_config_as(folder, SweepConfig).sign)
    if leader is not None:
        print(f"more about the best: foretrace report {shlex.quote(str(run_dir(folder, leader.number)))}")
    return 0


def _again(command: Sweep, folder: Path) -> str:
    parts = ["foretrace", "sweep", "--resume", str(folder)]
    if command.config.trials is not None:
        parts += ["--trials", str(command.config.trials)]
    if command.workers != 1:
        parts += ["--workers", str(command.workers)]
    if command.storage is not None:
        parts += ["--storage", without_password(command.storage)]
    return shlex.join(parts)
