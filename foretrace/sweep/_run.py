"""A sweep: many runs that differ in some options, on one machine or many; resumable.

    config = sweep.Sweep(config, grid=("rule=online,truncated", "seed=0,1,2"))
    outcome = sweep.run(config, "runs/rules", workers=2)

A folder of a sweep holds `config.json`, the database `sweep.db` if there is no other, a run
directory `trials/<number>` for every trial, and `sweep.jsonl`, how they stand. Workers are
processes of their own, each with one trial at a time: one that is lost takes nothing with it, for
its trial goes on from its checkpoint in another.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foretrace._runs.directory import Run, RunError, create, reopen
from foretrace._runs.progress import ProgressBar
from foretrace._runs.session import RunKind, steps_of
from foretrace._runs.signals import STOPPED, Stop
from foretrace.sweep._config import Sweep
from foretrace.sweep._study import (
    HEARTBEAT,
    STORAGE,
    connect,
    default_storage,
    give_up,
    library,
    plan,
    standing,
)
from foretrace.sweep._trials import LOST, Trial, best, described, write_trials

if TYPE_CHECKING:
    import optuna


KIND = RunKind(Sweep, may_change=("trials",))

__all__ = ["SweepResult", "Sweep", "Trial", "WorkerError", "run"]

_ATTENTION = 0.05
"""Seconds that a signal or the end of a worker may wait."""

_LOOK_EVERY = 0.5

_LOST_IDLE = 3
"""Workers without a trial that may be killed before the sweep gives up."""


class WorkerError(RuntimeError):
    """A worker failed in a way that is no trial's fault."""


class SweepResult(NamedTuple):
    """State of a sweep when `run` returns.

    Args:
        trials: all trials.
        best: finished trial with the best score on validation sequences; None if no trial is
            finished.
        stopped: whether the sweep was stopped before its end.
    """

    trials: list[Trial]
    best: Trial | None
    stopped: bool


def run(
    sweep: Sweep,
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    storage: str | None = None,
    resume: bool = False,
    heartbeat: int = HEARTBEAT,
    show_progress: bool = True,
) -> SweepResult:
    """Run a sweep's trials to the last, or to Ctrl-C or SIGTERM; `resume` goes on from there.

    Whoever calls this with the same sweep, folder and storage takes part, from this or another
    machine.

    Args:
        sweep: configuration of the sweep.
        folder: new or empty directory, or the directory of the sweep to continue or to join.
        workers: number of processes on this machine, each with one trial at a time.
        storage: address of a database for workers on several machines. Default: a file in the
            folder.
        resume: continue the sweep that is there. More `trials` than before make a search longer.
        heartbeat: seconds between signs of life of a worker; after six times as long without one it
            is lost.
        show_progress: show the number of finished trials, the best score and the time left on
            standard error.

    Raises:
        ValueError: nothing to search, a value that makes no network, no Optuna, or no such
            database.
        RunError: a folder that cannot be used.
        WorkerError: a worker failed, and not by its trial; finished trials are recorded.
    """
    if workers < 1:
        raise ValueError(f"workers={workers} must be at least 1")
    library()
    sweep.check()
    folder = Path(folder)
    _enter(folder, sweep, resume, join=storage is not None)
    address = default_storage(folder) if storage is None else storage
    study = connect(folder, address, sweep, heartbeat)
    plan(study, folder, sweep)
    with (
        Stop() as stop,
        ProgressBar(show_progress) as show,
        _worker_pool(folder, address, heartbeat, workers) as pool,
    ):
        display = _Display(folder, sweep, show)
        while pool.poll(study):
            if stop.asked:
                pool.stop()
            if display.due:
                display.update(standing(study))
            time.sleep(_ATTENTION)
        trials = standing(study)
        display.update(trials)
    unfinished = any(trial.state in ("waiting", "running") for trial in trials)
    return SweepResult(trials, best(trials, sweep.sign), unfinished)


def _enter(folder: Path, sweep: Sweep, resume: bool, join: bool) -> Run:
    there = Run(folder).config.exists()
    if not there and not resume:
        try:
            return create(folder, sweep)
        except RunError:
            if not join or not Run(folder).config.exists():
                raise
    elif there and not resume and not join:
        raise RunError(
            f"{folder} holds a run already; go on with a sweep by --resume, or choose another "
            "directory"
        )
    return reopen(folder, sweep, may_change=KIND.may_change)


