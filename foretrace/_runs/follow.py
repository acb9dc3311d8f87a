"""The course of a run: open, load, run block by block, save, stop, and record the result."""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from foretrace._runs.checkpoint import load, restoring, save
from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import (
    Run,
    changed_packages,
    check_free,
    create,
    record_config,
    reopen,
)
from foretrace._runs.files import locked
from foretrace._runs.machine import release_unused
from foretrace._runs.metrics import MetricsLog
from foretrace._runs.progress import ProgressBar
from foretrace._runs.saved import RunKind, Saved, find_result, read_saved, steps_of
from foretrace._runs.signals import Stop
from foretrace._runs.tensorboard import Board

State = TypeVar("State")

REFUSED_IN_A_ROW = 20
"""Number of consecutive refused steps after which a run counts as diverged."""

IN_FLIGHT = 2
"""Number of steps that are sent to the device ahead of the last step that was read."""


class DivergenceError(RuntimeError):
    """Training has produced only NaN or infinity for many steps."""


class Schedule(NamedTuple):
    """Steps at which something is due: all multiples of an interval, and the last step.

    >>> [step for step in range(12) if Schedule(10).is_due(step, every=4)]
    [0, 4, 8, 10]

    Args:
        last: last step of the run.
    """

    last: int

    def is_due(self, step: int, every: int | None) -> bool:
        """Return whether something is due at a step. If the interval is None, nothing is due."""
        return every is not None and (step % every == 0 or step == self.last)

    def steps_until_due(self, step: int, *every: int | None) -> int:
        """Return the number of steps until the next step at which one of several intervals is due.

        >>> Schedule(10).steps_until_due(8, 4), Schedule(10).steps_until_due(4, None, 4)
        (2, 4)
        """
        return min(*(each - step % each for each in every if each), self.last - step)


class Result(NamedTuple):
    """Result of a run.

    Args:
        run: directory of the run.
        step: number of finished steps.
        scores: scores of the run; None if the run was stopped before its end. For training, they
            are from the final evaluation; for an agent, they are means over the last tenth of the
            run.
        seconds: duration of all parts of the run, in seconds.
    """

    run: Run
    step: int
    scores: Any
    seconds: float


class Session(NamedTuple):
    """An open run.

    Args:
        config: requested configuration.
        before: configuration in the directory; for a new run, the requested configuration.
        run: files of the run.
        resumed: whether the run is resumed.
        writes: whether this process writes files. If several processes share a run, only one does.
        stop: stop request.
        show: progress bar.
        stack: resources that are closed at the end of the run.
    """

    config: Any
    before: Any
    run: Run
    resumed: bool
    writes: bool
    stop: Stop
    show: ProgressBar
    stack: contextlib.ExitStack


