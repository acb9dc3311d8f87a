"""The command about sweeps: what `foretrace sweep` does."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from foretrace._learner.state import UntrainedParameters
from foretrace._runs.directory import default_path
from foretrace._runs.escape import without_password
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Sweep
from foretrace.sweep import _run as sweeps


def sweep(command: Sweep) -> int:
    """Run a sweep; return the exit code."""
    folder = command.run_dir or default_path("sweep")
    # Workers share the accelerators: nobody takes all memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    warnings.simplefilter("default", UntrainedParameters)  # once, not for every trial
    with _address(command.storage):
        study = sweeps.run(command.config, folder, workers=command.workers, resume=command.resume)
        left, planned = len(sweeps.unfinished(study, command.config)), command.config.planned
        if not left:
            return report(folder)
    place = f"after {planned - left} of {planned} trials; the state is saved"
    return stopped(place, _again(command, folder))


@contextlib.contextmanager
def _address(storage: str | None) -> Iterator[None]:
    """Let the report, too, find the address of a database."""
    before = os.environ.get(sweeps.STORAGE, "")
    os.environ[sweeps.STORAGE] = storage or before
    try:
        yield
    finally:
        os.environ[sweeps.STORAGE] = before


def _again(command: Sweep, folder: Path) -> str:
    workers = None if command.workers == 1 else command.workers
    storage = None if command.storage is None else without_password(command.storage)
    return again(folder, workers=workers, storage=storage)
