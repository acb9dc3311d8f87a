"""The command about sweeps: what `foretrace sweep` does."""

import os
from pathlib import Path

from foretrace._runs.directory import default_path
from foretrace._runs.escape import without_password
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Sweep
from foretrace.sweep import _run as sweeps


def sweep(command: Sweep) -> int:
    """Run a sweep; return the exit code."""
    folder = default_path(f"sweep-{command.task}") if command.run_dir is None else command.run_dir
    # Workers share the accelerators with this process and with each other: nobody takes all memory
    # at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    outcome = sweeps.run(
        command.config,
        folder,
        workers=command.workers,
        storage=command.storage,
        resume=command.resume,
    )
    if not outcome.stopped:
        return report(folder)
    done = sum(trial.state in ("finished", "failed") for trial in outcome.trials)
    return stopped(
        f"after {done} of {len(outcome.trials)} trials; the state is saved", _again(command, folder)
    )


def _again(command: Sweep, folder: Path) -> str:
    workers = None if command.workers == 1 else command.workers
    storage = None if command.storage is None else without_password(command.storage)
    return again("sweep", folder, trials=command.config.trials, workers=workers, storage=storage)
