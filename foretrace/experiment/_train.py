"""Train a configuration on its task in a run directory, from which it resumes exactly.

    config = experiment.Config(steps=1000)
    result = experiment.train(config, "runs/first")

Every step is one compiled program that draws its batch, learns and measures; nothing but four
numbers leaves it.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np

from foretrace._distributed.devices import Devices, Steps
from foretrace._learner.forgetting import BLOCK, HELD, LossWatch
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import schedule
from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._runs.checkpoint import load, read_extra, restoring, save
from foretrace._runs.directory import Run, read_config_as
from foretrace._runs.loop import Pending, Refusals, Schedule
from foretrace._runs.metrics import numbers_of
from foretrace._runs.session import RunKind, Saved, Session, session
from foretrace._types import Array
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.experiment._program import (
    At,
    align,
    empty_tally,
    evaluation_batches,
    programs,
    shared,
)
from foretrace.experiment._scores import Scores, StepMetrics, selected_by
from foretrace.tasks import EvaluationSplit, Task

KIND = RunKind(Config, may_grow=("steps",))
BEST = "best.safetensors"
"""File of the network with the best validation score, in runs that keep it."""

# Runs that follow one another on the same devices share their programs.
_devices = functools.lru_cache(maxsize=2)(Devices)

Level = tuple[
    float | None, list[float], list[float], float | None, bool, tuple[int, float, float, float]
]
"""State of a `LossWatch`."""


@dataclasses.dataclass(frozen=True)
class Progress(Saved):
    """Values of a checkpoint beside the learner's state.

    Args:
        refused: number of steps in a row that were refused.
        window: metrics of the steps since the last line of the record.
        level: state of the watch over the training loss.
        measured: whether the evaluation that is due at this step is recorded; if not, it comes
            first.
    """

    refused: int = 0
    window: tuple[StepMetrics, ...] = ()
    level: Level | None = None
    measured: bool = True


def read_config(path: str | os.PathLike[str]) -> Config:
    """Return the configuration of an experiment's run directory.

    Raises:
        RunError: there is none, or it cannot be read.
    """
    return read_config_as(path, Config)


class _Best(NamedTuple):
    """Network with the best validation score so far, the score, and the step of both."""

    network: Network
    score: float
    step: int


class Result(NamedTuple):
    """Result of a run.

    Args:
        run: directory of the run.
        step: number of steps done.
        scores: scores of the final evaluation; None if the run was stopped before its end.
        seconds: seconds of training and evaluation, over all parts of the run.
    """

    run: Run
    step: int
    scores: Scores | None
    seconds: float


def train(
    config: Config,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    show_progress: bool = True,
    devices: int | None = None,
    watch: Callable[[int, Scores], bool] | None = None,
) -> Result:
    """Train to the last step, or to Ctrl-C or SIGTERM, which save the state for `resume`.

    On the same machine with the same packages, a resumed run ends with the same parameters and the
    same record, bit for bit, as a run that never stopped. Only `seconds` in the record differs. On
    another number of devices or processes it ends with the same but for rounding.

    A run may be resumed with more steps than before. With a constant learning rate it then ends as
    if it had had them from the beginning. A rate that falls to zero at the last step rises again,
    since the last step is another one.

    In several processes (`jax.distributed`) every process calls this in the same way; the first one
    writes.

    Args:
        config: configuration of the run.
        run_dir: new or empty directory; with `resume`, the directory of the run. Processes share
            it.
        resume: continue the run that is there.
        show_progress: show step, loss, accuracy, speed and time left on standard error.
        devices: number of devices that share each batch. Default: as many as divide the batch size.
        watch: function of the step and the scores of every evaluation on validation sequences,
            called in all processes. If it returns True, the run ends there as if stopped.

    Raises:
        ValueError: a configuration that makes no network, devices that cannot share the batch, or
            (`RunError`) a directory that cannot be used: nothing is written then.
        LockedError: another process trains there.
        CheckpointError: the checkpoint to go on from is damaged.
        DivergenceError: nothing but NaN or infinity for a while.
        OSError: a file could not be written in the middle of the run.
    """
    hardware = _devices(config.batch_size, devices)
    writes = hardware.is_main_process
    with session(KIND, config, run_dir, resume, show_progress, writes=writes) as run:
        task, learner = build(config, mesh=hardware.mesh)
        saved = run.read_saved(Progress)
        state = _state(run, learner, saved)
        hardware.check_agreed("the step to go on from", saved.step)
        if (done := run.result(saved)) is not None:
            *scores, seconds = numbers_of(run.run.metrics, done, (*Scores._fields, "seconds"))
            return Result(run.run, config.steps, Scores(*scores), seconds)
        run.begin(saved)
        if config.steps > run.before.steps:
            run.show.say(_extension(run.before, config, max(saved.step, 0)))
        if hardware.num_unused:
            shared = f"{hardware.number} devices share a batch of {config.batch_size}"
            run.show.say(f"{shared}; {hardware.num_unused} stay idle")
        return _Training(run, task, learner, saved, hardware, watch).run_from(state)


def _state(run: Session[Config], learner: Learner, saved: Progress) -> LearnerState:
    """Return the state to go on from: the checkpoint's, or the one before the first step."""
    if saved.step < 0:
        return learner.init(jax.random.fold_in(jax.random.key(run.config.seed), 1))
    return load(run.run.checkpoint, learner)


