"""What `foretrace check` does: say whether a run directory is whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import CheckpointError, read_extra
from foretrace._runs.directory import Run, RunError, check_unchanged, read_config_as
from foretrace._runs.escape import for_terminal
from foretrace._runs.metrics import MetricsError, read_metrics
from foretrace.cli._kinds import known_in
from foretrace.cli._options import Check

DAMAGED = 1
"""Exit code where something is damaged, cut or changed."""


def check(command: Check) -> int:
    """Print a line for each file of a run; return the exit code."""
    damaged = 0
    for folder in _runs_of(command.run_dir):
        for name, state, is_whole in findings(folder):
            damaged += not is_whole
            print(for_terminal(f"{folder / name}: {state}"))
    if damaged:
        print(f"{damaged} files are damaged, cut or changed")
    return DAMAGED if damaged else 0


def findings(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each file of a run, the finding, and whether the file is whole.

    Raises:
        RunError: there is no run.
    """
    run = Run(folder)
    kind = known_in(folder).kind
    saved, state = _checkpoint(run)
    yield run.checkpoint.name, state or "whole", state is None or saved == {}
    try:
        config = read_config_as(folder, kind.config)
        if saved:
            check_unchanged(
                run,
                config,
                saved.get("config", {}),
                saved.get("plan"),
                (*kind.may_change, *kind.may_grow),
            )
        yield run.config.name, "whole", True
    except RunError as error:
        yield run.config.name, str(error), False
    yield run.metrics.name, *_record(run, saved)


def _runs_of(folder: Path) -> list[Path]:
    """Return the folders of a sweep's or a grid's runs, or the folder of a run itself."""
    parts = known_in(folder).parts
    if parts is None:
        return [folder]
    return [path for path in sorted((folder / parts).glob("*")) if Run(path).config.exists()]


def _checkpoint(run: Run) -> tuple[dict[str, Any] | None, str | None]:
    """Return a checkpoint's values beside the state ({} without one), and its fault, if any."""
    if not run.checkpoint.exists():
        return {}, "there is none yet"
    try:
        return read_extra(run.checkpoint), None
    except CheckpointError as error:
        return None, str(error)


def _record(run: Run, saved: dict[str, Any] | None) -> tuple[str, bool]:
    mark = None if not saved else saved.get("record")
    if not run.metrics.exists():
        return ("is missing", False) if mark is not None else ("there is none yet", True)
    try:
        lines = len(read_metrics(run.metrics))
    except MetricsError as error:
        return str(error), False
    difference = None if mark is None else FileMark(*mark).difference(run.metrics)
    return (f"whole, {lines} lines", True) if difference is None else (difference, False)
