"""An experiment: a configuration trained on its task, in a run directory that it can be resumed from exactly.

    config = experiment.Config(steps=1000)
    result = experiment.train(config, "runs/first")

Every step is one compiled program that draws its batch, learns and measures; nothing but four numbers leaves it.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from foretrace._distributed.devices import Devices, Steps
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._runs.checkpoint import load, read_extra, save
from foretrace._runs.config_json import to_json
from foretrace._runs.directory import Run, RunError, changed_packages, create, default_path, read_config_as, reopen
from foretrace._runs.divergence import IN_FLIGHT, REFUSED_IN_A_ROW, DivergenceError
from foretrace._runs.files import locked
from foretrace._runs.metrics import MetricsLog, Unwritten, read_metrics
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop
from foretrace._types import Array
from foretrace.experiment._build import build
from foretrace.experiment._cells import (
    GRU,
    LIF,
    LRU,
    RGLRU,
    RTU,
    S5,
    ElementwiseLSTM,
    IndRNN,
    LinearRNN,
    MinGRU,
    MinLSTM,
    SelectiveSSM,
)
from foretrace.experiment._config import Config, NetworkConfig, OptimizerConfig
from foretrace.experiment._program import align, evaluate, evaluation_batches, learn
from foretrace.experiment._scores import Scores
from foretrace.tasks import EvaluationSplit, Task
from foretrace.tasks.copy import Copy
from foretrace.tasks.selective_copy import SelectiveCopy


class Progressed(NamedTuple):
    """What a run has to remember beside the learner's state; step -1 before anything is recorded."""

    step: int = -1
    seconds: float = 0.0
    refused: int = 0
    window: tuple[tuple[float, ...], ...] = ()


def begin(run: Run, config: Config, learner: Learner, resume: bool) -> tuple[LearnerState, Progressed]:
    """Return where a run stands: at its checkpoint if it goes on and has one, else at its beginning."""
    if not resume or not run.checkpoint.exists():
        return learner.init(jax.random.fold_in(jax.random.key(config.seed), 1)), Progressed()
    kept = read_extra(run.checkpoint)["progress"]
    window = tuple(tuple(row) for row in kept.pop("window"))
    return load(run.checkpoint, learner), Progressed(**kept, window=window)


def read_config(path: str | os.PathLike) -> Config:
    """Return the configuration of an experiment's run directory.

    Raises:
        RunError: there is none, or it cannot be read.
    """
    return read_config_as(path, Config)


__all__ = [
    "GRU",
    "LIF",
    "LRU",
    "RGLRU",
    "RTU",
    "S5",
    "Config",
    "Copy",
    "DivergenceError",
    "ElementwiseLSTM",
    "IndRNN",
    "LinearRNN",
    "MinGRU",
    "MinLSTM",
    "NetworkConfig",
    "OptimizerConfig",
    "Result",
    "Run",
    "RunError",
    "Scores",
    "SelectiveCopy",
    "SelectiveSSM",
    "build",
    "default_path",
    "train",
]


class Result(NamedTuple):
    """How a run ended.

    Args:
        run: its directory.
        step: steps done.
        scores: of the final evaluation; None if the run was stopped before its end.
        seconds: time of training and evaluation, over all its parts.
    """

    run: Run
    step: int
    scores: Scores | None
    seconds: float


def train(
    config: Config,
    run_dir: str | os.PathLike,
    *,
    resume: bool = False,
    show_progress: bool = True,
    devices: int | None = None,
    watch: Callable[[int, Scores], bool] | None = None,
) -> Result:
    """Train to the last step, or until Ctrl-C or SIGTERM; then the state is saved and `resume` goes on from it.

    A resumed run ends with the same parameters and the same record, bit for bit, as one that was never stopped, on
    the same machine with the same packages; only `seconds` in the record tells them apart. On another number of
    devices or processes it ends with the same but for rounding.

    In several processes (`jax.distributed`) every process calls this in the same way; the first one writes.

    Args:
        config: what to train.
        run_dir: a new or empty directory; with `resume`, that of the run. Processes share it.
        resume: go on with the run that is there.
        show_progress: show step, loss, accuracy, speed and time left on standard error.
        devices: over how many the sequences of a batch are spread; if not given, as many as can share it evenly.
        watch: sees the step and the scores of every evaluation on validation sequences, in all processes; if it
            answers True, the run ends there as if stopped.

    Raises:
        ValueError: a configuration that makes no network, devices that cannot share the batch, or (`RunError`) a
            directory that cannot be used: nothing is written then.
        LockedError: another process trains there.
        CheckpointError: the checkpoint to go on from is damaged.
        DivergenceError: nothing but NaN or infinity for a while.
        OSError: a file could not be written in the middle of the run.
    """
    places = Devices(config.batch_size, devices)
    task, learner = build(config, mesh=places.mesh)
    run = Run(Path(run_dir))
    if places.leads:
        run = reopen(run_dir, config) if resume else create(run_dir, config)
    state, progressed = begin(run, config, learner, resume)
    places.check_agreed("the step to go on from", progressed.step)
    done = _finished(run, progressed)
    if done is not None:
        return done
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        log: MetricsLog = Unwritten()
        show = ProgressBar(False)
        if places.leads:
            stack.enter_context(locked(run.path))
            log = stack.enter_context(MetricsLog(run.metrics, resume_at=progressed.step if resume else None))
            show = stack.enter_context(ProgressBar(show_progress, config.steps))
        if resume and (changed := changed_packages(run.path)):
            show.say(f"the run goes on, but not bit for bit: {', '.join(changed)}")
        if places.idle:
            show.say(f"a batch of {config.batch_size} is shared by {places.number} devices; {places.idle} stay idle")
        return _Training(config, task, learner, run, log, stop, show, progressed, places, watch).run_from(state)


