"""Values of a checkpoint in addition to the state, and functions that read them."""

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
    """Properties of all runs with one class of configuration.

    Args:
        config: class of the configuration.
        may_change: settings that a resumed run may change. The directory keeps the recorded values.
        may_grow: counts that a resumed run may increase. The directory then records the new values.
    """

    config: type[Config]
    may_change: tuple[str, ...] = ()
    may_grow: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Saved:
    """Values that a checkpoint has in addition to the state. Kinds of runs add more in subclasses.

    Args:
        config: configuration of the run, as JSON.
        record: size and digest of the record.
        step: number of finished steps; -1 before the first checkpoint.
        seconds: duration of the run so far, in seconds.
        refused: number of consecutive refused steps.
    """

    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    record: FileMark | None = None
    step: int = -1
    seconds: float = 0.0
    refused: int = 0


Beside = TypeVar("Beside", bound=Saved)


def read_saved(run: Run, config: Any, kind: type[Beside], of: RunKind[Any]) -> Beside:
    """Return the additional values of a checkpoint; without a checkpoint, their defaults.

    Args:
        run: files of the run.
        config: configuration of the run.
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
        RunError: there is no run, it is of another kind, or its record is empty.
        MetricsError: the record is damaged.
    """
    run = Run(Path(path))
    found = read_config_as(run.path, config)
    lines = read_metrics(run.metrics) if run.metrics.exists() else []
    if not lines:
        raise RunError(f"{path} has nothing to report yet")
    return found, lines


def steps_of(config: Any) -> int | None:
    """Return the number of steps in a run; None if it depends on the data."""
    return getattr(config, "steps", None)


def find_result(run: Run, step: int) -> dict[str, Any] | None:
    """Return the record line with the result of a step, or None."""
    lines = read_metrics(run.metrics) if run.metrics.exists() else []
    return next((line for line in lines if (line["kind"], line["step"]) == ("result", step)), None)
