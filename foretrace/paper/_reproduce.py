"""Run an experiment of the paper: search learning rates, run the seeds, record each run.

    outcome = reproduce.run(paper.load("table1", "cpu"), "results/table1-cpu")

A folder of an experiment holds `records.jsonl` (one line for each finished run), and in `runs/` the
run directory of each, as of `foretrace train`. Stopped at any moment, by a budget of time, a signal
or a power cut, it goes on from the last checkpoint and ends with the same records.
"""

import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tyro.conf import Positional

from foretrace._learner.state import UntrainedParameters
from foretrace._runs.config_json import check_types
from foretrace._runs.directory import Run, RunError, TakenError, begin, record_config, reopen
from foretrace._runs.files import LockedError, locked
from foretrace._runs.follow import Result
from foretrace._runs.loop import DivergenceError
from foretrace._runs.many import many, run_in
from foretrace._runs.session import RunKind
from foretrace._runs.signals import Stop
from foretrace.experiment._scores import Scores
from foretrace.experiment._train import train
from foretrace.paper._catalogue import Name, load
from foretrace.paper._experiment import Experiment, Scale
from foretrace.paper._jobs import Job, left, missing, searches
from foretrace.paper._records import append_record, read_records, record_of


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """An experiment of the paper, and the runs that it is made of.

    Args:
        experiment: table, or panels of a figure.
        scale: size of the experiment: smoke only shows that it runs; cpu takes about an hour on two
            cores; long has the paper's sequences with smaller networks (Tables 2 and 3; 20 to 40
            minutes a run); paper is all of it.
        seeds: seeds of the reported runs. Default: the scale's.
        rates: learning rates to choose from; a single one needs no search. Default: the scale's.
        search_share: length of a run of the search, as a share of a whole run. Default: the
            scale's.
        data_dir: folder of the data sets. Default: the one that FORETRACE_DATA names.
    """

    experiment: Positional[Name]
    scale: Scale = "cpu"
    seeds: tuple[int, ...] | None = None
    rates: tuple[float, ...] | None = None
    search_share: float | None = None
    data_dir: str | None = None

    def __post_init__(self) -> None:
        check_types(self)

    def planned(self) -> Experiment:
        """Return the experiment with these options.

        Raises:
            ValueError: no such experiment at this scale, or an option out of range.
        """
        options = {name: getattr(self, name) for name in ("seeds", "search_share")}
        given: dict[str, Any] = {n: value for n, value in options.items() if value is not None}
        experiment = dataclasses.replace(load(self.experiment, self.scale), **given)
        return experiment.with_options(self.rates, self.data_dir)


KIND = RunKind(Reproduction, may_change=("seeds", "rates", "search_share", "data_dir"))


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
    budget: float | None = None,
    only: Sequence[str] = (),
    show_progress: bool = True,
    config: Reproduction | None = None,
) -> ReproductionStatus:
    """Run an experiment until it is complete, the time is up, or Ctrl-C or SIGTERM asks it to stop.

    Runs that are recorded in the folder are not repeated.

    Args:
        experiment: experiment to run.
        folder: folder of its records.
        budget: seconds after which to save and stop. Default: no limit.
        only: parts of the names of the entries to run. Default: all entries.
        show_progress: show each run and its progress on standard error.
        config: options of the experiment, which the folder records. Default: nothing is recorded.

    Raises:
        RunError: the folder cannot be written, is that of another experiment, or holds a run
            directory that cannot be used.
        DataError: data are missing.
        CheckpointError: the checkpoint to go on from is damaged.
        ValueError: no entry is chosen, or (`LockedError`) another process is at work there.
    """
    folder, begun, entries = Path(folder), time.monotonic(), experiment.chosen(only)
    own = Run(folder)
    if config is not None and own.config.exists():
        reopen(folder, config, may_change=KIND.may_change)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write the folder {folder}: {error.strerror or error}") from error

    def next_jobs() -> list[Job]:
        records = read_records(folder)
        return next((jobs for entry in entries if (jobs := left(experiment, entry, records))), [])

    def attempt(job: Job) -> None:
        if show_progress:
            rate = job.config.optimizer.learning_rate
            where = f"seed {job.config.seed}, rate {rate:g}"
            print(f"{job.entry.name}: {job.purpose}, {where}", file=sys.stderr)
        place = run_in(folder / "runs", job.config)
        resume = place.config.exists()
        try:
            result = train(job.config, place.path, resume=resume, show_progress=show_progress)
        except (LockedError, TakenError) as error:
            raise RunError(str(error)) from error  # `many` would wait for another process
        except DivergenceError:
            result = Result(place, job.config.steps, Scores(*[math.nan] * 3), math.nan)
        if result.scores is not None:
            append_record(folder, record_of(experiment, *job, result))

    with locked(folder), Stop() as stop, _time_limit(stop, budget), warnings.catch_warnings():
        # Experiments run rules that leave parameters untrained on purpose.
        warnings.simplefilter("ignore", UntrainedParameters)
        if config is not None:
            (record_config if own.config.exists() else begin)(own, config)
        many(next_jobs, attempt, stop)
    records = read_records(folder)
    lacking = sum(missing(experiment, entry, records) for entry in entries)
    planned = sum(len(searches(experiment, e)) + len(experiment.seeds) for e in entries)
    if not lacking:
        return ReproductionStatus(planned, planned, None)
    time_is_up = budget is not None and time.monotonic() >= begun + budget
    return ReproductionStatus(planned - lacking, planned, "time is up" if time_is_up else "stopped")


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
