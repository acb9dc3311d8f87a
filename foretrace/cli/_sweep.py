"""The command `foretrace sweep`."""

import dataclasses
import os
import warnings

from foretrace._learner.state import UntrainedParameters
from foretrace._runs.directory import default_path
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Sweep
from foretrace.cli._train import pinned
from foretrace.experiment._config import Config
from foretrace.sweep import _run as sweeps


def sweep(command: Sweep) -> int:
    """Run a sweep, and return the exit code."""
    folder = command.run_dir or default_path("sweep")
    # Workers share the accelerators, so no worker may allocate all memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    warnings.simplefilter("default", UntrainedParameters)  # once, not for every trial
    config = command.config
    if isinstance(config.config, Config):
        trial = pinned(config.config, resume=command.resume)
        config = dataclasses.replace(config, config=trial)
    study = sweeps.run(config, folder, workers=command.workers, resume=command.resume)
    left, planned = len(sweeps.unfinished(study, config)), config.planned
    if not left:
        return report(folder)
    workers = None if command.workers == 1 else command.workers
    place = f"after {planned - left} of {planned} trials; the state is saved"
    if os.environ.get(sweeps.STORAGE):
        place += f"; leave {sweeps.STORAGE} as it is"
    return stopped(place, again(folder, workers=workers))
