"""Runs in one folder that several processes share. Each process has some of the runs at a time."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foretrace._runs.directory import Run, TakenError, check_free, create, reopen
from foretrace._runs.files import LockedError, locked
from foretrace._runs.follow import Program, Session
from foretrace._runs.progress import ProgressBar
from foretrace._runs.saved import RunKind
from foretrace._runs.signals import Stop


def joined(
    kind: RunKind[Any],
    config: Any,
    folder: str | os.PathLike[str],
    begun: Callable[[], dict[str, Any]],
) -> Run:
    """Return a shared folder whose configuration the first process writes.

    Args:
        kind: kind of the runs.
        config: configuration.
        folder: the folder.
        begun: function that returns the values that the first process records as `begun`.

    Raises:
        RunError: the folder has other files, or another configuration.
    """
    run = Run(Path(folder))
    if not run.config.exists():
        try:
            check_free(run.path)
            create(run.path, config, **begun())
        except TakenError:
            if not run.config.exists():  # otherwise another process was the first one
                raise
    reopen(run, config, may_change=kind.may_change)
    return run


def place(folder: Path, stack: contextlib.ExitStack) -> str:
    """Return a name for this process; after its end, the next process on the machine gets it."""
    number, host = 0, socket.gethostname()
    while True:
        try:
            stack.enter_context(locked(folder, f".{host}-{number}.lock"))
            return f"{host}-{number}"
        except LockedError:
            number += 1


def started(
    kind: RunKind[Any],
    config: Any,
    run_dir: Path,
    program: Callable[[Session], Program[Any]],
    stop: Stop,
    show: ProgressBar,
) -> Program[Any]:
    """Begin or continue a run without locking it, so another process may have opened it, too.

    The caller runs the blocks of the program.

    Args:
        kind: kind of the run.
        config: configuration.
        run_dir: directory of the run.
        program: function that returns the program of the run.
        stop: stop request.
        show: progress bar.

    Raises:
        RunError: the directory cannot be used, or holds a run with another configuration.
        CheckpointError: the checkpoint to continue from is damaged.
    """
    run = Run(run_dir)
    resume = run.config.exists()
    before = reopen(run, config, may_change=kind.may_change) if resume else config
    session = Session(config, before, run, resume, True, stop, show, contextlib.ExitStack())
    with contextlib.ExitStack() as failed:
        failed.callback(session.stack.close)
        work = program(session)
        work.begin(work.open(kind))
        work.begun()
        failed.pop_all()
    return work
