"""Run an experiment of the paper: search learning rates, run the seeds, record each run.

    outcome = reproduce.run(paper.load("table1", "cpu"), "results/table1-cpu")

A folder of an experiment holds `records.jsonl` (one line for each finished run) and, while it goes
on, `work/` with the state of the runs in progress. Stopped at any moment, by a budget of time, a
signal or a power cut, it goes on from the last checkpoint and ends with the same records.
"""

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from foretrace._runs.checkpoint import CheckpointError, load, read_extra, save
from foretrace._runs.directory import RunError
from foretrace._runs.files import locked, remove_temporaries
from foretrace._runs.loop import Clock, Schedule
from foretrace._runs.machine import peak_memory_mib, surroundings
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop
from foretrace.paper._experiment import Experiment
from foretrace.paper._jobs import Job, jobs, planned_jobs, records_of, run_identity
from foretrace.paper._records import append_records, identity_of, read_records, recorded
from foretrace.paper._vmapped_runs import RunBatch, RunBatchState

SECONDS_PER_CALL = 2.0
"""Target duration of one compiled call, in s: short enough to stop soon, long enough to be free."""


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
    together: int | None = None,
    only: Sequence[str] = (),
    save_every: float = 60.0,
    show_progress: bool = True,
) -> ReproductionStatus:
    """Run an experiment until it is complete, the time is up, or Ctrl-C or SIGTERM asks it to stop.

    Args:
        experiment: experiment to run.
        folder: folder of its records.
        resume: continue with the records that are there.
        budget: seconds after which to save and stop. Default: no limit.
        together: largest number of runs in one program. Default: one on a CPU, all of an entry
            elsewhere.
        only: parts of the names of the entries to run. Default: all entries.
        save_every: seconds between checkpoints, the most that a power cut can cost.
        show_progress: show the progress over all runs on standard error.

    Raises:
        RunError: the folder holds records already and `resume` is not set, or it cannot be written.
        DataError: data are missing.
        CheckpointError: the checkpoint to go on from is damaged.
        ValueError: no entry is chosen, or (`LockedError`) another process is at work there.
    """
    folder = Path(folder)
    entries = [e for e in experiment.entries if not only or any(text in e.name for text in only)]
    if not entries:
        raise ValueError(
            f"no entry of {experiment.name} contains {', '.join(only)}; there are: "
            f"{_names(experiment)}"
        )
    if read_records(folder) and not resume:
        raise RunError(
            f"{folder} holds records already; go on with --resume, or choose another folder by "
            "--out"
        )
    try:
        (folder / "work").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write the folder {folder}: {error.strerror or error}") from error
    if together is None:
        together = 1 if jax.default_backend() == "cpu" else 10**6
    deadline = math.inf if budget is None else time.monotonic() + budget
    planned = [job for entry in entries for job in planned_jobs(experiment, entry)]
    planned_runs = sum(len(job.members) for job in planned)
    done_steps = sum(r["step"] for r in records_of(experiment, entries, folder))
    with (
        locked(folder),
        Stop() as stop,
        ProgressBar(
            show_progress, sum(job.config.steps * len(job.members) for job in planned)
        ) as show,
    ):
        runner = _Runner(experiment, folder, deadline, save_every, stop, show, done_steps)
        complete = all(
            runner.finish(job)
            for entry in entries
            for job in jobs(experiment, entry, folder, together)
        )
    finished = len(records_of(experiment, entries, folder))
    if not complete:
        return ReproductionStatus(finished, planned_runs, "stopped" if stop.asked else "time is up")
    _clean(folder)
    return ReproductionStatus(finished, planned_runs, None)


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


