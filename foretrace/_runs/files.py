"""Files that are complete or absent, and locks for one process at a time in a folder."""

import contextlib
import errno
import importlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

LOCK_FILE = ".lock"

_TEMPORARY = ".tmp"

_ABANDONED = 3600.0
"""Age in seconds, without a change, after which a temporary file counts as abandoned."""


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file, in one piece or many, so that a reader sees either the old or the new file.

    Temporary files that killed processes left in the folder are removed after an hour.

    Raises:
        OSError: the file cannot be written. The old file is unchanged.
    """
    with _becoming(path, "replace", "wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def create_atomically(path: Path, data: bytes) -> None:
    """Write a new file, so that readers never see a part of it.

    The temporary file is in the same folder, because a folder may be a mount point. `is_temporary`
    recognises temporary files.

    Raises:
        FileExistsError: the file exists; it is unchanged.
        OSError: the file cannot be written.
    """
    with _becoming(path, "link", "wb") as file:
        file.write(data)


def appearing(path: Path) -> contextlib.AbstractContextManager[TextIO]:
    """Yield a new text file, which gets its name when the block ends without an error.

    Raises:
        FileExistsError: the file exists; it is unchanged.
        OSError: the file cannot be written.
    """
    return _becoming(path, "link", "w", newline="")


@contextlib.contextmanager
def _becoming(path: Path, how: str, mode: str, **options: Any) -> Iterator[Any]:
    """Yield a temporary file. Once it is on the disk, it is renamed or linked."""
    temporary = _temporary(path)
    _remove_abandoned(path)
    try:
        with open(temporary, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        getattr(os, how)(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    try:
        sync_folder(path.parent)
        if how == "link":
            sync_folder(path.parent.resolve().parent)  # the folder itself may be new
    except OSError:
        if how == "link":  # a file that may be lost in a crash must not exist
            path.unlink()
        raise


def _temporary(path: Path) -> Path:
    """Return the temporary path at which a thread writes a file."""
    writer = f"{socket.gethostname()}-{os.getpid()}.{threading.get_ident()}"
    return path.with_name(f".{path.name}.{writer}{_TEMPORARY}")


def is_temporary(file: Path, path: Path) -> bool:
    """Return whether a file is a temporary file for a path."""
    return file.name.startswith(f".{path.name}.") and file.name.endswith(_TEMPORARY)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk. On Windows, do nothing."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of a path that are older than an hour."""
    for file in path.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has just finished it
            if is_temporary(file, path) and time.time() - file.stat().st_mtime > _ABANDONED:
                file.unlink()


class LinkError(ValueError):
    """A file of a run is a symbolic link."""


def not_through_links(path: str, flags: int) -> int:
    """Open a file of a run, but not through a symbolic link, for `open(..., opener=...)`.

    Raises:
        LinkError: the path is a symbolic link.
        OSError: the file cannot be opened.
    """
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkError(
                f"{path} is a symbolic link and would be written through; put a file there"
            ) from error
        raise


class LockedError(ValueError):
    """Another process is using the folder."""


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str], name: str = LOCK_FILE) -> Iterator[None]:
    """Hold a lock on a folder. The system releases the lock when the process ends.

    If the system does not have such locks (Windows, some network file systems), nothing is locked.

    Raises:
        LockedError: another process holds the lock.
    """
    with open(Path(folder) / name, "ab", opener=not_through_links) as file:
        try:
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(
                f"{folder if name == LOCK_FILE else Path(folder, name)} is in use by another "
                "foretrace process; wait for it, or stop it"
            ) from error
        except (ImportError, OSError):
            pass
        yield
