"""Contents of a checkpoint besides the state, and how they are read with the run's records."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import CheckpointError, read_extra, restoring
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import Run, RunError, check_unchanged, read_config_as
from foretrace._runs.metrics import read_metrics

Config = TypeVar("Config")


class RunKind(NamedTuple, Generic[Config]):
    """Properties shared by the runs of one configuration class.

    Args:
        config: class of the configuration.
        may_change: settings that a resumed run may change; the directory keeps the recorded ones.
        may_grow: counts that a resumed run may raise, which the directory then records.
    """

    config: type[Config]
    may_change: tuple[str, ...] = ()
    may_grow: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Saved:
    """Values of a checkpoint in addition to the state; kinds of runs add more in subclasses.

    Args:
        config: configuration of the run, as JSON.
        record: size and digest of the record.
        step: number of steps done; -1 before the first checkpoint.
        seconds: seconds so far.
        refused: number of steps in a row that were refused.
    """

    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    record: FileMark | None = None
    step: int = -1
    seconds: float = 0.0
    refused: int = 0


Beside = TypeVar("Beside", bound=Saved)


def read_saved(run: Run, config: Any, kind: type[Beside], of: RunKind[Any]) -> Beside:
    """Return the values that a checkpoint holds in addition to the state; without one, defaults.

    Args:
        run: files of the run.
        config: its configuration.
        kind: class of the values.
        of: kind of the run.

    Raises:
        CheckpointError: the checkpoint is damaged.
        RunError: the checkpoint was written with another configuration.
    """
    path, steps = run.checkpoint, steps_of(config)
    if not path.exists():
        return kind()
    extra = read_extra(path)
    if missing := [field.name for field in dataclasses.fields(kind) if field.name not in extra]:
        raise CheckpointError(f"{path} has no {', '.join(missing)}")
    with restoring(path):
        saved = from_json(kind, extra | {"type": kind.__name__})
    may_change = *of.may_grow, *of.may_change
    check_unchanged(run, config, saved.config, extra.get("plan"), may_change)
    if saved.step < 0 or (steps is not None and saved.step > steps):
        most = "" if steps is None else f" to {steps}"
        raise CheckpointError(f"{path} is at step {saved.step}, expected 0{most}")
    return saved


def read_run(
    path: str | os.PathLike[str], config: type[Config]
) -> tuple[Config, list[dict[str, Any]]]:
    """Return the configuration of a run and the lines of its record.

    Raises:
        RunError: there is no run, or it is of another kind, or has no line yet.
        MetricsError: the record is damaged.
    """
    run = Run(Path(path))
    found = read_config_as(run.path, config)
    lines = read_metrics(run.metrics) if run.metrics.exists() else []
    if not lines:
        raise RunError(f"{path} has nothing to report yet")
    return found, lines


def steps_of(config: Any) -> int | None:
    """Return the number of steps of a run; None if its data determine it."""
    return getattr(config, "steps", None)


def find_result(run: Run, step: int) -> dict[str, Any] | None:
    """Return the record line with the result of a step; None if there is none."""
    lines = read_metrics(run.metrics) if run.metrics.exists() else []
    return next((line for line in lines if (line["kind"], line["step"]) == ("result", step)), None)