class _Runner:
    """Runs jobs one after another, against one deadline and with one progress display."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        deadline: float,
        save_every: float,
        stop: Stop,
        show: ProgressBar,
        done_steps: int,
    ):
        self.experiment, self.folder, self.deadline, self.save_every = (
            experiment,
            folder,
            deadline,
            save_every,
        )
        self.stop, self.show, self.done_steps = stop, show, done_steps

    def finish(self, job: Job) -> bool:
        """Train the runs of a job and record them; False if it was stopped before its end."""
        config, group = job.config, RunBatch(job.config, job.members)
        checkpoint = self._checkpoint(job)
        state, step, curve, seconds = self._begin(group, checkpoint)
        clock, schedule, calls = Clock(seconds), Schedule(config.steps), _CallLength()
        while step < config.steps:
            if self.stop.asked or time.monotonic() > self.deadline:
                self._save(job, state, step, curve, clock.seconds)
                return False
            count = min(calls.steps, schedule.steps_until_due(step, config.evaluate_every))
            self.show.compiling()
            with calls:
                state = jax.block_until_ready(group.advance(state, step, count))
            calls.adapt(count)
            step += count
            loss, right, accepted = state.sums.sum(axis=0)
            self.show.update(
                self.done_steps + step * len(job.members),
                float(loss / accepted),
                float(right / accepted),
                label=f"{job.entry.name}: {job.purpose}",
            )
            if schedule.is_due(step, config.evaluate_every):
                state, rows = group.judge(state, step)
                curve.append({"step": step, "runs": rows})
                if config.align_every is not None:
                    curve[-1]["alignment"] = [_aligned(found) for found in group.align(state)]
            if clock.rings(self.save_every):
                self._save(job, state, step, curve, clock.seconds)
        self._record(job, group, state, curve, clock.seconds)
        self.done_steps += config.steps * len(job.members)
        checkpoint.unlink(missing_ok=True)
        remove_temporaries(checkpoint)
        return True

    def _begin(
        self, group: RunBatch, checkpoint: Path
    ) -> tuple[RunBatchState, int, list[dict[str, Any]], float]:
        if not checkpoint.exists():
            return group.init(), 0, [], 0.0
        kept = read_extra(checkpoint)
        return load(checkpoint, group), kept["step"], kept["curve"], kept["seconds"]

    def _save(
        self, job: Job, state: RunBatchState, step: int, curve: list[dict[str, Any]], seconds: float
    ) -> None:
        extra = {"step": step, "curve": curve, "seconds": seconds, "runs": self._identities(job)}
        save(self._checkpoint(job), state, extra=extra)

    def _record(
        self,
        job: Job,
        group: RunBatch,
        state: RunBatchState,
        curve: list[dict[str, Any]],
        seconds: float,
    ) -> None:
        best = self.experiment.best
        validation = group.score(state, "validation", best=best)
        test = (
            group.score(state, "test", best=best)
            if job.purpose == "report"
            else [None] * len(job.members)
        )
        records = []
        for number, member in enumerate(job.members):
            config = job.config_of(member)
            records.append(
                {
                    "step": config.steps,
                    "experiment": self.experiment.name,
                    "scale": self.experiment.scale,
                    "entry": job.entry.name,
                    "purpose": job.purpose,
                    "seed": member.seed,
                    "rate": member.rate,
                    "training_loss": curve[-1]["runs"][number]["training_loss"],
                    "training_accuracy": curve[-1]["runs"][number]["training_accuracy"],
                    "validation": validation[number],
                    "test": test[number],
                    "best_step": int(state.best_step[number]) if best else None,
                    "refused": int(state.learner.skipped[number]),
                    "curve": [_one_run(point, number) for point in curve],
                    "seconds": round(seconds, 1),
                    "runs_in_program": len(job.members),
                    "peak_memory_mib": peak_memory_mib(),
                    "config": recorded(config),
                    "surroundings": surroundings(),
                }
            )
        append_records(self.folder, records)

    def _identities(self, job: Job) -> list[str]:
        return [run_identity(self.experiment, job, member) for member in job.members]

    def _checkpoint(self, job: Job) -> Path:
        digest = hashlib.sha256(" ".join(self._identities(job)).encode()).hexdigest()[:16]
        return self.folder / "work" / f"{digest}.safetensors"


def _clean(folder: Path) -> None:
    """Remove checkpoints of recorded runs, which a killed process leaves, and the empty folder."""
    done = {identity_of(record) for record in read_records(folder)}
    for checkpoint in (folder / "work").glob("*.safetensors"):
        with contextlib.suppress(CheckpointError):
            if {*read_extra(checkpoint).get("runs", ["?"])} <= done:
                checkpoint.unlink()
        remove_temporaries(checkpoint)
    if not any((folder / "work").iterdir()):
        (folder / "work").rmdir()


class _CallLength:
    """How many steps to give to one call; a clock decides, and the result does not depend on it."""

    def __init__(self) -> None:
        self.steps, self._calls, self._began = 1, 0, 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds = time.monotonic() - self._began

    def adapt(self, count: int) -> None:
        """Aim at `SECONDS_PER_CALL`; the first call, which compiles, says nothing."""
        self._calls += 1
        if self._calls > 1:
            per_step = self._seconds / count
            self.steps = max(1, min(int(SECONDS_PER_CALL / per_step), 2 * self.steps + 8))


def _one_run(point: dict[str, Any], number: int) -> dict[str, Any]:
    row = {"step": point["step"], **point["runs"][number]}
    return row | ({"alignment": point["alignment"][number]} if "alignment" in point else {})


def _aligned(found: Any) -> dict[str, Any]:
    return {"layers": [float(v) for v in found.layer_cosine], "total": float(found.total)}


def _names(experiment: Experiment) -> str:
    return "; ".join(entry.name for entry in experiment.entries)
