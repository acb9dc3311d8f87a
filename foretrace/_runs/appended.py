"""A file to which a run appends; a resumed run truncates it to the length at its checkpoint."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from foretrace._runs.files import not_through_links

_BLOCK = 2**20


class FileMark(NamedTuple):
    """Length and digest of a file at a checkpoint, which reveal later cuts and changes.

    Args:
        size: number of bytes at the checkpoint.
        sha256: digest of these bytes.
    """

    size: int
    sha256: str

    def difference(self, path: Path) -> str | None:
        """Return how a file differs from its state at the checkpoint; None if it does not."""
        size = path.stat().st_size if path.exists() else 0
        if size < self.size:
            return (
                f"is cut: it has {size} bytes, but {self.size} were written before the checkpoint"
            )
        if digest(path, self.size).hexdigest() != self.sha256:
            return "was changed: its lines are not those that were written before the checkpoint"
        return None


def digest(path: Path, size: int) -> "hashlib._Hash":
    """Return the SHA-256 of the first `size` bytes of a file; it need not exist if `size` is 0."""
    found, left = hashlib.sha256(), size
    if size:
        with open(path, "rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                found.update(block)
                left -= len(block)
    return found


class AppendedFile:
    """Append text to a file, whose size and digest are known at any moment.

    Args:
        path: the file.
        keep: number of bytes to keep of an existing file, from which the rest is removed. None
            begins a new file.

    Raises:
        FileExistsError: a new file was requested, and the file exists.
        LinkError: the file to continue is a symbolic link.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, keep: int | None = None):
        self._digest = digest(path, keep or 0)
        self._size = keep or 0
        if keep is None:
            self._file = open(path, "xb")  # noqa: SIM115
        else:
            self._file = open(path, "ab", opener=not_through_links)  # noqa: SIM115
            self._file.truncate(keep)

    def write(self, text: str) -> None:
        """Append text. An unpaired surrogate, which UTF-8 cannot encode, is escaped."""
        data = text.encode("utf-8", "backslashreplace")
        self._file.write(data)
        self._size += len(data)
        self._digest.update(data)

    def flush(self) -> None:
        """Flush the text, so that readers can see it."""
        self._file.flush()

    def mark(self) -> FileMark:
        """Return size and digest for a checkpoint."""
        return FileMark(self._size, self._digest.hexdigest())

    def sync(self) -> None:
        """Wait until the text is on the disk; a checkpoint must not be newer than its record."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
