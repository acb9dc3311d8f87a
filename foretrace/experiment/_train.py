"""An experiment: a configuration trained on its task, in a run directory that it can be resumed from exactly.

    config = experiment.Config(steps=1000)
    result = experiment.train(config, "runs/first")

Every step is one compiled program that draws its batch, learns and measures; nothing but four numbers leaves it.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._distributed.devices import Devices, Steps
from foretrace._learner.forgetting import BLOCK, HELD, LossWatch
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import schedule
from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._runs.checkpoint import CheckpointError, load, read_extra_as, save
from foretrace._runs.config_json import to_json
from foretrace._runs.directory import (
    Run,
    changed_packages,
    check_free,
    check_unchanged,
    create,
    read_config_as,
    record_config,
    reopen,
)
from foretrace._runs.files import locked
from foretrace._runs.loop import Clock, Pending, Refusals, Schedule
from foretrace._runs.metrics import MetricsLog, NullMetricsLog, RecordMark, numbers_of, read_metrics
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop
from foretrace._types import Array
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.experiment._program import align, empty_tally, evaluation_batches, learn, tally_batch
from foretrace.experiment._scores import Scores, StepMetrics
from foretrace.tasks import EvaluationSplit, Task

MAY_GROW = ("steps",)
"""Counts that a resumed run may raise."""


Level = tuple[float | None, list[float], list[float], float | None, bool, tuple[int, float, float, float]]
"""State of a `LossWatch`."""


class Progress(NamedTuple):
    """Position of a run, which its checkpoint holds beside the learner's state.

    Args:
        step: number of steps done; -1 before anything is recorded.
        seconds: seconds of training and evaluation so far.
        refused: number of steps in a row that were refused.
        window: metrics of the steps since the last line of the record.
        record: size and digest of the record; None before the first checkpoint.
        level: state of the watch over the training loss; None before the first checkpoint.
        measured: whether the evaluation that is due at this step is recorded; if not, it comes first.
    """

    step: int = -1
    seconds: float = 0.0
    refused: int = 0
    window: tuple[StepMetrics, ...] = ()
    record: RecordMark | None = None
    level: Level | None = None
    measured: bool = True


class Saved(NamedTuple):
    """What a checkpoint holds beside the learner's state."""

    config: dict[str, Any]
    progress: Progress


def begin(run: Run, config: Config, learner: Learner, resume: bool) -> tuple[LearnerState, Progress]:
    """Return where a run stands: at its checkpoint if it goes on and has one, else at its beginning."""
    if not resume or not run.checkpoint.exists():
        return learner.init(jax.random.fold_in(jax.random.key(config.seed), 1)), Progress()
    saved = read_extra_as(run.checkpoint, Saved)
    check_unchanged(run, config, saved.config, may_change=MAY_GROW)
    if not 0 <= saved.progress.step <= config.steps:
        raise CheckpointError(f"{run.checkpoint} is at step {saved.progress.step}, expected 0 to {config.steps}")
    return load(run.checkpoint, learner), saved.progress


