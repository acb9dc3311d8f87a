"""The command `foretrace check`, which checks whether a run directory is complete."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import CheckpointError, read_extra
from foretrace._runs.directory import Run, RunError, check_unchanged, read_config_as
from foretrace._runs.escape import for_terminal
from foretrace._runs.metrics import MetricsError, read_metrics
from foretrace.cli._kinds import known_in
from foretrace.cli._options import Check
from foretrace.experiment._train import BEST
from foretrace.paper._records import RECORDS_FILE, read_records
from foretrace.stream.runs.saved import parts_in
from foretrace.sweep._run import STORAGE, study


def check(command: Check) -> int:
    """Print a line for each file of a run, and return the exit code, 1 if a file is damaged."""
    damaged = 0
    for path, state, is_whole in _found(command.run_dir):
        damaged += not is_whole
        print(for_terminal(f"{path}: {state}"))
    if damaged:
        print(f"{damaged} files are damaged, cut or changed")
    return 1 if damaged else 0


def findings(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each file of a run, the result of its check, and whether it is intact.

    Raises:
        RunError: there is no run.
    """
    run, kind = Run(folder), known_in(folder).kind
    saved: dict[str, Any] = {}

    def checkpoint() -> str:
        if not run.checkpoint.exists():
            return "there is none yet"
        saved.update(read_extra(run.checkpoint))
        return "whole"

    def config() -> str:
        found, may_change = read_config_as(folder, kind.config), (*kind.may_change, *kind.may_grow)
        if saved:
            check_unchanged(run, found, saved.get("config", {}), saved.get("plan"), may_change)
        return "whole"

    def record() -> str:
        mark = saved.get("record")
        if not run.metrics.exists():
            if mark is not None:
                raise MetricsError("is missing")
            return "there is none yet"
        lines = read_metrics(run.metrics)
        if mark is not None and (difference := FileMark(*mark).difference(run.metrics)):
            raise MetricsError(difference)
        return f"whole, {len(lines)} lines"

    def best() -> str:
        read_extra(folder / BEST)
        return "whole"

    looks = [(run.checkpoint, checkpoint), (run.config, config), (run.metrics, record)]
    if (folder / BEST).exists():
        looks.append((folder / BEST, best))
    for path, look in looks:
        try:
            yield path.name, look(), True
        except (CheckpointError, RunError, MetricsError) as error:
            yield path.name, str(error), False


def _found(folder: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield the results for a run, or for the records and runs of a sweep or an experiment."""
    parts, runs = known_in(folder).parts, [folder, *parts_in(folder)]
    if parts is not None:
        records, log = folder / RECORDS_FILE, folder / "study.log"
        runs = [path for path in sorted((folder / parts).glob("*")) if Run(path).config.exists()]
        if not runs:
            yield folder / parts, "there is no run", not (records.exists() or log.exists())
        try:
            if records.exists():
                yield records, f"whole, {len(read_records(folder))} runs", True
        except MetricsError as error:
            yield records, str(error), False
        try:
            # A study in a database, and the study without Optuna, cannot be checked here.
            if log.exists() and find_spec("optuna") and not os.environ.get(STORAGE):
                yield log, f"whole, {len(study(folder).get_trials())} trials", True
        except ValueError as error:
            yield log, str(error), False
    for run in runs:
        for name, state, is_whole in findings(run):
            yield run / name, state, is_whole
