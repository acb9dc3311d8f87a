"""The checkpoint of a stream: packed arrays in memory become named arrays in the file."""

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from foretrace._cells.parts import is_key
from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import load, restoring
from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace._runs.saved import RunKind, Saved, read_saved
from foretrace.stream.model.intake import Intake, State
from foretrace.stream.model.state import MixtureState
from foretrace.stream.read.lines import Position
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Plan, build

MAY_CHANGE = ("bad_rows", "outliers", "unusual", "log_every", "checkpoint_every")
"""Options that a resumed run may change: actions for bad data, alarms, and intervals of writing."""

KIND = RunKind(StreamConfig, may_change=MAY_CHANGE)


@dataclasses.dataclass(frozen=True)
class StreamSaved(Saved):
    """Values of a checkpoint in addition to the state.

    Args:
        plan: decisions from the first rows; None before the first checkpoint.
        position: position after the last row.
        intake: columns, classes, members and waiting labels.
        monitors: state of the monitors.
        predictions: size and digest of the file of predictions; None if there is none.

    Raises:
        ValueError: a position is negative, or there is no plan.
    """

    plan: Plan | None = None
    position: Position = Position()
    intake: dict[str, Any] = dataclasses.field(default_factory=dict)
    monitors: list[Any] = dataclasses.field(default_factory=list)
    predictions: FileMark | None = None

    def __post_init__(self) -> None:
        if min(self.position[:4]) < 0:
            raise ValueError(f"the position {self.position} cannot be negative")
        if (self.plan is None) != (self.step < 0):
            raise ValueError("a checkpoint must have a plan")


class Opened(NamedTuple):
    """A run in the state of its checkpoint."""

    config: StreamConfig
    plan: Plan
    intake: Intake
    state: State


def opened(run_dir: str | os.PathLike[str]) -> Opened:
    """Return a run in the state of its checkpoint.

    Raises:
        RunError: there is no run, it has no checkpoint, or the checkpoint belongs to another run.
        CheckpointError: the checkpoint is damaged.
    """
    run = Run(Path(run_dir))
    config = read_config_as(run.path, StreamConfig)
    check_not_lost(run)
    saved = read_saved(run, config, StreamSaved, KIND)
    if saved.plan is None:
        raise RunError(f"{run.path} has no checkpoint yet")
    intake = build(config, saved.plan)
    with restoring(run.checkpoint):
        intake.restore(saved.intake)
    state = intake.mixture.packing.pack(load_state(run.checkpoint, intake))
    return Opened(config=config, plan=saved.plan, intake=intake, state=state)


def part_in(group: str | os.PathLike[str], number: int) -> Path:
    """Return the run directory of a partition in a group's folder."""
    return Path(group, f"part-{number}")


def parts_in(group: str | os.PathLike[str]) -> list[Path]:
    """Return the run directories of a group; an empty list for a single run's directory."""
    found = (path for path in Path(group).glob("part-*") if Run(path).config.exists())
    return sorted(found, key=lambda path: (len(path.name), path.name))


def check_not_lost(run: Run) -> None:
    """Check that a run with a record has a checkpoint.

    Raises:
        RunError: the run has a record and no checkpoint.
    """
    # The first checkpoint is written before the first line of the record.
    if not run.checkpoint.exists() and run.metrics.exists() and run.metrics.stat().st_size:
        raise RunError(
            f"{run.path} has a record but no {run.checkpoint.name}: its parameters are lost. Put "
            "this file back; or begin a new run in another --run-dir; or remove "
            f"{run.metrics.name}, and the run learns from the first row again"
        )


def to_save(intake: Intake, state: State) -> MixtureState:
    """Return a copy of a state for a checkpoint, with only the occupied places of waiting rows.

    Most places are empty most of the time, and they are the largest part of the state.
    """
    arrays = state if isinstance(state, MixtureState) else intake.mixture.packing.unpack(state)
    there: Any = _places(intake) if intake.room.size else ...

    def copied(part: Any, of: Any = ...) -> Any:
        return copy_state(part) if is_key(part) else np.array(np.asarray(part)[of])

    waiting = jax.tree.map(lambda part: copied(part, there), arrays.waiting)
    others = jax.tree.map(copied, arrays._replace(waiting=None))
    return cast(MixtureState, others._replace(waiting=waiting))


def load_state(path: str | os.PathLike[str], intake: Intake) -> MixtureState:
    """Read a state that `to_save` returned, for a restored intake.

    Raises:
        CheckpointError: as in `load`.
    """
    if not intake.room.size:
        return cast(MixtureState, copy_state(load(path, intake.mixture)))
    mixture, kept = intake.mixture, _places(intake)

    class Stored:
        def init(self) -> MixtureState:
            state = mixture.init()
            with jax.enable_x64(True):
                waiting = jax.tree.map(lambda part: part[kept], state.waiting)
            return state._replace(waiting=waiting)

    def in_places(rows: Any, like: Any) -> np.ndarray:
        places = np.zeros(like.shape, like.dtype)
        places[kept] = rows
        return places

    state = load(path, Stored())
    waiting = jax.tree.map(in_places, state.waiting, mixture.like.waiting)
    return cast(MixtureState, copy_state(state._replace(waiting=waiting)))


def _places(intake: Intake) -> np.ndarray:
    """Return the places of the waiting rows; the row that has waited longest comes first."""
    return np.array([row.place for row in intake.room.rows.values()], int)


def copy_state(state: Any) -> Any:
    """Return a copy of a state, which may be donated to a step.

    NumPy arrays are not copied, because a step never writes into memory that JAX does not own.
    """
    with jax.enable_x64(True):  # some parts of a state are in float64 in any mode
        return jax.device_put(state, may_alias=False)
