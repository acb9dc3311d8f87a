"""A worker of a sweep: a process that takes one trial after another, until none is left.

It runs as `python -m foretrace.sweep._worker FOLDER NAME HEARTBEAT`, the database's address in its
environment, where other users of the machine do not see it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from foretrace._learner.state import UntrainedParameters
from foretrace._runs.directory import Run, TakenError, read_config_as
from foretrace._runs.files import LockedError
from foretrace._runs.loop import DivergenceError
from foretrace._runs.signals import STOPPED, Stop
from foretrace.experiment._scores import Scores
from foretrace.sweep._config import Sweep
from foretrace.sweep._kinds import swept
from foretrace.sweep._study import (
    STORAGE,
    connect,
    explain,
    is_over,
    library,
    put_back,
    recover,
    standing,
    take,
)
from foretrace.sweep._trials import run_dir

if TYPE_CHECKING:
    import optuna


_IDLE = 0.5

_FAULTS = (DivergenceError, ValueError, jax.errors.JaxRuntimeError)
"""Errors of the trial itself, which repeat: no network of these sizes, or no memory for it."""


class _Unfinished(Exception):
    """A stop request came in the middle of a trial, or its directory is in use."""


class _Failed(Exception):
    """A trial that cannot be finished."""


class Worker:
    """Runs the trials of a sweep.

    Args:
        folder: folder of the sweep.
        storage: address of the database.
        name: unique name of this worker.
        heartbeat: seconds between signs of life.
    """

    def __init__(self, folder: Path, storage: str, name: str, heartbeat: int):
        self.folder, self.name, self._heartbeat = folder, name, heartbeat
        self.sweep = read_config_as(folder, Sweep)
        self.study = connect(folder, storage, self.sweep, heartbeat)
        self.stop, self._parent = Stop(), os.getppid()
        self._taken: int | None = None

    def work(self) -> bool:
        """Run trials until none is left, lost ones of others included; False if asked to stop."""
        ended = threading.Event()
        with self.stop, contextlib.ExitStack() as stack:
            stack.callback(ended.set)
            threading.Thread(target=self._stop_without_parent, args=(ended,), daemon=True).start()
            while not self.stop.asked:
                states = {trial.state for trial in standing(self.study)}
                if "waiting" in states:
                    self._run_one()
                elif "running" in states:
                    recover(self.study, self._heartbeat)
                    time.sleep(_IDLE)
                else:
                    return True
        return False

    def _stop_without_parent(self, ended: threading.Event) -> None:
        """Stop the worker if the process that started it, and would stop it, is gone."""
        while not (ended.wait(1.0) or self.stop.asked):
            if os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _run_one(self) -> None:
        self._taken = None
        try:
            self.study.optimize(self._score, n_trials=1, catch=(_Unfinished, _Failed))
        except ValueError:
            # This machine slept, and the others took its trial for lost: one of them goes on with
            # it.
            if self._taken is None or not is_over(self.study, self._taken):
                raise
        jax.clear_caches()

    def _score(self, trial: "optuna.Trial") -> float:
        taken = take(trial, self.sweep, self.name)
        if taken is None:
            raise library().TrialPruned
        number, values = taken
        self._taken = trial.number  # wrong values are caught below
        watch = _TrialReporter(self, trial)
        try:
            config = self.sweep.of(values)
            path = run_dir(self.folder, number)
            is_finished = swept(config).run(config, path, Run(path).config.exists(), watch)
        except (LockedError, TakenError):
            # Another worker has it, such as one that has not noticed yet that its sweep was killed.
            put_back(self.study, trial)
            time.sleep(_IDLE)
            raise _Unfinished from None
        except library().exceptions.UpdateFinishedTrialError:
            raise _Unfinished from None
        except _FAULTS as error:
            explain(trial, " ".join(str(error).split()) or type(error).__name__)
            raise _Failed from error
        except BaseException:
            put_back(self.study, trial)
            raise
        if not is_finished or watch.score is None:
            put_back(self.study, trial)
            raise _Unfinished
        if not abs(watch.score) < float("inf"):
            explain(trial, f"the {self.sweep.measure} is {watch.score}")
            raise _Failed
        return watch.score


class _TrialReporter:
    """Reports the evaluations of a trial, and says whether to stop."""

    def __init__(self, worker: Worker, trial: "optuna.Trial"):
        self.worker, self.trial = worker, trial
        self.score: float | None = None
        self._noted: set[int] = set()

    def __call__(self, step: int, scores: Scores) -> bool:
        self.note(step, scores._asdict())
        return self.worker.stop.asked

    def note(self, step: int, scores: Mapping[str, Any]) -> None:
        """Report a score, once.

        Raises:
            ValueError: a run of this kind has no such score.
        """
        name = self.worker.sweep.measure
        if name not in scores:
            raise ValueError(f"the run has no score {name}; it has {', '.join(scores)}")
        self.score = score = float(scores[name])
        if step > 0 and step not in self._noted:
            self._noted.add(step)
            self.trial.report(score, step)


def main(arguments: list[str]) -> int:
    """Run a worker; return its exit code."""
    folder, name, heartbeat = arguments
    # The sweep has reported untrained parameters once.
    warnings.simplefilter("ignore", UntrainedParameters)
    try:
        return (
            0 if Worker(Path(folder), os.environ[STORAGE], name, int(heartbeat)).work() else STOPPED
        )
    except Exception as error:
        _explain(error)
        return 1


def _explain(error: Any) -> None:
    if os.environ.get("FORETRACE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    print(
        f"foretrace: a worker failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
