"""Training of a configuration in a run directory, from which it can be resumed exactly.

    config = experiment.Config(steps=1000)
    result = experiment.train(config, "runs/first")

Every step is one compiled program that draws its batch, learns and measures. Only four numbers are
read from the device.
"""

import dataclasses
import functools
import os
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._distributed.devices import Devices, Steps
from foretrace._learner.forgetting import BLOCK, HELD, LossWatch
from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._runs.checkpoint import load, read_extra, restoring, save
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import read_config_as
from foretrace._runs.follow import IN_FLIGHT, Program, Result, Schedule, Session, follow
from foretrace._runs.saved import RunKind, Saved
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
from foretrace.tasks import EvaluationSplit

KIND = RunKind(Config, may_grow=("steps",))
BEST = "best.safetensors"
"""File with the network of the best validation score, in runs with `keep_best`."""

# Consecutive runs on the same devices share their programs.
_devices = functools.lru_cache(maxsize=2)(Devices)

Level = tuple[
    float | None, list[float], list[float], float | None, bool, tuple[int, float, float, float]
]
"""State of a `LossWatch`."""


@dataclasses.dataclass(frozen=True)
class Progress(Saved):
    """Values that a checkpoint has in addition to the learner's state.

    Args:
        window: metrics of the steps since the last line of the record.
        level: state of the watch over the training loss.
        measured: whether the measurements that are due at this step are in the record. If not, they
            are made first.
    """

    window: tuple[StepMetrics, ...] = ()
    level: Level | None = None
    measured: bool = False


def read_config(path: str | os.PathLike[str]) -> Config:
    """Return the configuration of an experiment's run directory.

    Raises:
        RunError: there is no configuration, or it cannot be read.
    """
    return read_config_as(path, Config)


class _Best(NamedTuple):
    """The network with the best validation score so far, with its score and step."""

    network: Network
    score: float
    step: int


def train(
    config: Config,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    show_progress: bool = True,
    devices: int | None = None,
) -> Result:
    """Train to the last step, or until Ctrl-C or SIGTERM, which save the state for `resume`.

    On the same machine with the same packages, a resumed run ends with the same parameters and the
    same record, bit for bit, as a run that was not stopped. Only `seconds` in the record differs.
    With another number of devices or processes, the results are equal up to rounding.

    A run may be resumed with more steps than before. If the learning rate is constant, the run then
    ends as if it had had these steps from the beginning. A rate that falls to zero at the last step
    rises again, because the last step is now later.

    If there are several processes (`jax.distributed`), every process makes the same call, and the
    first process writes the files.

    Args:
        config: configuration of the run.
        run_dir: new or empty directory, or with `resume` the directory of the run. All processes
            use the same directory.
        resume: whether to continue the run in the directory.
        show_progress: whether to show step, loss, accuracy, speed and remaining time on standard
            error.
        devices: number of devices over which each batch is sharded. Default: the largest number
            that divides the batch size.

    Raises:
        ValueError: the configuration gives no valid network, the batch cannot be sharded over the
            devices, or (`RunError`) the directory cannot be used. Nothing is written then.
        LockedError: another process trains in the directory.
        CheckpointError: the checkpoint is damaged.
        DivergenceError: loss or gradient was NaN or infinite in many consecutive steps.
        OSError: a file could not be written during the run.
    """
    hardware = _devices(config.batch_size, devices)
    return follow(
        KIND,
        config,
        run_dir,
        lambda session: _Training(session, hardware),
        resume=resume,
        show_progress=show_progress,
        writes=hardware.is_main_process,
    )


def _extension(before: Config, config: Config) -> str:
    """Return a sentence about the effect of extending a run."""
    text = f"the run is extended from {before.steps} to {config.steps} steps"
    if config.optimizer.schedule == "constant":
        return f"{text}; it ends as if it had had them from the beginning"
    return (
        f"{text}; its learning rate falls to zero at the last step, so that it does not end as a "
        f"run of {config.steps} steps; a run with --optimizer.schedule constant would"
    )


