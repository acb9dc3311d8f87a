"""The course of a run: open, load, run block by block, save when due, stop, record the result."""

import os
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from foretrace._runs.checkpoint import load
from foretrace._runs.directory import Run
from foretrace._runs.loop import Schedule
from foretrace._runs.metrics import numbers_of
from foretrace._runs.session import RunKind, Saved, Session, find_result, read_saved, session

State = TypeVar("State")


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


class Program(Generic[State]):
    """Work of one kind of run between two saves.

    Args:
        session: the run that is open; nothing of it is written before `begun`.
    """

    saved: type[Saved] = Saved
    """Class of the values that are saved beside the state."""

    def __init__(self, session: Session[Any]):
        self.session = session

    def init(self) -> State:
        """Return the state before the first step."""
        raise NotImplementedError

    def block(self, state: State, step: int) -> tuple[State, int]:
        """Do some steps, at most up to the next save, and record them; return state and step."""
        raise NotImplementedError

    def result(self, state: State) -> dict[str, Any] | None:
        """Return the scores of the last step; None if a stop request came first."""
        raise NotImplementedError

    def restore(self, saved: Any) -> None:
        """Take the values that were saved beside the state."""

    def begun(self, state: State) -> State:
        """Return a state where the blocks need it; the run is in its directory now."""
        return state

    def kept(self, state: State) -> tuple[State, dict[str, Any]]:
        """Return what is saved: the state, and the values beside it."""
        return state, {}

    @property
    def stopped(self) -> bool:
        """Whether to stop before the next block."""
        return self.session.stop.asked


def follow(
    kind: RunKind[Any],
    config: Any,
    run_dir: str | os.PathLike[str],
    program: Callable[[Session[Any]], Program[Any]],
    *,
    resume: bool,
    show_progress: bool = True,
    writes: bool = True,
) -> Result:
    """Run to the last step, or to a stop request, which saves the state for `resume`.

    Args:
        kind: class of the configuration, and settings that a resumed run may change.
        config: configuration, with `steps` and `checkpoint_every`.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        program: function that returns the work of the run.
        resume: whether to continue the run that is there.
        show_progress: whether progress is shown on standard error.
        writes: whether this process writes; of several that share a run, one does.

    Raises:
        RunError: the directory cannot be used.
        LockedError: another process has the run.
        CheckpointError: the checkpoint to continue from is damaged.
        OSError: a file could not be written in the middle of the run.
    """
    with session(kind, config, run_dir, resume, show_progress, writes=writes) as run:
        work = program(run)
        saved = read_saved(run.run, config, work.saved, kind) if resume else work.saved()
        work.restore(saved)
        state = work.init() if saved.step < 0 else load(run.run.checkpoint, work)
        done = None if saved.step < 0 else find_result(run.run, config)
        if done is not None:
            names = [name for name in done if name not in ("kind", "step", "seconds")]
            names.append("seconds")
            scores = dict(zip(names, numbers_of(run.run.metrics, done, names), strict=True))
            return Result(run.run, config.steps, scores, scores.pop("seconds"))
        run.begin(saved)
        state, step, schedule = work.begun(state), max(saved.step, 0), Schedule(config.steps)
        run.show.compiling()
        while step < config.steps and not work.stopped:
            state, step = work.block(state, step)
            if schedule.is_due(step, config.checkpoint_every):
                run.save(*work.kept(state), step)
        found = work.result(state) if step == config.steps else None
        seconds = run.clock.seconds
        if found is None or saved.step == config.steps:
            run.save(*work.kept(state), step)  # what was still to be measured, at the end, is now
        if found is not None:
            run.log.write("result", step, **found, seconds=seconds)
        return Result(run.run, step, found, seconds)
