"""The opening of a long run: a way to stop, directory, lock, checkpoint, progress bar and record.

For example:

    with session(KIND, config, folder, resume) as run:
        saved = read_saved(run.run, ...)        # values of the checkpoint beside the state
        ...                                     # checks that may refuse: nothing is written yet
        run.begin(saved)                        # from here on, the run is in its directory
        run.save(state, step)
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import CheckpointError, read_extra, restoring, save
from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import (
    Run,
    RunError,
    changed_packages,
    check_free,
    check_unchanged,
    create,
    read_config_as,
    record_config,
    reopen,
)
from foretrace._runs.files import locked
from foretrace._runs.loop import Clock
from foretrace._runs.metrics import MetricsLog, NullMetricsLog, read_metrics
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop

Config = TypeVar("Config")


class RunKind(NamedTuple, Generic[Config]):
    """Common parts of the runs of one class of configurations.

    Args:
        config: class of the configuration.
        may_change: settings that a resumed run may change; the directory keeps the recorded ones.
        may_grow: counts that a resumed run may raise, which the directory then records.
    """

    config: type[Config]
    may_change: tuple[str, ...] = ()
    may_grow: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Saved:
    """Values of a checkpoint beside the state; a kind of run with more has a subclass.

    Args:
        config: configuration of the run, as JSON.
        record: size and digest of the record.
        step: number of steps done; -1 before the first checkpoint.
        seconds: seconds so far.
    """

    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    record: FileMark | None = None
    step: int = -1
    seconds: float = 0.0


Beside = TypeVar("Beside", bound=Saved)


@dataclasses.dataclass
class Session(Generic[Config]):
    """A run that is open.

    Args:
        kind: what may change in a resumed run.
        config: configuration that is asked for.
        before: configuration in the directory; for a new run, the requested one.
        run: files of the run.
        resumed: whether the run goes on, rather than being new.
        writes: whether this process writes.
        stop: stop request.
        show: progress bar.
        log: the record; nothing is written before `begin`.
        clock: seconds of the run since `begin`, and of its earlier parts.
    """

    kind: RunKind[Config]
    config: Config
    before: Config
    run: Run
    resumed: bool
    writes: bool
    stop: Stop
    show: ProgressBar
    _stack: contextlib.ExitStack
    log: MetricsLog = dataclasses.field(default_factory=NullMetricsLog)
    clock: Clock = dataclasses.field(default_factory=Clock)

    def begin(self, saved: Saved, **begun: Any) -> None:
        """Make or update the run directory, open the record, and report changes.

        Args:
            saved: position to go on from; later lines of the record are cut off.
            **begun: what a new run records in its directory, as for `create`.

        Raises:
            RunError: the directory cannot be used.
            LockedError: another process has begun a run there.
        """
        self.clock = Clock(saved.seconds)
        if not self.writes:
            return
        if self.resumed:
            grown = {name: getattr(self.config, name) for name in self.kind.may_grow}
            record_config(self.run, dataclasses.replace(self.before, **grown))  # type: ignore[type-var]
        else:
            create(self.run.path, self.config, **begun)
            self._stack.enter_context(locked(self.run.path))
        resume_at = saved.step if self.resumed else None
        self.log = self._stack.enter_context(
            MetricsLog(self.run.metrics, resume_at=resume_at, mark=saved.record)
        )
        if self.log.difference is not None:
            said = f"{self.run.metrics} {self.log.difference}"
            self.show.say(f"warning: {said}; the run goes on, its report lacks these lines")
        if self.resumed and (changed := changed_packages(self.run.path)):
            self.show.say(f"the run goes on, but not bit for bit: {', '.join(changed)}")

    def save(self, state: Any, beside: dict[str, Any], step: int) -> None:
        """Write a checkpoint: the state, and the fields of the class given to `read_saved`.

        Raises:
            OSError: it cannot be written; the old one is unharmed.
        """
        if not self.writes:
            return
        self.log.sync()  # the checkpoint must not know more than the record
        own = Saved(to_json(self.config), self.log.mark(), step, self.clock.seconds)
        save(self.run.checkpoint, state, extra=vars(own) | beside)


def read_saved(run: Run, config: Any, kind: type[Beside], of: RunKind[Any]) -> Beside:
    """Return the values of a run's checkpoint beside the state; the defaults without a checkpoint.

    Args:
        run: files of the run.
        config: its configuration.
        kind: class of the values.
        of: kind of the run.

    Raises:
        CheckpointError: the checkpoint is damaged.
        RunError: the checkpoint was written with another configuration.
    """
    path, steps = run.checkpoint, steps_of(config)
    if not path.exists():
        return kind()
    extra = read_extra(path)
    if missing := [field.name for field in dataclasses.fields(kind) if field.name not in extra]:
        raise CheckpointError(f"{path} has no {', '.join(missing)}")
    with restoring(path):
        saved = from_json(kind, extra | {"type": kind.__name__})
    plan = getattr(saved, "plan", None)
    check_unchanged(run, config, saved.config, plan, (*of.may_grow, *of.may_change))
    if saved.step < 0 or (steps is not None and saved.step > steps):
        most = "" if steps is None else f" to {steps}"
        raise CheckpointError(f"{path} is at step {saved.step}, expected 0{most}")
    return saved


def read_run(
    path: str | os.PathLike[str], config: type[Config]
) -> tuple[Config, list[dict[str, Any]]]:
    """Return the configuration of a run and the lines of its record.

    Raises:
        RunError: there is no run, one of another kind, or one without a line yet.
        MetricsError: the record is damaged.
    """
    run = Run(Path(path))
    found = read_config_as(run.path, config)
    lines = read_metrics(run.metrics) if run.metrics.exists() else []
    if not lines:
        raise RunError(f"{path} has nothing to report yet")
    return found, lines


def steps_of(config: Any) -> int | None:
    """Return the number of steps of a run; None if its data decide."""
    return getattr(config, "steps", None)


def find_result(run: Run, config: Any) -> dict[str, Any] | None:
    """Return the line of a record that holds the result of the last step; None if there is none."""
    lines, last = (
        read_metrics(run.metrics) if run.metrics.exists() else [],
        ("result", steps_of(config)),
    )
    return next((line for line in lines if (line["kind"], line["step"]) == last), None)


@contextlib.contextmanager
def session(
    kind: RunKind[Config],
    config: Config,
    folder: str | os.PathLike[str],
    resume: bool,
    show_progress: bool = True,
    *,
    writes: bool = True,
) -> Iterator[Session[Config]]:
    """Open a run; nothing is written before `Session.begin`.

    Args:
        kind: what may change in a resumed run.
        config: configuration of the run.
        folder: new or empty directory; with `resume`, the directory of the run.
        resume: whether to continue the run that is there.
        show_progress: whether progress is shown on standard error.
        writes: whether this process writes; of several that share a run, one does.

    Raises:
        RunError: the directory cannot be used, or holds a run with another configuration.
        LockedError: another process has the run.
    """
    with Stop() as stop, contextlib.ExitStack() as stack:
        run, before = Run(Path(folder)), config
        if writes and not resume:
            check_free(run.path)
        elif writes:
            reopen(run.path, config, may_change=kind.may_change, may_grow=kind.may_grow)
            before = read_config_as(run.path, kind.config)
            # Before the checkpoint is read, which another process may be about to replace.
            stack.enter_context(locked(run.path))
        show = stack.enter_context(ProgressBar(show_progress and writes, steps_of(config)))
        yield Session(kind, config, before, run, resume, writes, stop, show, stack)
