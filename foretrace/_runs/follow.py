"""The course of a run: open, load, run block by block, save when due, stop, record the result."""

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
from foretrace._runs.metrics import MetricsLog
from foretrace._runs.progress import ProgressBar
from foretrace._runs.saved import RunKind, Saved, find_result, read_saved, steps_of
from foretrace._runs.signals import Stop
from foretrace._runs.tensorboard import Board

State = TypeVar("State")

REFUSED_IN_A_ROW = 20
"""Steps with a loss or gradient that is NaN or infinite after which a run has diverged."""

IN_FLIGHT = 2
"""Steps handed to the device ahead of the one that is read: enough to keep it busy."""


class DivergenceError(RuntimeError):
    """Training produces only NaN or infinity."""


class Schedule(NamedTuple):
    """When something is due: at every multiple of an interval, and at the last step.

    >>> [step for step in range(12) if Schedule(10).is_due(step, every=4)]
    [0, 4, 8, 10]

    Args:
        last: last step of the run.
    """

    last: int

    def is_due(self, step: int, every: int | None) -> bool:
        """Return whether something is due at a step; never if the interval is None."""
        return every is not None and (step % every == 0 or step == self.last)

    def steps_until_due(self, step: int, *every: int | None) -> int:
        """Return the number of steps until the next due step of several intervals.

        >>> Schedule(10).steps_until_due(8, 4), Schedule(10).steps_until_due(4, None, 4)
        (2, 4)
        """
        return min(*(each - step % each for each in every if each), self.last - step)


class Result(NamedTuple):
    """Result of a run.

    Args:
        run: directory of the run.
        step: number of steps done.
        scores: scores of the last step: of the final evaluation of training, or the means over the
            last tenth of an agent's run; None if the run was stopped before its end.
        seconds: seconds over all parts of the run.
    """

    run: Run
    step: int
    scores: Any
    seconds: float