def read_config(path: str | os.PathLike[str]) -> Config:
    """Return the configuration of an experiment's run directory.

    Raises:
        RunError: there is none, or it cannot be read.
    """
    return read_config_as(path, Config)


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
    """Train to the last step, or until Ctrl-C or SIGTERM; then the state is saved and `resume` goes on from it.

    A resumed run ends with the same parameters and the same record, bit for bit, as one that was never stopped, on
    the same machine with the same packages; only `seconds` in the record tells them apart. On another number of
    devices or processes it ends with the same but for rounding.

    A run may be resumed with more steps than before. With a constant learning rate it then ends as if it had had them
    from the beginning. A rate that falls to zero at the last step rises again, since the last step is another one.

    In several processes (`jax.distributed`) every process calls this in the same way; the first one writes.

    Args:
        config: configuration of the run.
        run_dir: new or empty directory; with `resume`, the directory of the run. Processes share it.
        resume: continue the run that is there.
        show_progress: show step, loss, accuracy, speed and time left on standard error.
        devices: number of devices that share each batch; default: as many as divide the batch size.
        watch: function of the step and the scores of every evaluation on validation sequences, called in all
            processes. If it returns True, the run ends there as if stopped.

    Raises:
        ValueError: a configuration that makes no network, devices that cannot share the batch, or (`RunError`) a
            directory that cannot be used: nothing is written then.
        LockedError: another process trains there.
        CheckpointError: the checkpoint to go on from is damaged.
        DivergenceError: nothing but NaN or infinity for a while.
        OSError: a file could not be written in the middle of the run.
    """
    # From here on, for an interrupt while JAX compiles may be lost, or crash the process at its end.
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        hardware = Devices(config.batch_size, devices)
        run, before = Run(Path(run_dir)), config
        if hardware.is_main_process:  # before the data are read, which may take long
            before = _recorded(run, config, resume)
        task, learner = build(config, mesh=hardware.mesh)
        if hardware.is_main_process:
            if not resume:
                create(run_dir, config)
            # Before the checkpoint is read, which another process may be about to replace.
            stack.enter_context(locked(run.path))
        state, progressed = begin(run, config, learner, resume)
        hardware.check_agreed("the step to go on from", progressed.step)
        done = _finished(run, config.steps, progressed)
        if done is not None:
            return done
        log: MetricsLog = NullMetricsLog()
        show = ProgressBar(False)
        if hardware.is_main_process:
            log = stack.enter_context(
                MetricsLog(run.metrics, resume_at=progressed.step if resume else None, mark=progressed.record)
            )
            show = stack.enter_context(ProgressBar(show_progress, config.steps))
            if config.steps > before.steps:
                record_config(run, config)
                show.say(_extension(before, config, max(progressed.step, 0)))
        if log.difference is not None:
            show.say(f"warning: {run.metrics} {log.difference}; the run goes on, its report lacks these lines")
        if resume and (changed := changed_packages(run.path)):
            show.say(f"the run goes on, but not bit for bit: {', '.join(changed)}")
        if hardware.num_unused:
            show.say(f"{hardware.number} devices share a batch of {config.batch_size}; {hardware.num_unused} stay idle")
        return _Training(config, task, learner, run, log, stop, show, progressed, hardware, watch).run_from(state)


def _recorded(run: Run, config: Config, resume: bool) -> Config:
    """Return the configuration that a run directory holds, or is going to hold if the run is new.

    Raises:
        RunError: the directory cannot be used.
    """
    if not resume:
        check_free(run.path)
        return config
    reopen(run.path, config, may_grow=MAY_GROW)
    return read_config_as(run.path, Config)


def _extension(before: Config, config: Config, step: int) -> str:
    """Return what more steps mean for a run that has done some."""
    text = f"the run is extended from {before.steps} to {config.steps} steps"
    rates = [
        float(schedule(settings["learning_rate"], steps=settings["steps"], warmup_steps=settings["warmup_steps"])(step))
        for settings in (each.optimizer.settings(each.steps) for each in (before, config))
    ]
    if config.optimizer.schedule == "constant":
        return f"{text}; it ends as if it had had them from the beginning"
    return (
        f"{text}; its learning rate falls to zero at the last step: the rate at step {step} was {rates[0]:.2g} and is "
        f"now {rates[1]:.2g}, so that it does not end as a run of {config.steps} steps; a run with "
        "--optimizer.schedule constant would"
    )


