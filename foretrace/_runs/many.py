"""Many runs in a folder, shared by several processes."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from foretrace._runs.directory import TakenError
from foretrace._runs.files import LockedError
from foretrace._runs.machine import resident_mib
from foretrace._runs.signals import Stop

Job = TypeVar("Job")

_GROWTH = 1024.0
"""Growth of a process, in MiB, after which the programs of earlier runs are dropped."""


def many(left: Callable[[], Sequence[Job]], attempt: Callable[[Job], Any], stop: Stop) -> None:
    """Run all unfinished runs, until each has a result or a stop is requested.

    This includes runs that other processes have abandoned.

    Args:
        left: function that returns the runs without a result.
        attempt: function that runs a job. It raises `LockedError` or `TakenError` if another
            process has the job.
        stop: stop request.
    """
    before = resident_mib()
    while not stop.asked and (jobs := left()):
        attempted = 0
        for job in jobs:
            if stop.asked:
                return
            with contextlib.suppress(LockedError, TakenError):
                attempt(job)
                attempted += 1
            if resident_mib() > before + _GROWTH:
                jax.clear_caches()
        if not attempted:
            time.sleep(0.2)  # until another process ends or loses its run