class Session(NamedTuple):
    """A run that is open.

    Args:
        config: requested configuration.
        before: configuration in the directory; for a new run, the requested one.
        run: files of the run.
        resumed: whether the run is resumed, rather than new.
        writes: whether this process writes; of several that share a run, one does.
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
    """Work of one kind of run. Between two blocks, `state` is the state after `step` steps.

    `refused` is the number of steps in a row that were refused, where the program counts them.

    Args:
        session: the run that is open; nothing of it is written before `begun`.
    """

    saved: type[Saved] = Saved
    """Class of the values that are saved in addition to the state."""

    unit = "step"
    """Name of what is counted."""

    is_whole = True
    """Whether the state may be saved if an error ends the present block."""

    save_seconds = math.inf
    """Seconds after which steps that are in no checkpoint are saved."""

    alone = True
    """Whether a lock keeps other processes out of the directory."""

    tensorboard = False
    """Whether the record is also written for TensorBoard."""

    state: State
    step = refused = 0

    def __init__(self, session: Session):
        self.session = session

    def restore(self, saved: Any) -> None:
        """Set the additional values, from the class or a checkpoint."""

    def init(self) -> State:
        """Return the state before the first step."""
        raise NotImplementedError

    def load(self) -> State:
        """Return the state of the checkpoint."""
        return cast(State, load(self.session.run.checkpoint, self))

    def recorded(self) -> dict[str, Any]:
        """Return what `create` records as `begun` for a new run."""
        return {}

    def begun(self) -> None:
        """Receive the state; the run directory now exists."""

    @property
    def ended(self) -> bool:
        """Whether all blocks are done."""
        return self.step == self.session.config.steps

    @property
    def stopped(self) -> bool:
        """Whether to stop before the next block."""
        return self.session.stop.asked

    def block(self) -> None:
        """Do some steps, at most up to the next save, and record them."""
        raise NotImplementedError

    def kept(self) -> tuple[State, dict[str, Any]]:
        """Return what to save: the state, and the additional values."""
        return self.state, {}

    def result(self) -> dict[str, Any] | None:
        """Return the scores of the last step; None if a stop request came first.

        What is learned here is in no checkpoint: a run that is resumed does not have it.
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
            saved: position to go on from; later lines of the record are cut off.

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
        """Seconds of all parts of the run."""
        return round(time.monotonic() - self._began, 3)

    def record(self, kind: str, **values: Any) -> None:
        """Append a line to the record, with the steps and seconds so far."""
        if self.session.writes:
            self._log.write(kind, self.step, **values, seconds=self.seconds)
            if self._board is not None:
                self._board.write(self.step, values)

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            OSError: it cannot be written; the old file is unchanged.
        """
        state, beside = self.kept()
        if self.session.writes:
            self.sync_record()  # the checkpoint must not know more than the record
            config, mark = to_json(self.session.config), self._log.file.mark()
            own = Saved(config, mark, self.step, self.seconds, self.refused)
            self.write(state, vars(own) | beside)
        self._saved_step, self._saved_at = self.step, time.monotonic()

    def sync_record(self) -> None:
        """Wait until the record is on the disk."""
        self._log.file.sync()

    def write(self, state: Any, extra: dict[str, Any]) -> None:
        """Write a checkpoint of a state from `kept`, and of the values in addition to it."""
        save(self.session.run.checkpoint, state, extra=extra)

    def save_if_due(self) -> float | None:
        """Write a checkpoint if due; return the seconds until the next, None if all is saved.

        It is due where a multiple of `checkpoint_every` lies after the last one, or where
        `save_seconds` have passed. A block that waits for its data calls this meanwhile.
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
            in_a_row: their number.
            step: the last of them.
            advice: what to try when the run diverges.

        Raises:
            DivergenceError: they are too many.
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
    """Run to the end, or to a stop request, which saves the state for `resume`.

    An error in a block saves the state before it is raised, if the program says that it is whole.

    Args:
        kind: class of the configuration, and settings that a resumed run may change.
        config: configuration, with `checkpoint_every`, and `steps` if their number is known.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        program: function that returns the work of the run.
        resume: whether to continue the run that is there.
        show_progress: whether progress is shown on standard error.
        writes: whether this process writes; of several that share a run, one does.

    Returns:
        The `outcome` of the program.

    Raises:
        RunError: the directory cannot be used, or holds a run with another configuration.
        LockedError: another process has the run.
        CheckpointError: the checkpoint to continue from is damaged.
        DivergenceError: too many steps in a row were refused.
        OSError: a file could not be written in the middle of the run.
    """
    run, before = Run(Path(run_dir)), config
    with Stop() as stop, contextlib.ExitStack() as stack:
        if writes and not resume:
            check_free(run.path)
        elif writes:
            before = reopen(run, config, may_change=kind.may_change, may_grow=kind.may_grow)
            # Before the checkpoint is read, which another process may be about to replace.
            stack.enter_context(locked(run.path))
        show = stack.enter_context(ProgressBar(show_progress and writes, steps_of(config)))
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
            while not (work.ended or work.stopped):
                work.block()
                work.save_if_due()
        except Exception:
            if work.is_whole:
                _save_after_error(work)
            raise
        work.save()
        # A run that diverged in its last block has none left when it is resumed.
        work.check_refused(work.refused, work.step, "begin a new run with other settings")
        found = None if work.stopped else work.result()
        if found is not None and find_result(run, work.step) is None:
            work.record("result", **found)
        return work.outcome(Result(run, work.step, found, work.seconds))


def _save_after_error(work: Program[Any]) -> None:
    """Save the state after an error, so that only the last block is repeated."""
    try:
        work.save()
    except Exception as error:  # the first error is the one to tell
        work.session.show.say(f"the state could not be saved: {error}")
    else:
        work.session.show.say(
            f"the state after {work.unit} {work.step} is saved; `resume` continues from there"
        )
