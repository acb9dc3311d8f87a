"""One process at a time in a folder; the lock goes with the process, even by kill -9."""

import contextlib
import importlib
import importlib.metadata
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that there is the old one or the new one at any moment, whatever happens.

    Raises:
        OSError: it cannot be written; the old one is still there.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
