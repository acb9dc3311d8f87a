"""Run an experiment of the paper: search learning rates, run the seeds, record each run.

    outcome = reproduce.run(paper.load("table1", "cpu"), "results/table1-cpu")

A folder of an experiment holds `records.jsonl` (one line for each finished run), and in `runs/` the
run directory of each, as of `foretrace train`. Stopped at any moment, by a budget of time, a signal
or a power cut, it goes on from the last checkpoint and ends with the same records.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from foretrace._learner.state import UntrainedParameters
from foretrace._runs.directory import RunError
from foretrace._runs.files import locked
from foretrace._runs.signals import Stop
from foretrace.experiment._config import Config
from foretrace.experiment._many import many
from foretrace.paper._experiment import Experiment
from foretrace.paper._jobs import Job, next_jobs, records_of, searches
from foretrace.paper._records import append_record, read_records, record_of


class ReproductionStatus(NamedTuple):
    """State of an experiment when `run` returns.

    Args:
        finished: number of recorded runs, searches included.
        planned: number of planned runs, searches included.
        stopped: reason why runs are left, "time is up" or "stopped"; None if none are left.
    """

    finished: int
    planned: int
    stopped: Literal["time is up", "stopped"] | None


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    budget: float | None = None,
    only: Sequence[str] = (),
    show_progress: bool = True,
) -> ReproductionStatus:
    """Run an experiment until it is complete, the time is up, or Ctrl-C or SIGTERM asks it to stop.

    Args:
        experiment: experiment to run.
        folder: folder of its records.
        resume: continue with the records that are there.
        budget: seconds after which to save and stop. Default: no limit.
        only: parts of the names of the entries to run. Default: all entries.
        show_progress: show each run and its progress on standard error.

    Raises:
        RunError: the folder holds records already and `resume` is not set, or it cannot be written.
        DataError: data are missing.
        CheckpointError: the checkpoint to go on from is damaged.
        ValueError: no entry is chosen, or (`LockedError`) another process is at work there.
    """
    folder, begun = Path(folder), time.monotonic()
    entries = [e for e in experiment.entries if not only or any(text in e.name for text in only)]
    if not entries:
        names = "; ".join(entry.name for entry in experiment.entries)
        raise ValueError(
            f"no entry of {experiment.name} contains {', '.join(only)}; there are: {names}"
        )
    if read_records(folder) and not resume:
        raise RunError(
            f"{folder} holds records already; go on with --resume, or choose another folder by "
            "--out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write the folder {folder}: {error.strerror or error}") from error
    with locked(folder), Stop() as stop, _time_limit(stop, budget), warnings.catch_warnings():
        # Experiments run rules that leave parameters untrained on purpose.
        warnings.simplefilter("ignore", UntrainedParameters)
        while not stop.asked and (left := next_jobs(experiment, entries, read_records(folder))):
            configs = _announced(left, stop, show_progress)
            results = many(
                configs,
                folder / "runs",
                show_progress=show_progress,
                # A request that came before the run listened to signals.
                watch=lambda *_: stop.asked,
            )
            for job, result in zip(left, results, strict=False):
                if result.scores is not None:
                    append_record(folder, record_of(experiment, *job, result))
    finished = len(records_of(experiment, entries, read_records(folder)))
    planned = sum(len(searches(experiment, e)) + len(experiment.seeds) for e in entries)
    if finished == planned:
        return ReproductionStatus(finished, planned, None)
    time_is_up = budget is not None and time.monotonic() >= begun + budget
    return ReproductionStatus(finished, planned, "time is up" if time_is_up else "stopped")


def seconds(text: str) -> float:
    """Return a time such as `90s`, `9m`, `1.5h`, or seconds without a unit.

    Raises:
        ValueError: anything else, or nothing.

    >>> seconds("9m")
    540.0
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m", "h") else (text, "s")
    try:
        value = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(
            f"a time of {text!r}: expected a positive number of seconds, minutes or hours such as "
            "9m"
        )
    return value


@contextlib.contextmanager
def _time_limit(stop: Stop, budget: float | None) -> Iterator[None]:
    """Ask this process to stop after a number of seconds, as SIGTERM does; never if None."""

    def ring() -> None:
        if not stop.asked:  # a second signal would end the process at once
            signal.raise_signal(signal.SIGTERM)

    timer = threading.Timer(math.inf if budget is None else budget, ring)
    if budget is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announced(jobs: Sequence[Job], stop: Stop, show: bool) -> Iterator[Config]:
    """Yield the configurations until a stop is asked for; print a line before each run."""
    for entry, purpose, config in jobs:
        if stop.asked:
            return
        if show:
            rate = config.optimizer.learning_rate
            print(f"{entry.name}: {purpose}, seed {config.seed}, rate {rate:g}", file=sys.stderr)
        yield config
