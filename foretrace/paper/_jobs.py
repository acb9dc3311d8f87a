"""The runs of an experiment: first searches for a learning rate, then the reported runs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.experiment._config import Config
from foretrace.paper._experiment import SEARCH_SEED, Entry, Experiment
from foretrace.paper._records import Purpose, identity, identity_of


class Job(NamedTuple):
    """One run of an experiment.

    Args:
        entry: entry to which the run belongs.
        purpose: whether the run chooses a learning rate or is reported.
        config: configuration of the run.
    """

    entry: Entry
    purpose: Purpose
    config: Config

    @property
    def title(self) -> str:
        """Title of the run."""
        rate = self.config.optimizer.learning_rate
        return f"{self.entry.name}: {self.purpose}, seed {self.config.seed}, rate {rate:g}"


def searches(experiment: Experiment, entry: Entry) -> list[Job]:
    """Return the runs that choose a learning rate. If there is only one rate, return none."""
    if len(entry.rates) == 1:
        return []
    config = dataclasses.replace(
        entry.config,
        steps=max(round(experiment.search_share * entry.config.steps), 1),
        align_every=None,
        validation_sequences=entry.config.final_sequences,
    )
    return [_job(entry, "search", config, SEARCH_SEED, rate) for rate in entry.rates]


def reports(experiment: Experiment, entry: Entry, rate: float) -> list[Job]:
    """Return the reported runs for a learning rate, one for each seed."""
    return [_job(entry, "report", entry.config, seed, rate) for seed in experiment.seeds]


def _job(entry: Entry, purpose: Purpose, config: Config, seed: int, rate: float) -> Job:
    config = dataclasses.replace(
        config,
        seed=seed,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=rate),
        log_every=config.evaluate_every,  # a point of the curve has both
    )
    return Job(entry, purpose, config)


def identity_in(experiment: Experiment, job: Job) -> tuple:
    """Return the identity of a run, by which its record is found."""
    return identity(experiment.name, experiment.scale, job.entry.name, job.purpose, job.config)


def left(experiment: Experiment, entry: Entry, records: Sequence[dict[str, Any]]) -> list[Job]:
    """Return the next runs of an entry, that is, the runs without a record.

    The reported runs are returned only when the search is complete.
    """
    done = {identity_of(record): record for record in records}
    jobs, rate = searches(experiment, entry), entry.rates[0]
    found = [done.get(identity_in(experiment, job)) for job in jobs]
    if None not in found:
        if jobs:
            rate = best_rate(experiment, [record for record in found if record])
        jobs = reports(experiment, entry, rate)
    return [job for job in jobs if identity_in(experiment, job) not in done]


def best_rate(experiment: Experiment, searched: Sequence[dict[str, Any]]) -> float:
    """Return the learning rate of the search run with the best validation score."""
    sign = -1 if experiment.selected_by == "accuracy" else 1

    def key(record: dict[str, Any]) -> float:
        value = record["validation"][experiment.selected_by]
        return math.inf if math.isnan(value) else sign * value

    return min(searched, key=key)["rate"]
