"""Run an experiment of the paper: search for learning rates, run all seeds, record each run.

    left = reproduce.run(reproduce.Reproduction("table1", "cpu"), "results/table1-cpu")

The folder of an experiment has a file `records.jsonl` with one line for each finished run, and in
`runs/` a run directory for each run, as `foretrace train` writes it. A reproduction may be stopped
at any moment, by a signal or a power cut. It continues from the last checkpoint and ends with the
same records.
"""

import dataclasses
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from foretrace._learner.state import UntrainedParameters
from foretrace._runs import directory
from foretrace._runs.config_json import check_types
from foretrace._runs.files import LockedError, locked
from foretrace._runs.follow import DivergenceError
from foretrace._runs.many import many
from foretrace._runs.saved import RunKind
from foretrace._runs.signals import Stop
from foretrace.experiment._scores import Scores
from foretrace.experiment._train import train
from foretrace.paper._catalogue import Name, load
from foretrace.paper._experiment import Experiment, Scale
from foretrace.paper._jobs import Job, left
from foretrace.paper._records import append_record, read_records, record_of


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """An experiment of the paper, with the options of its runs.

    Args:
        experiment: table of the paper, or panels of a figure.
        scale: size of the experiment. smoke: a short test. cpu: about an hour on two cores. long:
            the paper's sequences with smaller networks (Tables 2 and 3; 20 to 40 minutes a run).
            paper: the whole experiment.
        seeds: seeds of the reported runs. Default: the seeds of the scale.
        rates: learning rates to choose from; a single rate needs no search. Default: the rates of
            the scale.
        search_share: length of a search run, as a fraction of a reported run. Default: the fraction
            of the scale.
        only: texts that select the entries whose names contain them, such as "online, LRU".
            Default: all entries.
    """

    experiment: Positional[Name]
    scale: Scale = "cpu"
    seeds: tuple[int, ...] | None = None
    rates: tuple[float, ...] | None = None
    search_share: float | None = None
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)

    def planned(self) -> Experiment:
        """Return the experiment with these options.

        Raises:
            ValueError: there is no such experiment at this scale or no such entry, or an option is
                out of range.
        """
        found = load(self.experiment, self.scale)
        options = {name: getattr(self, name) for name in ("seeds", "search_share")}
        given: dict[str, Any] = {n: value for n, value in options.items() if value is not None}
        chosen = dataclasses.replace(found, entries=tuple(found.chosen(self.only)), **given)
        return chosen if self.rates is None else chosen.with_rates(self.rates)


KIND = RunKind(Reproduction, may_change=("seeds", "rates", "search_share", "only"))


def run(
    config: Reproduction, folder: str | os.PathLike[str], *, show_progress: bool = True
) -> list[Job]:
    """Run an experiment until it is complete, or until Ctrl-C or SIGTERM.

    Runs with a record in the folder are not repeated.

    Args:
        config: experiment, with the options of its runs.
        folder: folder for the records and the run directories. It is created if it is missing.
        show_progress: whether to show the present run and its progress on standard error.

    Returns:
        The next runs; an empty list if the experiment is complete.

    Raises:
        RunError: the folder cannot be written, belongs to another experiment, or has a run
            directory that cannot be used.
        DataError: the data of a task are missing.
        CheckpointError: the checkpoint to continue from is damaged.
        ValueError: no entry is chosen, or (`LockedError`) another process works in the folder.
    """
    folder, experiment = Path(folder), config.planned()
    own = directory.Run(folder)
    if own.config.exists():
        directory.reopen(own, config, may_change=KIND.may_change)
    else:
        directory.create(folder, config)

    def next_jobs() -> list[Job]:
        records = read_records(folder)
        jobs = (left(experiment, entry, records) for entry in experiment.entries)
        return next(filter(None, jobs), [])

    def attempt(job: Job) -> None:
        if show_progress:
            print(job.title, file=sys.stderr)
        place = directory.run_in(folder / "runs", job.config)
        resume = place.config.exists()
        try:
            result = train(job.config, place.path, resume=resume, show_progress=show_progress)
            scores = result.scores
        except (LockedError, directory.TakenError) as error:
            raise directory.RunError(str(error)) from error  # `many` would wait for another process
        except DivergenceError:
            scores = Scores(*[math.nan] * 3)
        if scores is not None:
            append_record(folder, record_of(experiment, *job, place, scores))

    with locked(folder), Stop() as stop, warnings.catch_warnings():
        # Experiments deliberately run rules that leave parameters untrained.
        warnings.simplefilter("ignore", UntrainedParameters)
        directory.record_config(own, config)
        many(next_jobs, attempt, stop)
    return next_jobs()