class _Training(Program[LearnerState]):
    """The training steps, and the work that is due at each of them."""

    saved = Progress
    is_whole = False  # the device may still compute metrics of the latest steps

    def __init__(self, session: Session, devices: Devices):
        super().__init__(session)
        self.config, self.devices, config = session.config, devices, session.config
        self.task, self.learner = build(config, mesh=devices.mesh)
        self.schedule = Schedule(config.steps)
        self.pending = deque[tuple[int, Array]]()  # metrics that the device may still compute
        learn, self.draw, self.add_batch = programs(shared(config), devices)
        self.learn = Steps(devices, learn, session.stop)
        self.level = LossWatch()

    def init(self) -> LearnerState:
        """Return the state before the first step."""
        return self.learner.init(jax.random.fold_in(jax.random.key(self.config.seed), 1))

    def restore(self, saved: Progress) -> None:
        """Restore the values of a checkpoint."""
        self.devices.check_agreed("the step to go on from", saved.step)
        self.window, self.measured = [*saved.window], saved.measured
        if saved.level is not None:
            self.level.restore(list(saved.level))
        self.best = self._read_best() if self.config.keep_best else None

    def begun(self) -> None:
        """Copy the state to the devices, and report unusual properties of the run."""
        config, before, unused = self.config, self.session.before, self.devices.num_unused
        if config.steps > before.steps:
            self.session.show.say(_extension(before, config))
        if unused:
            shared = f"{self.devices.number} devices share a batch of {config.batch_size}"
            self.session.show.say(f"{shared}; {unused} stay idle")
        self.state = self.devices.replicate(self.state)

    def kept(self) -> tuple[LearnerState, dict[str, Any]]:
        """Return the values to save."""
        return self.devices.unreplicate(self.state), {
            "window": self.window,
            "level": self.level.to_json(),
            "measured": self.measured,
        }

    @property
    def _advice(self) -> str:
        settings = self.config.optimizer
        return (
            f"try a smaller optimizer.learning_rate (now {settings.learning_rate}) or a smaller "
            f"optimizer.clip (now {settings.clip})"
        )

    @property
    def ended(self) -> bool:
        """Whether the last step is finished and measured."""
        return super().ended and self.measured

    @property
    def stopped(self) -> bool:
        """Whether to stop before the next block."""
        return self.learn.stopped

    def block(self) -> None:
        """Learn up to the next step at which something is due, and do what is due."""
        if not self._is_measured() or self.ended:
            return
        self.session.show.compiling()
        config, step = self.config, self.step
        every = config.log_every, config.evaluate_every, config.align_every, config.checkpoint_every
        until = step + self.schedule.steps_until_due(step, *every)
        while self.step < until and not self.learn.stopped:
            at = At(np.int32(self.step), config.seed, config.optimizer.learning_rate)
            self.state, row = self.learn(self.state, at)
            self.step += 1
            self.pending.append((self.step, row))
            self._read_metrics(all=self.step == until)
        self._read_metrics(all=True)
        self.measured = self.step < until
        if self.step == until and self.schedule.is_due(until, config.log_every):
            self._log_window()
        self._is_measured()

    def result(self) -> dict[str, Any] | None:
        """Return the scores on the test split; None if a stop request came first."""
        network = self.state.network if self.best is None else self.best.network
        scores = self._score(network, "test", self.config.final_sequences)
        chosen = {} if self.best is None else {"best_step": self.best.step}
        return None if scores is None else scores._asdict() | chosen

    def outcome(self, result: Result) -> Result:
        """Return the result with its scores as `Scores`."""
        if result.scores is None:
            return result
        with restoring(result.run.metrics):
            scores = Scores(*(result.scores[name] for name in Scores._fields))
        return result._replace(scores=scores)

    def _read_best(self) -> _Best | None:
        """Return the best network of an earlier part of the run, or None."""
        path = self.session.run.path / BEST
        if not path.exists():
            return None
        network = load(path, SimpleNamespace(init=lambda: self.learner.network))
        with restoring(path):
            found = from_json(dict[str, float], read_extra(path))
            return _Best(self.devices.replicate(network), found["score"], int(found["step"]))

    def _keep_best(self, network: Network, step: int, scores: Scores) -> None:
        """Keep a network with the best validation score so far, in memory and in a file."""
        score = selected_by(self.task, scores)
        # The file may belong to a later step than the checkpoint, which is then repeated.
        if step and score > (-np.inf if self.best is None else self.best.score):
            self.best = _Best(self.devices.replicate(network), score, step)
            if self.session.writes:
                extra = {"score": score, "step": step}
                save(self.session.run.path / BEST, self.devices.unreplicate(network), extra=extra)

    def _read_metrics(self, *, all: bool) -> None:
        # While an older row is read, recorded and shown, the device computes the latest rows.
        while len(self.pending) > (0 if all else IN_FLIGHT):
            step, row = self.pending.popleft()
            metrics = StepMetrics(*self.learn.look(row).tolist())
            self.window.append(metrics)
            self.refused = 0 if metrics.accepted else self.refused + 1
            self.check_refused(self.refused, step, self._advice)
            said = f"loss {metrics.loss:.4f}, accuracy {metrics.accuracy:.2%}"
            self.session.show.reach(step, said)
            if (lost := self.level.add(metrics.loss)) is not None:
                self.session.show.say(
                    f"warning: step {step}: the training loss was {lost[0]:.3g} in the last "
                    f"{BLOCK * HELD:,} steps, and at most {lost[1]:.3g} for as long before; try a "
                    "smaller learning rate"
                )

    def _log_window(self) -> None:
        accepted = [metrics for metrics in self.window if metrics.accepted]
        rows = np.array(accepted or [StepMetrics(np.nan, np.nan, np.nan, np.nan)])
        values = StepMetrics(*rows.mean(axis=0).tolist())._asdict()
        del values["accepted"]
        self.record("train", **values, refused=len(self.window) - len(accepted))
        self.window.clear()

    def _is_measured(self) -> bool:
        """Make the measurements that are due; return False after a stop request."""
        if not self.measured and not self.learn.stopped:
            self.measured = self._measure(self.state.network, self.step)
        return self.measured

    def _measure(self, network: Network, step: int) -> bool:
        config = self.config
        if self.schedule.is_due(step, config.evaluate_every):
            scores = self._score(network, "validation", config.validation_sequences)
            if scores is None:
                return False
            self.record("validation", **scores._asdict())
            if config.keep_best:
                self._keep_best(network, step, scores)
        if self.schedule.is_due(step, config.align_every) and self.session.writes:
            found = align(config, self.devices.unreplicate(network), self.learner.rule)
            values = {"layers": found.layer_cosine, "total": found.total}
            values |= {"cosine": found.cosine, "norm_ratio": found.norm_ratio}
            self.record("alignment", **values)
        return True

    def _score(self, network: Network, split: EvaluationSplit, sequences: int) -> Scores | None:
        """Return the scores on a split; None if a stop request came first.

        Several processes always evaluate the whole split, because they would not agree on the batch
        after which to stop.
        """
        total = empty_tally()
        for index in range(evaluation_batches(self.config, split, sequences)):
            if self.session.stop.asked and not self.devices.several:
                return None
            # Wait for each batch, so that the device does not receive all batches at once.
            batch = self.draw(split, self.config.seed, np.int32(index))
            total = jax.block_until_ready(self.add_batch(network, total, batch))
        return Scores(*map(float, total.scores()))