def _finished(run: Run, steps: int, progressed: Progress) -> Result | None:
    """Return the result of a run that has one already, at its last step."""
    if progressed.step < 0 or not run.metrics.exists():
        return None
    for record in read_metrics(run.metrics):
        if record["kind"] == "result" and record["step"] == steps:
            *scores, seconds = numbers_of(run.metrics, record, (*Scores._fields, "seconds"))
            return Result(run, steps, Scores(*scores), seconds)
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
        progressed: Progress,
        devices: Devices,
        watch: Callable[[int, Scores], bool] | None,
    ):
        self.config, self.task, self.learner, self.devices = config, task, learner, devices
        self.run, self.log, self.show = run, log, show
        self.fresh, self.step = progressed.step < 0, max(progressed.step, 0)
        self.window = list(progressed.window)
        self.watch, self.enough = watch, False
        self.stop, self.measured = stop, progressed.measured
        self.schedule, self.pending, self.clock = Schedule(config.steps), Pending[Array](), Clock(progressed.seconds)
        advice = (
            f"try a smaller optimizer.learning_rate (now {config.optimizer.learning_rate}) or a smaller optimizer.clip "
            f"(now {config.optimizer.clip})"
        )
        self.refusals = Refusals(advice, progressed.refused)
        self.level = LossWatch()
        if progressed.level is not None:
            self.level.restore(list(progressed.level))
        given: dict[str, Any] = {"seed": config.seed, "shard": devices.shard}
        self.learn = Steps(devices, partial(learn, config, task, learner, **given), stop)
        self.add_batch = devices.compile(partial(tally_batch, config, task, **given), static_argnames="split")

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
            state, row = self.learn(state, np.int32(self.step))
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
        scores = self._score(state.network, "test", self.config.final_sequences)
        if scores is None:  # the checkpoint of the last step is written; the evaluation is done again
            return Result(self.run, self.step, None, self.clock.seconds)
        seconds = self.clock.seconds
        self.log.write("result", self.step, **scores._asdict(), seconds=seconds)
        return Result(self.run, self.step, scores, seconds)

    def _due(self, every: int | None) -> bool:
        return self.schedule.is_due(self.step, every)

    def _anything_due(self) -> bool:
        config = self.config
        intervals = (config.log_every, config.evaluate_every, config.align_every, config.checkpoint_every)
        return any(map(self._due, intervals))

    def _read_metrics(self, *, all: bool) -> None:
        for step, row in self.pending.take(all=all):
            metrics = StepMetrics(*self.learn.look(row).tolist())
            self.window.append(metrics)
            self.refusals.see(bool(metrics.accepted), f"step {step}")
            self.show.update(step, metrics.loss, metrics.accuracy)
            if (lost := self.level.add(metrics.loss)) is not None:
                self.show.say(
                    f"warning: step {step}: the training loss was {lost[0]:.3g} in the last {BLOCK * HELD:,} steps, "
                    f"and at most {lost[1]:.3g} for as long before; try a smaller learning rate"
                )

    def _do_what_is_due(self, state: LearnerState) -> None:
        """Write what is due; the checkpoint last, so that it never knows less than the record."""
        if self._due(self.config.log_every):
            self._log_window()
        self.measured = self._measure(state.network)
        if self._due(self.config.checkpoint_every):
            self._save(state)

    def _log_window(self) -> None:
        accepted = [metrics for metrics in self.window if metrics.accepted]
        rows = np.asarray(accepted, np.float64) if accepted else np.full((1, 4), np.nan)
        mean = StepMetrics(*rows.mean(axis=0).tolist())
        values = {"loss": mean.loss, "accuracy": mean.accuracy, "gradient_norm": mean.gradient_norm}
        values["refused"] = len(self.window) - len(accepted)
        self.log.write("train", self.step, **values, seconds=self.clock.seconds)
        self.window.clear()

    def _measure(self, network: Network) -> bool:
        """Write the measurements that are due; return False if a stop request came before they were complete."""
        if self._due(self.config.evaluate_every):
            scores = self._score(network, "validation", self.config.validation_sequences)
            if scores is None:
                return False
            self.log.write("validation", self.step, **scores._asdict(), seconds=self.clock.seconds)
            self.enough = self.watch is not None and self.watch(self.step, scores)
        if self._due(self.config.align_every) and self.devices.is_main_process:
            found = align(self.config, self.task, self.devices.unreplicate(network), self.learner.rule)
            values = {"layers": found.layer_cosine, "total": found.total}
            self.log.write("alignment", self.step, **values, cosine=found.cosine, norm_ratio=found.norm_ratio)
        return True

    def _score(self, network: Network, split: EvaluationSplit, sequences: int) -> Scores | None:
        """Return the scores on a split; None if a stop request came first.

        Several processes evaluate to the end, because they would not agree on the batch to stop after.
        """
        total = empty_tally()
        for index in range(evaluation_batches(self.config, self.task, split, sequences)):
            if self.stop.asked and not self.devices.several:
                return None
            # Waiting for each batch keeps a device from being asked for all of them at once.
            total = jax.block_until_ready(self.add_batch(network, total, np.int32(index), split=split))
        return Scores(*map(float, total.scores()))

    def _save(self, state: LearnerState) -> None:
        if not self.devices.is_main_process:
            return
        self.log.sync()
        window, record = tuple(self.window), self.log.mark()
        level: Any = self.level.to_json()
        progressed = Progress(
            self.step, self.clock.seconds, self.refusals.in_a_row, window, record, level, self.measured
        )
        extra = {"config": to_json(self.config), "progress": progressed._asdict()}
        save(self.run.checkpoint, self.devices.unreplicate(state), extra=extra)