def _finished(run: Run, progressed: Progressed) -> Result | None:
    """Return the result of a run that has one already."""
    if progressed.step < 0 or not run.metrics.exists():
        return None
    for record in read_metrics(run.metrics):
        if record["kind"] == "result":
            scores = Scores(*(record[name] for name in Scores._fields))
            return Result(run, record["step"], scores, record["seconds"])
    return None


class _Training:
    """The loop, and what is due at which step."""

    def __init__(
        self,
        config: Config,
        task: Task,
        learner: Learner,
        run: Run,
        log: MetricsLog,
        stop: Stop,
        show: ProgressBar,
        progressed: Progressed,
        places: Devices,
        watch: Callable[[int, Scores], bool] | None,
    ):
        self.config, self.task, self.learner, self.places = config, task, learner, places
        self.run, self.log, self.show = run, log, show
        self.fresh, self.step = progressed.step < 0, max(progressed.step, 0)
        self.refused, self.window = progressed.refused, [np.asarray(row) for row in progressed.window]
        self.watch, self.enough = watch, False
        self.began = time.monotonic() - progressed.seconds
        spread = places.spread(task)
        self.learn = Steps(places, partial(learn, config, spread, learner, seed=config.seed), stop)
        self.evaluate = places.compile(partial(evaluate, config, spread, seed=config.seed), static_argnames="split")

    def run_from(self, state: LearnerState) -> Result:
        """Train from the present step on."""
        state = self.places.same(state)
        if self.fresh:
            self._measure(state.network)
        pending: deque[Array] = deque()
        while self.step < self.config.steps and not (self.learn.stopped or self.enough):
            state, row = self.learn(state, np.int32(self.step))
            pending.append(row)
            self.step += 1
            # Looking at an older step lets the device work on while the host writes and draws.
            while len(pending) > (0 if self._anything_due() else IN_FLIGHT):
                self._look_at(self.learn.look(pending.popleft()), self.step - len(pending))
            if self._anything_due():
                self._do_what_is_due(state)
        while pending:
            self._look_at(self.learn.look(pending.popleft()), self.step - len(pending))
        if self.step < self.config.steps:
            self._save(state)
            return Result(self.run, self.step, None, self._seconds())
        return self._finish(state)

    def _finish(self, state: LearnerState) -> Result:
        scores = self._score(state.network, "test", self.config.final_sequences)
        seconds = self._seconds()
        self.log.write("result", self.step, **scores._asdict(), seconds=seconds)
        return Result(self.run, self.step, scores, seconds)

    def _due(self, every: int | None) -> bool:
        return every is not None and (self.step % every == 0 or self.step == self.config.steps)

    def _anything_due(self) -> bool:
        config = self.config
        intervals = (config.log_every, config.evaluate_every, config.align_every, config.checkpoint_every)
        return any(map(self._due, intervals))

    def _look_at(self, row: np.ndarray, step: int) -> None:
        loss, right, _, accepted = row
        self.window.append(row)
        self.refused = 0 if accepted else self.refused + 1
        if self.refused >= REFUSED_IN_A_ROW:
            raise DivergenceError(
                f"training has diverged: loss or gradient was NaN or infinite in {self.refused} steps in a row, up to "
                f"step {step}; try a smaller optimizer.learning_rate (now {self.config.optimizer.learning_rate}) or "
                f"a smaller optimizer.clip (now {self.config.optimizer.clip})"
            )
        self.show.update(step, float(loss), float(right))

    def _do_what_is_due(self, state: LearnerState) -> None:
        """Write what is due; the checkpoint last, so that it never knows less than the record."""
        if self._due(self.config.log_every):
            self._log_window()
        self._measure(state.network)
        if self._due(self.config.checkpoint_every):
            self._save(state)

    def _log_window(self) -> None:
        rows = np.asarray(self.window, np.float64)
        good = rows[rows[:, 3] > 0]
        loss, right, norm = good[:, :3].mean(axis=0) if len(good) else (np.nan,) * 3
        refused = len(rows) - len(good)
        values = {"loss": loss, "accuracy": right, "gradient_norm": norm, "refused": refused}
        self.log.write("train", self.step, **values, seconds=self._seconds())
        self.window.clear()

    def _measure(self, network: Network) -> None:
        if self._due(self.config.evaluate_every):
            scores = self._score(network, "validation", self.config.validation_sequences)
            self.log.write("validation", self.step, **scores._asdict(), seconds=self._seconds())
            self.enough = self.watch is not None and self.watch(self.step, scores)
        if self._due(self.config.align_every) and self.places.leads:
            found = align(self.config, self.task, self.places.one(network), self.learner.rule)
            values = {"layers": found.layer_cosine, "total": found.total}
            self.log.write("alignment", self.step, **values, cosine=found.cosine, norm_ratio=found.norm_ratio)

    def _score(self, network: Network, split: EvaluationSplit, sequences: int) -> Scores:
        batches = evaluation_batches(self.config, self.task, split, sequences)
        return Scores(*map(float, self.evaluate(network, np.int32(batches), split=split)))

    def _save(self, state: LearnerState) -> None:
        if not self.places.leads:
            return
        self.log.sync()
        window = [row.tolist() for row in self.window]
        progressed = Progressed(self.step, self._seconds(), self.refused)._asdict() | {"window": window}
        extra = {"config": to_json(self.config), "progress": progressed}
        save(self.run.checkpoint, self.places.one(state), extra=extra)

    def _seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)
