"""One process at a time in a folder; the lock goes with the process, even by kill -9."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

FILE = ".lock"


class LockedError(ValueError):
    """Another process is at work there."""


@contextlib.contextmanager
def locked(folder: str | os.PathLike) -> Iterator[None]:
    """Hold the lock of a folder.

    Where the system knows no such locks (Windows, some network file systems), nothing is locked.

    Raises:
        LockedError: another process holds it.
    """
    with open(Path(folder) / FILE, "ab") as file:
        try:
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"{folder} is in use by another foretrace process; wait for it, or stop it") from error
        except (ImportError, OSError):
            pass
        yield