def _extension(before: Config, config: Config, step: int) -> str:
    """Return what more steps mean for a run that has done some."""
    text = f"the run is extended from {before.steps} to {config.steps} steps"
    rates = [
        float(
            schedule(
                settings["learning_rate"],
                steps=settings["steps"],
                warmup_steps=settings["warmup_steps"],
            )(step)
        )
        for settings in (each.optimizer.settings(each.steps) for each in (before, config))
    ]
    if config.optimizer.schedule == "constant":
        return f"{text}; it ends as if it had had them from the beginning"
    return (
        f"{text}; its learning rate falls to zero at the last step: the rate at step {step} was "
        f"{rates[0]:.2g} and is now {rates[1]:.2g}, so that it does not end as a run of "
        f"{config.steps} steps; a run with --optimizer.schedule constant would"
    )


class _Training:
    """The loop, and the work that is due at each step."""

    def __init__(
        self,
        run: Session[Config],
        task: Task,
        learner: Learner,
        saved: Progress,
        devices: Devices,
        watch: Callable[[int, Scores], bool] | None,
    ):
        self.session, self.run, self.config, self.clock = run, run.run, run.config, run.clock
        self.log, self.show, self.stop = run.log, run.show, run.stop
        self.task, self.learner, self.devices = task, learner, devices
        self.fresh, self.step = saved.step < 0, max(saved.step, 0)
        self.window, self.measured = list(saved.window), saved.measured
        self.watch, self.enough = watch, False
        config = self.config
        self.schedule, self.pending = Schedule(config.steps), Pending[Array]()
        advice = (
            f"try a smaller optimizer.learning_rate (now {config.optimizer.learning_rate}) or a "
            f"smaller optimizer.clip (now {config.optimizer.clip})"
        )
        self.refusals = Refusals(advice, saved.refused)
        self.level = LossWatch()
        if saved.level is not None:
            self.level.restore(list(saved.level))
        compiled = programs(shared(config), devices)
        self.learn, self.add_batch = Steps(devices, compiled.learn, self.stop), compiled.add_batch
        self.best = self._read_best() if config.keep_best else None

    def run_from(self, state: LearnerState) -> Result:
        """Train from the present step on."""
        state = self.devices.replicate(state)
        self.show.compiling()
        if self.fresh:
            if self.learn.stopped or not self._measure(state.network):
                return Result(self.run, 0, None, self.clock.seconds)
        elif not self.measured:
            self.measured = self._measure(state.network)
        while self.step < self.config.steps and not (self.learn.stopped or self.enough):
            at = At(np.int32(self.step), self.config.seed, self.config.optimizer.learning_rate)
            state, row = self.learn(state, at)
            self.step += 1
            self.pending.add(self.step, row)
            due = self._anything_due()
            self._read_metrics(all=due)
            if due:
                self._do_what_is_due(state)
        self._read_metrics(all=True)
        if self.step < self.config.steps or not self.measured:
            self._save(state)
            return Result(self.run, self.step, None, self.clock.seconds)
        return self._finish(state)

    def _finish(self, state: LearnerState) -> Result:
        network = state.network if self.best is None else self.best.network
        scores = self._score(network, "test", self.config.final_sequences)
        # The checkpoint of the last step is written; the evaluation is done again.
        if scores is None:
            return Result(self.run, self.step, None, self.clock.seconds)
        seconds = self.clock.seconds
        chosen = {} if self.best is None else {"best_step": self.best.step}
        self.log.write("result", self.step, **scores._asdict(), seconds=seconds, **chosen)
        return Result(self.run, self.step, scores, seconds)

    def _read_best(self) -> _Best | None:
        """Return the best network of an earlier part of the run."""
        path = self.run.path / BEST
        if not path.exists():
            return None
        network = load(path, SimpleNamespace(init=lambda: self.learner.network))
        with restoring(path):
            score, step = numbers_of(path, read_extra(path), ("score", "step"))
        return _Best(self.devices.replicate(network), score, int(step))

    def _keep_best(self, network: Network, scores: Scores) -> None:
        """Keep a network that is better on validation than all before, in memory and in a file."""
        score = selected_by(self.task, scores)
        # The file may be of a later step than the checkpoint; then that step comes again.
        if self.step and score > (-np.inf if self.best is None else self.best.score):
            self.best = _Best(self.devices.replicate(network), score, self.step)
            if self.devices.is_main_process:
                extra = {"score": score, "step": self.step}
                save(self.run.path / BEST, self.devices.unreplicate(network), extra=extra)

    def _due(self, every: int | None) -> bool:
        return self.schedule.is_due(self.step, every)

    def _anything_due(self) -> bool:
        config = self.config
        intervals = (
            config.log_every,
            config.evaluate_every,
            config.align_every,
            config.checkpoint_every,
        )
        return any(map(self._due, intervals))

    def _read_metrics(self, *, all: bool) -> None:
        for step, row in self.pending.take(all=all):
            metrics = StepMetrics(*self.learn.look(row).tolist())
            self.window.append(metrics)
            self.refusals.see(bool(metrics.accepted), f"step {step}")
            self.show.update(step, metrics.loss, metrics.accuracy)
            if (lost := self.level.add(metrics.loss)) is not None:
                self.show.say(
                    f"warning: step {step}: the training loss was {lost[0]:.3g} in the last "
                    f"{BLOCK * HELD:,} steps, and at most {lost[1]:.3g} for as long before; try a "
                    "smaller learning rate"
                )

    def _do_what_is_due(self, state: LearnerState) -> None:
        """Write all that is due; the checkpoint last, so that it is never behind the record."""
        if self._due(self.config.log_every):
            self._log_window()
        self.measured = self._measure(state.network)
        if self._due(self.config.checkpoint_every):
            self._save(state)

    def _log_window(self) -> None:
        accepted = [metrics for metrics in self.window if metrics.accepted]
        names = StepMetrics._fields
        rows = np.array(accepted or [StepMetrics(*[np.nan] * len(names))], np.float64)
        values = dict(zip(names, rows.mean(axis=0).tolist(), strict=True))
        del values["accepted"]
        values["refused"] = len(self.window) - len(accepted)
        self.log.write("train", self.step, **values, seconds=self.clock.seconds)
        self.window.clear()

    def _measure(self, network: Network) -> bool:
        """Write the measurements that are due; return False if a stop request interrupts them."""
        if self._due(self.config.evaluate_every):
            scores = self._score(network, "validation", self.config.validation_sequences)
            if scores is None:
                return False
            self.log.write("validation", self.step, **scores._asdict(), seconds=self.clock.seconds)
            if self.config.keep_best:
                self._keep_best(network, scores)
            self.enough = self.watch is not None and self.watch(self.step, scores)
        if self._due(self.config.align_every) and self.devices.is_main_process:
            found = align(
                self.config, self.task, self.devices.unreplicate(network), self.learner.rule
            )
            values = {"layers": found.layer_cosine, "total": found.total}
            self.log.write(
                "alignment", self.step, **values, cosine=found.cosine, norm_ratio=found.norm_ratio
            )
        return True

    def _score(self, network: Network, split: EvaluationSplit, sequences: int) -> Scores | None:
        """Return the scores on a split; None if a stop request came first.

        Several processes evaluate to the end, because they would not agree on the batch to stop
        after.
        """
        total = empty_tally()
        for index in range(evaluation_batches(self.config, self.task, split, sequences)):
            if self.stop.asked and not self.devices.several:
                return None
            # Waiting for each batch keeps a device from being asked for all of them at once.
            total = jax.block_until_ready(
                self.add_batch(network, total, np.int32(index), self.config.seed, split=split)
            )
        return Scores(*map(float, total.scores()))

    def _save(self, state: LearnerState) -> None:
        if not self.devices.is_main_process:
            return
        self.session.save(
            self.devices.unreplicate(state),
            self.step,
            refused=self.refusals.in_a_row,
            window=self.window,
            level=self.level.to_json(),
            measured=self.measured,
        )
