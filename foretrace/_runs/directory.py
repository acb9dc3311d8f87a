"""A run directory: configuration, environment, record, checkpoint, figure; never overwritten."""

import datetime
import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._runs.config_json import Kind, differences, from_json, parse, to_json
from foretrace._runs.files import (
    create_atomically,
    is_temporary,
    write_atomically,
)
from foretrace._runs.machine import surroundings

CONTENTS = {
    "config.json": "what was run, with versions and hardware",
    "metrics.jsonl": "measurements on the way, a line each",
    "checkpoint.safetensors": "what was learned, and progress",
    "best.safetensors": "network with the best validation score",
    "curves.png": "curves of the measurements",
    "tensorboard": "the measurements for TensorBoard",
    "study.log": "the study of Optuna",
    "trials": "a run directory for each configuration",
}
"""The files in the directory of a run or of several runs, with descriptions."""


def files(run_dir: str | os.PathLike[str]) -> str:
    """Return the files in a run directory, one line each, with descriptions."""
    there = [
        f"    {name:<24} {what}"
        for name, what in CONTENTS.items()
        if (Path(run_dir) / name).exists()
    ]
    return "\n".join([f"{Path(run_dir)}:", *there])


class RunError(ValueError):
    """A run directory cannot be used in the requested way."""


class TakenError(RunError):
    """The directory for a new run is not empty."""


class Run(NamedTuple):
    """The files of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """Configuration and machine of the run."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """Metrics of the run, one line of JSON for each record."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """Checkpoint with the latest state."""
        return self.path / "checkpoint.safetensors"

    @property
    def figure(self) -> Path:
        """Figure with the curves of the run."""
        return self.path / "curves.png"


def default_path(task: str) -> Path:
    """Return a path `runs/<task>-<time>` that does not exist yet."""
    first = Path("runs") / f"{task}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    path, number = first, 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def digest(config: Any) -> str:
    """Return a digest that identifies a configuration."""
    return hashlib.sha256(repr(config).encode()).hexdigest()[:12]


def run_in(folder: Path, config: Any) -> Run:
    """Return the run of a configuration in a folder, named by the configuration's digest."""
    return Run(folder / digest(config))


def create(path: str | os.PathLike[str], config: Any, **begun: Any) -> Run:
    """Begin a run in a directory. The directory is created if it is missing.

    Args:
        path: the directory; call `check_free` first to see whether it has other files.
        config: configuration of the run.
        **begun: values that are known only when the run begins, as JSON. `read_begun` returns them.

    Raises:
        TakenError: a run has already begun in the directory.
        RunError: the directory cannot be written.
    """
    run = Run(Path(path))
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        data = {"config": to_json(config)} | begun | {"surroundings": surroundings()}
        create_atomically(run.config, f"{json.dumps(data, indent=2)}\n".encode())
    except FileExistsError as error:
        # Another process has begun a run here since the check, or the path is no directory.
        raise (_taken(run) if run.path.is_dir() else _unwritable(run, error)) from error
    except OSError as error:
        raise _unwritable(run, error) from error
    return run


def check_free(path: str | os.PathLike[str]) -> None:
    """Check that a run can begin at a path, without writing anything.

    Raises:
        TakenError: the path is a directory that is not empty.
        RunError: the path cannot be read, or is no directory.
    """
    run = Run(Path(path))
    try:
        # Another process that begins a run here at this moment may still fail; in `create`, the
        # first process wins.
        if run.path.exists() and not all(
            is_temporary(file, run.config) for file in run.path.iterdir()
        ):
            raise _taken(run)
    except OSError as error:
        raise _unwritable(run, error) from error


def _taken(run: Run) -> TakenError:
    what = "a run" if run.config.exists() else "files"
    return TakenError(
        f"{run.path} holds {what} already; go on with a run by `foretrace resume`, or choose "
        "another directory"
    )


def _unwritable(run: Run, error: OSError) -> RunError:
    return RunError(f"cannot write the run directory {run.path}: {error.strerror or error}")