class Program(Generic[State]):
    """The work of one kind of run. Between two blocks, `state` is the state after `step` steps.

    `refused` is the number of consecutive refused steps, if the program counts them.

    Args:
        session: the open run. Before `begun` is called, the program must not write files.
    """

    saved: type[Saved] = Saved
    """Class of the values that are saved in addition to the state."""

    unit = "step"
    """Name of a step in messages."""

    is_whole = True
    """Whether the state may be saved after an error in the present block."""

    save_seconds = math.inf
    """Seconds after which steps that no checkpoint contains are saved."""

    alone = True
    """Whether a lock keeps other processes out of the directory."""

    tensorboard = False
    """Whether the record is also written for TensorBoard."""

    state: State
    step = refused = 0

    def __init__(self, session: Session):
        self.session = session

    def restore(self, saved: Any) -> None:
        """Set the values that are saved beside the state, as `Saved` has them."""

    def init(self) -> State:
        """Return the state before the first step."""
        raise NotImplementedError

    def load(self) -> State:
        """Return the state of the checkpoint."""
        return cast(State, load(self.session.run.checkpoint, self))

    def recorded(self) -> dict[str, Any]:
        """Return the values that `create` records as `begun` for a new run."""
        return {}

    def begun(self) -> None:
        """Receive the state. The run directory now exists."""

    @property
    def ended(self) -> bool:
        """Whether all blocks are finished."""
        return self.step == self.session.config.steps

    @property
    def stopped(self) -> bool:
        """Whether to stop before the next block."""
        return self.session.stop.asked

    def block(self) -> None:
        """Run some steps, at most up to the next save, and record them."""
        raise NotImplementedError

    def kept(self) -> tuple[State, dict[str, Any]]:
        """Return the values to save: the state, and the additional values."""
        return self.state, {}

    def result(self) -> dict[str, Any] | None:
        """Return the scores of the last step; None if a stop request came first.

        No checkpoint contains the learning in this method, so a resumed run does not have it.
        """
        raise NotImplementedError

    def outcome(self, result: Result) -> Any:
        """Return the result in the form of this kind of run."""
        return result

    def open(self, kind: RunKind[Any]) -> Saved:
        """Set the state to the checkpoint, or to the beginning of a new run; return the position.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        config, _, run, resumed, *_ = self.session
        saved = read_saved(run, config, self.saved, kind) if resumed else self.saved()
        self.restore(saved)
        self.state = self.init() if saved.step < 0 else self.load()
        self.step, self.refused = max(saved.step, 0), saved.refused
        return saved

    def begin(self, saved: Saved) -> None:
        """Create the directory of a new run, open the record, and report changes.

        Args:
            saved: position from which the run continues. Later lines of the record are removed.

        Raises:
            RunError: the directory cannot be used.
            LockedError: another process has the run.
        """
        self._began, self._board = time.monotonic() - saved.seconds, None
        self._saved_step, self._saved_at = self.step, time.monotonic()
        config, _, run, resumed, writes, _, show, stack = self.session
        if not writes:
            return
        if not resumed:
            create(run.path, config, **self.recorded())
            if self.alone:
                stack.enter_context(locked(run.path))
        if self.tensorboard:
            self._board = stack.enter_context(contextlib.closing(Board(run.path / "tensorboard")))
        resume_at = saved.step if resumed else None
        self._log = MetricsLog(run.metrics, resume_at=resume_at, mark=saved.record)
        stack.enter_context(self._log)
        if self._log.difference is not None:
            said = f"{run.metrics} {self._log.difference}"
            show.say(f"warning: {said}; the run goes on, its report lacks these lines")
        if resumed and (changed := changed_packages(run.path)):
            show.say(f"the run goes on, but not bit for bit: {', '.join(changed)}")

    @property
    def seconds(self) -> float:
        """Seconds in all parts of the run."""
        return round(time.monotonic() - self._began, 3)

    def record(self, kind: str, **values: Any) -> None:
        """Append a line to the record, with the numbers of steps and seconds so far."""
        if self.session.writes:
            self._log.write(kind, self.step, **values, seconds=self.seconds)
            if self._board is not None:
                self._board.write(self.step, values)

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            OSError: the checkpoint cannot be written. The old file is unchanged.
        """
        state, beside = self.kept()
        if self.session.writes:
            self.sync_record()  # the checkpoint must not be newer than the record
            config, mark = to_json(self.session.config), self._log.file.mark()
            own = Saved(config, mark, self.step, self.seconds, self.refused)
            self.write(state, vars(own) | beside)
        self._saved_step, self._saved_at = self.step, time.monotonic()

    def sync_record(self) -> None:
        """Wait until the record is on the disk."""
        self._log.file.sync()

    def write(self, state: Any, extra: dict[str, Any]) -> None:
        """Write a checkpoint with a state and additional values from `kept`."""
        save(self.session.run.checkpoint, state, extra=extra)

    def save_if_due(self) -> float | None:
        """Write a checkpoint if one is due, and return the seconds until the next one.

        The result is the number of seconds until the next checkpoint is due, or None if everything
        is saved. A checkpoint is due if a multiple of `checkpoint_every` lies after the last
        checkpoint, or if `save_seconds` have passed. A block that waits for its data calls this
        method while it waits.
        """
        if self.step == self._saved_step:
            return None
        every = self.session.config.checkpoint_every
        left = self._saved_at + self.save_seconds - time.monotonic()
        if left > 0 and (every is None or self.step // every == self._saved_step // every):
            return left
        self.save()
        return None

    def check_refused(self, in_a_row: int, step: int, advice: str) -> None:
        """Check the number of consecutive refused steps, whose loss or gradient was not finite.

        Args:
            in_a_row: number of consecutive refused steps.
            step: last refused step.
            advice: suggestion for a run that diverges.

        Raises:
            DivergenceError: too many steps were refused.
        """
        if in_a_row >= REFUSED_IN_A_ROW:
            raise DivergenceError(
                f"learning has diverged: loss or gradient was NaN or infinite in {in_a_row} steps "
                f"in a row, up to {self.unit} {step}; {advice}"
            )


def follow(
    kind: RunKind[Any],
    config: Any,
    run_dir: str | os.PathLike[str],
    program: Callable[[Session], Program[Any]],
    *,
    resume: bool,
    show_progress: bool = True,
    writes: bool = True,
) -> Any:
    """Run to the end, or until a stop request. The state is then saved for `resume`.

    If a block raises an error, the state is saved first, provided that the program's `is_whole` is
    true.

    Args:
        kind: class of the configuration, and the settings that a resumed run may change.
        config: configuration with the setting `checkpoint_every`, and `steps` if the number of
            steps is known.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        program: function that returns the program of the run.
        resume: whether to continue the run in the directory.
        show_progress: whether to show progress on standard error.
        writes: whether this process writes files. If several processes share a run, only one does.

    Returns:
        The result of the program's `outcome`.

    Raises:
        RunError: the directory cannot be used, or holds a run with another configuration.
        LockedError: another process is using the run.
        CheckpointError: the checkpoint is damaged.
        DivergenceError: too many consecutive steps were refused.
        OSError: a file could not be written during the run.
    """
    run, before = Run(Path(run_dir)), config
    with Stop() as stop, contextlib.ExitStack() as stack:
        if writes and not resume:
            check_free(run.path)
        elif writes:
            before = reopen(run, config, may_change=kind.may_change, may_grow=kind.may_grow)
            # Before the checkpoint is read, because another process may be about to replace it.
            stack.enter_context(locked(run.path))
        bar = ProgressBar(show_progress and writes, steps_of(config), warns=writes)
        show = stack.enter_context(bar)
        work = program(Session(config, before, run, resume, writes, stop, show, stack))
        saved = work.open(kind)
        is_done = saved.step == steps_of(config)
        if is_done and (done := find_result(run, work.step)) is not None:
            with restoring(run.metrics):
                scores = {name: done[name] for name in done if name not in ("kind", "step")}
                seconds = from_json(dict[str, float], scores).pop("seconds")
            return work.outcome(Result(run, work.step, scores, seconds))
        work.begin(saved)
        if resume and writes:
            grown = {name: getattr(config, name) for name in kind.may_grow}
            record_config(run, dataclasses.replace(before, **grown))
        work.begun()
        try:
            is_first = True
            while not (work.ended or work.stopped):
                work.block()
                if is_first:
                    release_unused()
                is_first = False
                work.save_if_due()
        except Exception:
            if work.is_whole:
                _save_after_error(work)
            raise
        work.save()
        # A run that diverged in its last block has no block left when it is resumed.
        work.check_refused(work.refused, work.step, "begin a new run with other settings")
        found = None if work.stopped else work.result()
        if found is not None and find_result(run, work.step) is None:
            work.record("result", **found)
        return work.outcome(Result(run, work.step, found, work.seconds))


def _save_after_error(work: Program[Any]) -> None:
    """Save the state after an error, so that only the last block is repeated."""
    try:
        work.save()
    except Exception as error:  # the first error is the one to report
        work.session.show.say(f"the state could not be saved: {error}")
    else:
        work.session.show.say(
            f"the state after {work.unit} {work.step} is saved; `resume` continues from there"
        )
