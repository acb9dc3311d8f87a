"""A run of `foretrace stream`: rows in, scores and checkpoints out, resumable exactly, in constant memory."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.delayed_labels import LabelledRow
from foretrace._rows.scores import Scores, score_class, score_numbers
from foretrace._rows.source import SYMBOL, Position, Row
from foretrace._runs.checkpoint import load, read_extra, save
from foretrace._runs.config_json import to_json
from foretrace._runs.directory import Run, changed_packages, create, reopen
from foretrace._runs.divergence import IN_FLIGHT, REFUSED_IN_A_ROW, DivergenceError
from foretrace._runs.files import locked
from foretrace._runs.machine import resident_mib
from foretrace._runs.metrics import MetricsLog
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Interrupted, Stop
from foretrace._runs.tensorboard import Board
from foretrace.stream._config import StreamConfig
from foretrace.stream._intake import Intake
from foretrace.stream._learner import Outcome, StreamState, own
from foretrace.stream._model import Model
from foretrace.stream._monitors import Monitors
from foretrace.stream._plan import Plan, build, make_plan, open_source

Rows = Iterator[tuple[Row, Position]]


class StreamResult(NamedTuple):
    """How a run on a stream ended.

    Args:
        run: its directory.
        position: rows read.
        scores: means over all rows that were scored.
        stopped: whether it was asked to stop before the end of its rows.
    """

    run: Run
    position: Position
    scores: dict[str, float]
    stopped: bool


def follow(
    config: StreamConfig,
    run_dir: str | os.PathLike,
    *,
    resume: bool = False,
    rows: int | None = None,
    tensorboard: bool = False,
    show_progress: bool = True,
) -> StreamResult:
    """Learn from a stream until it ends, or Ctrl-C or SIGTERM; then the state is saved and `resume` goes on from it.

    A resumed run on a file ends with the same state and record, bit for bit, as one that was never stopped; only times
    and memory in the record tell them apart. On standard input it goes on with the next row that comes.

    Args:
        config: the stream and what learns.
        run_dir: a new or empty directory; with `resume`, that of the run.
        resume: go on with the run that is there.
        rows: stop after so many rows, those before the resumption among them.
        tensorboard: write the metrics for TensorBoard as well.
        show_progress: show rows, scores and speed on standard error.

    Raises:
        ValueError: a source that cannot be read (`SourceError`), settings that do not fit it, or a directory that
            cannot be used (`RunError`) or is in use (`LockedError`).
        CheckpointError: the checkpoint to go on from is damaged.
        DivergenceError: nothing but NaN or infinity for a while.
        OSError: a file could not be written in the middle of the run.
    """
    with ExitStack() as held, Stop() as stop:
        run = reopen(run_dir, config) if resume else None
        if run is not None:
            held.enter_context(locked(run.path))
        kept = None if run is None else _kept(run)
        plan, stream = _begin(config, kept, stop)
        intake = build(config, plan)
        _ = intake.learner  # says what is wrong with the settings before anything is written
        if run is None:
            run = create(run_dir, config)
            held.enter_context(locked(run.path))
        resume_at = None if not resume else -1 if kept is None else kept["position"][0]
        board = Board(run.path / "tensorboard") if tensorboard else None
        with MetricsLog(run.metrics, resume_at=resume_at) as log, ProgressBar(show_progress) as show:
            if resume and (changed := changed_packages(run.path)):
                show.say(f"the run goes on, but not bit for bit: {', '.join(changed)}")
            show.say(_what_learns(intake.model))
            result = _Following(config, plan, intake, kept, run, log, board, stop, show).follow(stream, rows)
        if board is not None:
            board.close()
        return result


def _kept(run: Run) -> dict[str, Any] | None:
    return read_extra(run.checkpoint) if run.checkpoint.exists() else None


def _begin(config: StreamConfig, kept: dict[str, Any] | None, stop: Stop) -> tuple[Plan, Rows]:
    """Return what is decided, from a checkpoint or the first rows, and the rows from there on."""
    source = open_source(config)
    if kept is not None:
        plan = Plan.from_json(kept["plan"])
        return plan, source.rows(Position(*kept["position"]), plan.names)
    stream = source.rows()
    try:
        stop.waiting = True
        first = list(islice(stream, config.look_ahead))
    except Interrupted:
        raise KeyboardInterrupt from None
    finally:
        stop.waiting = False
    return make_plan(config, source, [row for row, _ in first]), chain(first, stream)


class _Following:
    """The loop, and what is due at which row."""

    def __init__(
        self,
        config: StreamConfig,
        plan: Plan,
        intake: Intake,
        kept: dict[str, Any] | None,
        run: Run,
        log: MetricsLog,
        board: Board | None,
        stop: Stop,
        show: ProgressBar,
    ):
        self.config, self.plan, self.run, self.log = config, plan, run, log
        self.board, self.stop, self.show = board, stop, show
        self.intake, self.learner = intake, intake.learner
        self.target = SYMBOL if config.target is None else config.target
        self.score = score_class if plan.classes else score_numbers
        self.scores, self.steps, self.monitors = Scores(), Scores(), Monitors()
        self.pending: deque[tuple[Outcome, Sequence[LabelledRow | None]]] = deque()
        self.position, self.refused, self.refused_in_a_row = Position(), 0, 0
        self.began = time.monotonic()
        self.state = self._restore(kept) if kept is not None else self.learner.init()
        self.rows_at_last_log, self.time_of_last_log = self.position.row, time.monotonic()

    def follow(self, stream: Rows, rows: int | None) -> StreamResult:
        """Learn from the rows of a stream, or the first so many."""
        chunk: list[tuple[Row, Position]] = []
        while rows is None or self.position.row + len(chunk) < rows:
            item = self._next(stream)
            if item is None:
                break
            # Nothing changes before a chunk is full: a checkpoint always lies between two chunks.
            if not self.intake.fits(chunk, item[0]):
                self._learn(chunk)
                chunk = []
            chunk.append(item)
            if len(chunk) == self.intake.size:
                self._learn(chunk)
                chunk = []
        self._drain()
        self._save()
        if chunk and not self.stop.asked:
            # Behind the checkpoint: a file that has grown goes on as if its end had never been there.
            self._learn(chunk, last=True)
            self._drain()
        if not self.stop.asked:
            self._write("result", self.scores.total())
        return StreamResult(self.run, self.position, self.scores.total(), self.stop.asked)

    def _next(self, stream: Rows) -> tuple[Row, Position] | None:
        try:
            self.stop.waiting = True
            return None if self.stop.asked else next(stream, None)
        except Interrupted:
            return None
        finally:
            self.stop.waiting = False

    def _learn(self, chunk: list[tuple[Row, Position]], *, last: bool = False) -> None:
        before, self.position = self.position.row, chunk[-1][1]
        rows = [(row, row.get(self.target)) for row, _ in chunk]
        self.state, outcome, dues, inputs = self.intake.learn(self.state, rows)
        self.monitors.see(inputs)
        self.pending.append((outcome, dues))
        # Looking at an older step lets the device work on while the host reads and encodes.
        while len(self.pending) > IN_FLIGHT:
            self._look_at(*self.pending.popleft())
        if not last:
            self._do_what_is_due(before)

    def _drain(self) -> None:
        while self.pending:
            self._look_at(*self.pending.popleft())

    def _look_at(self, outcome: Outcome, dues: Sequence[LabelledRow | None]) -> None:
        # A step that was not finite is refused; what it would have predicted counts as knowing nothing.
        outputs = np.nan_to_num(np.asarray(outcome.outputs, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        loss, gradient_norm, update_norm, accepted = np.asarray(outcome.measures, np.float64).tolist()
        for due, output in zip(dues, outputs, strict=False):
            if due is not None and (found := self.score(due, output)) is not None:
                self.scores.add(found)
        if accepted:
            self.refused_in_a_row = 0
            self.steps.add({"loss": loss, "gradient_norm": gradient_norm, "update_norm": update_norm})
            return
        self.refused, self.refused_in_a_row = self.refused + 1, self.refused_in_a_row + 1
        if self.refused_in_a_row >= REFUSED_IN_A_ROW:
            raise DivergenceError(
                f"learning has diverged: loss or gradient was NaN or infinite in {self.refused_in_a_row} steps in a "
                f"row, up to row {self.position.row}; try a smaller --learning-rate (now "
                f"{self.config.learning_rate}) or a smaller --clip (now {self.config.clip})"
            )

    def _do_what_is_due(self, before: int) -> None:
        row = self.position.row
        if row // self.config.log_every > before // self.config.log_every:
            self._drain()
            self._report()
        if row // self.config.checkpoint_every > before // self.config.checkpoint_every:
            self._drain()
            self._save()

    def _report(self) -> None:
        window, now = self.scores.window(), time.monotonic()
        speed = (self.position.row - self.rows_at_last_log) / max(now - self.time_of_last_log, 1e-9)
        self.rows_at_last_log, self.time_of_last_log = self.position.row, now
        memory = resident_mib()
        steps = self.steps.window()
        network, carry = self.state.learner.network, self.intake.carry(self.state)
        health = self.monitors.measure(network, carry, steps.get("update_norm"))
        warnings = self.monitors.warnings(health)
        for line in warnings:
            self.show.say(f"warning: row {self.position.row}: {line}")
        model = self.intake.model
        measures: dict[str, Any] = {"credit_depth": model.credit_depth, "train_encoder": model.train_encoder}
        measures |= {**steps, **health, "rows_per_second": round(speed, 1), "resident_mib": memory}
        measures |= {"warnings": warnings} if warnings else {}
        self._write("stream", window, total=self.scores.total(), **measures)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in window.items())
        self.show.tick(f"row {self.position.row}: {shown}; {speed:.0f} rows/s, {memory:.0f} MiB")

    def _write(self, kind: str, scores: dict[str, float], **more: Any) -> None:
        left_out = {**self.intake.encoder.counts, **self.intake.target.counts, "bad rows": self.position.bad}
        left_out = {name: count for name, count in left_out.items() if count}
        values = {**scores, **more, "scored": self.scores.rows, "refused": self.refused, "counts": left_out}
        values |= self.intake.counted()
        self.log.write(kind, self.position.row, **values, seconds=self._seconds())
        if self.board is not None:
            self.board.write(self.position.row, values)

    def _save(self) -> None:
        self.log.sync()
        extra = {
            "config": to_json(self.config),
            "plan": self.plan.to_json(),
            "position": list(self.position),
            **self.intake.to_json(),
            "scores": self.scores.to_json(),
            "steps": self.steps.to_json(),
            "monitors": self.monitors.to_json(),
            "refused": [self.refused, self.refused_in_a_row],
            "seconds": self._seconds(),
        }
        save(self.run.checkpoint, self.state, extra=extra)

    def _restore(self, kept: dict[str, Any]) -> StreamState:
        self.position = Position(*kept["position"])
        self.intake.restore(kept)
        self.scores.restore(kept["scores"])
        self.steps.restore(kept["steps"])
        self.monitors.restore(kept["monitors"])
        self.refused, self.refused_in_a_row = kept["refused"]
        self.began -= kept["seconds"]
        return own(load(self.run.checkpoint, self.learner))

    def _seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


def _what_learns(model: Model) -> str:
    held = "" if model.train_encoder else "; encoder and norms in front of the recurrences are held"
    return f"rule {model.rule}, credit depth {min(model.credit_depth, model.depth)} of {model.depth}{held}"