def reopen(
    run: Run, config: Kind, *, may_change: Collection[str] = (), may_grow: Collection[str] = ()
) -> Kind:
    """Continue in a run directory, and return the recorded configuration.

    Args:
        run: files of the run.
        config: requested configuration.
        may_change: settings that may differ from the recorded ones.
        may_grow: counts that may be larger than the recorded ones. `record_config` records the
            larger counts.

    Raises:
        RunError: there is no run, the directory cannot be written, or the run has another
            configuration.
    """
    recorded = read_config_as(run.path, type(config))
    if changed := differences(recorded, config, but=(*may_change, *may_grow)):
        raise RunError(
            f"{run.path} cannot be resumed with another configuration; recorded and asked for are "
            f"{'; '.join(changed)}; leave these options out, for a resumed run keeps its settings"
        )
    for name in may_grow:
        if (asked := getattr(config, name)) < (before := getattr(recorded, name)):
            raise RunError(
                f"{run.path} cannot be resumed with {name}={asked}, because {before} are recorded; "
                f"a run can be extended but not cut: give {name} of {before} or more, or leave it "
                "out"
            )
    # Root may write anywhere except on a read-only disk, which os.access notices.
    if not os.access(run.path, os.W_OK):
        raise RunError(f"cannot write the run directory {run.path}")
    return recorded


def record_config(run: Run, config: Any) -> None:
    """Write a configuration into a run directory if it differs from the recorded one.

    Raises:
        OSError: the file cannot be written. The old file is unchanged.
    """
    data = _read(run)
    if data["config"] != (new := to_json(config)):
        write_atomically(run.config, f"{json.dumps(data | {'config': new}, indent=2)}\n".encode())


def check_unchanged(
    run: Run,
    config: Any,
    saved: Mapping[str, Any],
    plan: Any = None,
    may_change: Collection[str] = (),
) -> None:
    """Check that a run directory's configuration agrees with its checkpoint.

    Args:
        run: files of the run.
        config: configuration in `config.json`.
        saved: configuration in the checkpoint, as JSON.
        plan: plan in the checkpoint, as JSON; None for kinds of runs without a plan.
        may_change: settings that a resumed run may change.

    Raises:
        RunError: the configurations differ. The message names the settings.
    """
    try:
        written = from_json(type(config), saved)
    except ValueError as error:
        raise RunError(
            f"{run.checkpoint} has a configuration of another version of foretrace: {error}"
        ) from error
    changed = differences(config, written, but=may_change)
    recorded = read_begun(run, "plan")
    if plan is not None and recorded is not None and recorded != plan:
        changed.append("plan")
    if changed:
        raise RunError(
            f"{run.config} was changed since the run began; it and the checkpoint differ in "
            f"{'; '.join(changed)}; put the values of the checkpoint back"
        )


def read_config_as(path: str | os.PathLike[str], kind: type[Kind]) -> Kind:
    """Return the configuration of a run directory, which must have a given type.

    Raises:
        RunError: there is no configuration, it cannot be read, or it has another type.
    """
    run = Run(Path(path))
    config = _read(run)["config"]
    if config["type"] != kind.__name__:
        raise RunError(
            f"{path} holds a run of another command: its {config['type']} is not a {kind.__name__}"
        )
    try:
        return from_json(kind, config)
    except ValueError as error:
        raise RunError(
            f"{run.config} is not a configuration of this version of foretrace: {error}"
        ) from error


def read_begun(run: Run, name: str) -> Any:
    """Return the JSON value that was recorded under a name when a run began; None if missing.

    Raises:
        RunError: there is no run, or its configuration cannot be read.
    """
    return _read(run).get(name)


def read_type(path: str | os.PathLike[str]) -> str:
    """Return the class name of the configuration in a run directory.

    Raises:
        RunError: there is no run, or its configuration cannot be read.
    """
    return _read(Run(Path(path)))["config"]["type"]


def changed_packages(path: str | os.PathLike[str]) -> list[str]:
    """Return the packages whose version has changed since the run began, as texts."""
    then = _read(Run(Path(path))).get("surroundings", {}).get("packages", {})
    now = surroundings()["packages"]
    return [f"{name} {then[name]} -> {now[name]}" for name in then if then[name] != now.get(name)]


def _read(run: Run) -> dict[str, Any]:
    try:
        data = parse(run.config.read_text())
        if not isinstance(data["config"]["type"], str):
            raise ValueError("no configuration in it")
        from_json(dict[str, str], data.get("surroundings", {}).get("packages", {}))
        return data
    except OSError as error:
        raise RunError(
            f"no run at {run.path}: {run.config.name} cannot be read ({error.strerror})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{run.config} is damaged: {error}") from error