class WorkerPool:
    """The workers of this machine."""

    def __init__(self, folder: Path, storage: str, heartbeat: int, workers: int):
        self._arguments = str(folder), str(heartbeat)
        self._environment = os.environ | {STORAGE: storage}
        self._processes: dict[str, subprocess.Popen] = {}
        self._stopping, self._lost_idle = False, 0
        for _ in range(workers):
            self._start()

    def poll(self, study: "optuna.Study") -> bool:
        """Check the workers and replace those that were lost; return False when all have ended.

        Raises:
            WorkerError: one failed, and not by its trial.
        """
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[name]
            left = give_up(study, name)
            # One that had no trial was lost by chance, not by its trial; but a machine may kill all
            # of them.
            self._lost_idle += code < 0 and not left
            if code < 0 and not self._stopping and (left or self._lost_idle <= _LOST_IDLE):
                self._start()
            elif code not in (0, STOPPED) and not self._stopping:
                raise WorkerError(
                    f"a worker ended with code {code}; what is done is recorded: go on with "
                    "--resume"
                )
        return bool(self._processes)

    def stop(self) -> None:
        """Request once that all workers save and stop."""
        if not self._stopping:
            self._stopping = True
            for process in self._processes.values():
                process.terminate()

    def close(self, patience: float) -> None:
        """Terminate all workers, then kill those that do not exit in time."""
        self.stop()
        for process in self._processes.values():
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()

    def _start(self) -> None:
        folder, heartbeat = self._arguments
        name = uuid.uuid4().hex
        command = [sys.executable, "-m", "foretrace.sweep._worker", folder, name, heartbeat]
        # In a session of its own, for Ctrl-C of the terminal comes to all processes, and a second
        # signal ends them.
        self._processes[name] = subprocess.Popen(
            command, env=self._environment, start_new_session=True
        )


@contextmanager
def _worker_pool(folder: Path, storage: str, heartbeat: int, workers: int) -> Iterator[WorkerPool]:
    pool = WorkerPool(folder, storage, heartbeat, workers)
    patience = 60.0
    try:
        yield pool
    except KeyboardInterrupt:  # the second one
        patience = 0.0
        raise
    finally:
        pool.close(patience)


class _Display:
    """Says what became of each trial, how far the whole is, and keeps `sweep.jsonl` up to date."""

    def __init__(self, folder: Path, sweep: Sweep, show: ProgressBar):
        self.folder, self.sweep, self.show = folder, sweep, show
        self._began, self._steps_before, self._seen = time.monotonic(), -1, set[int]()
        self._written: list[Trial] | None = None
        self._looked = -_LOOK_EVERY

    @property
    def due(self) -> bool:
        """Whether it is time to look at the trials again."""
        return time.monotonic() - self._looked >= _LOOK_EVERY

    def update(self, trials: list[Trial]) -> None:
        """Show and record how the trials stand."""
        self._looked = time.monotonic()
        if self._steps_before < 0:
            self._steps_before = self._steps(trials)
        if trials != self._written:
            write_trials(self.folder, trials)
            self._written = trials
        for trial in trials:
            over = trial.state == "finished" or (trial.state == "failed" and trial.reason != LOST)
            if over and trial.number not in self._seen:
                self._seen.add(trial.number)
                self.show.say(described(trial, self.sweep.measure))
        self.show.tick(self._summary(trials))

    def _summary(self, trials: list[Trial]) -> str:
        failed = sum(t.state == "failed" for t in trials)
        done = failed + sum(t.state == "finished" for t in trials)
        more = f" ({failed} failed)" if failed else ""
        parts = [f"trials: {done} of {len(trials)} done{more}"]
        running = [t for t in trials if t.state == "running" and t.values]
        for trial in running:
            total = steps_of(self.sweep.of(trial.values))
            parts.append(f"{trial.number} at step {trial.step}" + (f" of {total}" if total else ""))
        if (leader := best(trials, self.sweep.sign)) is not None:
            parts.append(f"best {self.sweep.measure} {leader.score:.4g} (trial {leader.number})")
        return "; ".join([*parts, *self._time_left(trials)])

    def _steps(self, trials: list[Trial]) -> int:
        return sum(trial.step for trial in trials if trial.state != "failed")

    def _time_left(self, trials: list[Trial]) -> list[str]:
        done = self._steps(trials)
        rate = (done - self._steps_before) / (time.monotonic() - self._began + 1e-9)
        steps = steps_of(self.sweep.config) or 0
        left = sum(steps - t.step for t in trials if t.state in ("waiting", "running"))
        return [f"about {left / rate:.0f} s left"] if rate > 0 and left > 0 else []
