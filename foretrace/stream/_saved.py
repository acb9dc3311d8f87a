"""The state of a stream: packed while it runs, and with each array by its name in checkpoints."""

import os
from typing import Any, TypeVar

import jax

from foretrace._experts.mixture import Mixture
from foretrace._rows.source import Position
from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import CheckpointError, load, read_extra, restoring, save
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import Run, RunError, check_unchanged, read_config_as
from foretrace.stream._config import StreamConfig
from foretrace.stream._intake import State
from foretrace.stream._plan import Plan

MAY_CHANGE = (
    *("bad_rows", "outliers", "when_full"),
    *("log_every", "checkpoint_every", "checkpoint_seconds"),
)
"""Options that a resumed run may change: what to do about bad data, and when to write."""

S = TypeVar("S")

BESIDE: dict[str, Any] = {
    "config": dict[str, Any],
    "plan": dict[str, Any],
    "position": Position,
    "pipe": dict[str, Any] | None,
    "intake": dict[str, Any],
    "record": FileMark,
    "predictions": FileMark | None,
}
"""Types of the values beside the state that are read before the loop is; its own it checks."""


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the `extra` of `save_state`, with the types of `BESIDE` and a valid plan.

    Raises:
        CheckpointError: as for `load`, or a value is missing or of another type.
    """
    saved = read_extra(path)
    with restoring(path):
        for name, kind in BESIDE.items():
            if name not in saved:
                raise CheckpointError(f"{path} has no {name}, which `foretrace stream` writes")
            from_json(kind, saved[name])
        Plan.from_json(saved["plan"])
        if min(saved["position"][:4]) < 0:
            raise CheckpointError(
                f"{path} has the position {saved['position']}, which cannot be negative"
            )
    return saved


def first_state(mixture: Mixture) -> State:
    """Return the state before the first row, packed: programs take and return it in less time."""
    return mixture.packing.pack(mixture.init())


def save_state(
    path: str | os.PathLike[str], mixture: Mixture, state: State, *, extra: dict[str, Any]
) -> None:
    """Write a packed state to a file, as `save` does."""
    save(path, mixture.packing.unpack(state), extra=extra)


def read_saved(run: Run) -> dict[str, Any] | None:
    """Return the values of a checkpoint beside the state; None if the run has not begun to learn.

    Raises:
        RunError: the checkpoint belongs to another run, or is lost.
        CheckpointError: the checkpoint is damaged.
    """
    config = read_config_as(run.path, StreamConfig)
    if run.checkpoint.exists():
        saved = _read(run.checkpoint)
        check_unchanged(run, config, saved["config"], saved["plan"], MAY_CHANGE)
        return saved
    # The first checkpoint is written before the first line of the record.
    if run.metrics.exists() and run.metrics.stat().st_size:
        raise RunError(
            f"{run.path} has a record but no {run.checkpoint.name}: its parameters are lost. Put "
            "this file back; or begin a new run in another --run-dir; or remove "
            f"{run.metrics.name}, and the run learns from the first row again"
        )
    return None


def load_state(path: str | os.PathLike[str], mixture: Mixture) -> State:
    """Read a state back, packed; it may be donated to a step.

    Raises:
        CheckpointError: as for `load`.
    """
    return mixture.packing.pack(copy_state(load(path, mixture)))


def copy_state(state: S) -> S:
    """Return a copy that may be donated to a step.

    NumPy's arrays are not copied: JAX keeps them, and a step never writes into memory that is not
    JAX's own.
    """
    with jax.enable_x64(True):  # parts of a state are in float64 in any mode
        return jax.device_put(state, may_alias=False)
