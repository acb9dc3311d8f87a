"""What `foretrace check` does: say whether a run directory is whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace._runs.checkpoint import CheckpointError, read_extra
from foretrace._runs.directory import Run, RunError, check_unchanged, is_run_of, read_config_as
from foretrace._runs.escape import for_terminal
from foretrace._runs.metrics import MetricsError, RecordMark, read_metrics
from foretrace.cli._options import Check
from foretrace.experiment._config import Config
from foretrace.experiment._train import MAY_GROW
from foretrace.rl._config import RLConfig
from foretrace.rl._grid import RLGrid
from foretrace.stream._config import StreamConfig
from foretrace.stream._saved import MAY_CHANGE
from foretrace.sweep._config import Sweep as SweepConfig

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
    """Yield the name of each file of a run, what is found, and whether the file is whole.

    Raises:
        RunError: there is no run.
    """
    run = Run(folder)
    kind = next((kind for kind in (StreamConfig, RLConfig) if is_run_of(folder, kind)), Config)
    saved, state = _checkpoint(run)
    yield run.checkpoint.name, state or "whole", state is None or saved == {}
    config: Any = None
    try:
        config = read_config_as(folder, kind)
        if saved:
            may_change = MAY_CHANGE if kind is StreamConfig else MAY_GROW
            check_unchanged(run, config, saved["config"], saved.get("plan"), may_change)
        yield run.config.name, "whole", True
    except RunError as error:
        yield run.config.name, str(error), False
    yield run.metrics.name, *_record(run, saved)


def _runs_of(folder: Path) -> list[Path]:
    """Return the folders of the runs of a sweep or of a grid of agents, or the folder of a run itself."""
    if not Run(folder).config.exists():
        raise RunError(f"no run at {folder}: there is no {Run(folder).config.name}")
    if is_run_of(folder, RLGrid):
        runs = [each.path for each in read_config_as(folder, RLGrid).runs(folder)]
    elif is_run_of(folder, SweepConfig):
        runs = sorted((folder / "trials").iterdir())
    else:
        return [folder]
    return [path for path in runs if Run(path).config.exists()]


def _checkpoint(run: Run) -> tuple[dict[str, Any] | None, str | None]:
    """Return what a checkpoint holds beside the state, and what is wrong: None if it is whole, {} if there is none."""
    if not run.checkpoint.exists():
        return {}, "there is none yet"
    try:
        return read_extra(run.checkpoint), None
    except CheckpointError as error:
        return None, str(error)


def _record(run: Run, saved: dict[str, Any] | None) -> tuple[str, bool]:
    mark = None if not saved else saved.get("record") or saved.get("progress", {}).get("record")
    if not run.metrics.exists():
        return ("is missing", False) if mark is not None else ("there is none yet", True)
    try:
        lines = len(read_metrics(run.metrics))
    except MetricsError as error:
        return str(error), False
    difference = None if mark is None else RecordMark(*mark).difference(run.metrics.read_bytes())
    return (f"whole, {lines} lines", True) if difference is None else (difference, False)
