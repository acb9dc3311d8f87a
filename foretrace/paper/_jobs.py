"""Remaining jobs of an experiment: searches for a learning rate, then the reported runs."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from foretrace.experiment._config import Config
from foretrace.paper._experiment import Entry, Experiment
from foretrace.paper._records import identity, identity_of, read_records
from foretrace.paper._vmapped_runs import SeedAndRate

Purpose = Literal["search", "report"]


@dataclasses.dataclass(frozen=True)
class Job:
    """Runs of one entry for one purpose.

    Args:
        entry: cell of the table.
        purpose: whether the runs choose a learning rate or are reported.
        config: configuration that the runs share.
        members: seed and learning rate of each run.
    """

    entry: Entry
    purpose: Purpose
    config: Config
    members: tuple[SeedAndRate, ...]

    def config_of(self, member: SeedAndRate) -> Config:
        """Return the whole configuration of a run."""
        optimizer = dataclasses.replace(self.config.optimizer, learning_rate=member.rate)
        return dataclasses.replace(self.config, seed=member.seed, optimizer=optimizer)


def best_rate(experiment: Experiment, entry: Entry, records: list[dict[str, Any]]) -> float | None:
    """Return the rate of a search's best run by validation. None if it is incomplete."""
    found = [r for r in records if (r["entry"], r["purpose"]) == (entry.name, "search")]
    if {r["rate"] for r in found} < set(entry.rates):
        return None
    sign = -1 if experiment.selected_by == "accuracy" else 1

    def key(record: dict[str, Any]) -> float:
        value = record["validation"][experiment.selected_by]
        return math.inf if math.isnan(value) else sign * value

    return min((r for r in found if r["rate"] in entry.rates), key=key)["rate"]


def jobs(experiment: Experiment, entry: Entry, folder: Path, together: int) -> Iterator[Job]:
    """Yield an entry's remaining jobs one by one, since later jobs need earlier results."""
    rate: float | None = entry.rates[0]
    if (search := _search(experiment, entry)) is not None:
        yield from _left(experiment, search, folder, together)
        rate = best_rate(experiment, entry, read_records(folder))
    assert rate is not None
    members = tuple(SeedAndRate(seed, rate) for seed in experiment.seeds)
    yield from _left(experiment, Job(entry, "report", entry.config, members), folder, together)


def _search(experiment: Experiment, entry: Entry) -> Job | None:
    """Return the runs that choose a learning rate; None if there is only one."""
    if len(entry.rates) == 1:
        return None
    steps = max(round(experiment.search_share * entry.config.steps), 1)
    every = min(entry.config.evaluate_every, steps)
    config = dataclasses.replace(entry.config, steps=steps, evaluate_every=every, align_every=None)
    return Job(
        entry,
        "search",
        config,
        tuple(SeedAndRate(experiment.search_seed, rate) for rate in entry.rates),
    )


def _left(experiment: Experiment, job: Job, folder: Path, together: int) -> Iterator[Job]:
    done = {identity_of(r) for r in read_records(folder)}
    members = [m for m in job.members if run_identity(experiment, job, m) not in done]
    for first in range(0, len(members), together):
        yield dataclasses.replace(job, members=tuple(members[first : first + together]))


def run_identity(experiment: Experiment, job: Job, member: SeedAndRate) -> str:
    """Return what makes a run of a job the same run."""
    return identity(
        experiment.name, experiment.scale, job.entry.name, job.purpose, job.config_of(member)
    )


def planned_jobs(experiment: Experiment, entry: Entry) -> list[Job]:
    """Return an entry's search, if any, and its report, with a placeholder for the best rate."""
    search = _search(experiment, entry)
    members = tuple(SeedAndRate(seed, entry.rates[0]) for seed in experiment.seeds)
    return ([search] if search else []) + [Job(entry, "report", entry.config, members)]


def records_of(experiment: Experiment, entries: list[Entry], folder: Path) -> list[dict[str, Any]]:
    """Return the records in a folder of the runs that the experiment plans now."""
    planned = set()
    for entry in entries:
        members = tuple(
            SeedAndRate(seed, rate) for seed in experiment.seeds for rate in entry.rates
        )
        for job in (_search(experiment, entry), Job(entry, "report", entry.config, members)):
            planned |= (
                {run_identity(experiment, job, member) for member in job.members} if job else set()
            )
    return [record for record in read_records(folder) if identity_of(record) in planned]
