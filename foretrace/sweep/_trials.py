"""A sweep's trials as they stand: `sweep.jsonl`, a line each, readable without a database."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from foretrace._runs.files import write_atomically
from foretrace.sweep._space import Value

TRIALS_FILE = "sweep.jsonl"
State = Literal["finished", "running", "waiting", "failed"]

LOST = "its worker was lost"
"""Why a trial failed that may run again."""

_ORDER: tuple[State, ...] = ("finished", "running", "waiting", "failed")


class Trial(NamedTuple):
    """State of a trial.

    Args:
        number: number of the trial; its run directory is `trials/<number>`.
        state: state of the trial.
        values: values of the options that are searched.
        step: step of the last evaluation.
        score: validation score of that evaluation; None before the first, or if it is not finite.
        reason: reason of a failure.
    """

    number: int
    state: State
    values: dict[str, Value]
    step: int = 0
    score: float | None = None
    reason: str = ""


def run_dir(folder: str | os.PathLike[str], number: int) -> Path:
    """Return the run directory of a trial."""
    return Path(folder) / "trials" / str(number)


def ranked(trials: Sequence[Trial], sign: int) -> list[Trial]:
    """Sort trials: finished ones by their score, then those that run, wait or failed.

    Args:
        trials: trials of a sweep.
        sign: 1 where a smaller score is better, -1 where a larger one is.

    >>> [
    ...     trial.number
    ...     for trial in ranked(
    ...         [Trial(0, "finished", {}, 9, 0.3), Trial(1, "finished", {}, 9, 0.2)], 1
    ...     )
    ... ]
    [1, 0]
    """

    def key(trial: Trial) -> tuple[int, float, int]:
        return (
            _ORDER.index(trial.state),
            math.inf if trial.score is None else sign * trial.score,
            trial.number,
        )

    return sorted(trials, key=key)


def best(trials: Sequence[Trial], sign: int) -> Trial | None:
    """Return the finished trial with the best score, if there is one."""
    finished = [trial for trial in ranked(trials, sign) if trial.state == "finished"]
    return finished[0] if finished else None


def assignments(values: Mapping[str, Value]) -> str:
    """Return options with their values, numbers with four digits.

    >>> assignments({"optimizer.learning-rate": 0.00123456, "rule": "bptt"})
    'optimizer.learning-rate=0.001235, rule=bptt'
    """
    return ", ".join(f"{option}={shown(value)}" for option, value in values.items())


def shown(value: Value) -> str:
    """Return a value with four digits, if it is a number from a range."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def described(trial: Trial, score: str) -> str:
    """Return a line about a trial.

    >>> described(Trial(3, "finished", {"rule": "bptt"}, 40, 0.25), "loss")
    'trial 3 finished: loss 0.25 at step 40; rule=bptt'
    """
    found = "" if trial.score is None else f"{score} {trial.score:.4g} at step {trial.step}"
    what = "; ".join(part for part in (trial.reason, found, assignments(trial.values)) if part)
    return f"trial {trial.number} {trial.state}: {what}"


def write_trials(folder: str | os.PathLike[str], trials: Sequence[Trial]) -> None:
    """Write the trials of a sweep, in one go: whoever reads finds the old ones or the new ones."""
    lines = "".join(json.dumps(trial._asdict(), allow_nan=False) + "\n" for trial in trials)
    write_atomically(Path(folder) / TRIALS_FILE, lines.encode())


def read_trials(folder: str | os.PathLike[str]) -> list[Trial]:
    """Return the trials of a sweep; none if none is recorded.

    Raises:
        ValueError: the file holds something else.
    """
    path = Path(folder) / TRIALS_FILE
    try:
        return (
            [Trial(**json.loads(line)) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not hold the trials of a sweep: {error}") from error
