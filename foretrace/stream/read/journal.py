"""A journal: a file of lines that arrive only once, written before the run acts on them.

Neither a pipe nor requests to a service can be read again. If their lines are first written to a
journal, they are a file like any other. A run that reads the journal can be resumed exactly, and
can be repeated from its first row.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foretrace._runs.files import locked, sync_folder
from foretrace._runs.signals import Interrupted, Uninterrupted
from foretrace.stream.read.lines import MAX_LINE, SourceError, open_bytes
from foretrace.stream.read.pipe import Pipe

_BLOCK = 2**16

_sync = getattr(os, "fdatasync", os.fsync)


class Journal:
    """A file of complete lines that grows at its end while it is read.

    When the reader reaches the end, all lines that have arrived are appended, synced in one call,
    and then read. A crash can leave an incomplete last line. Such a line was never passed on, so it
    is removed.

    Args:
        path: path of the file. It is created if it is missing.
        feed: function that waits for lines for the journal and returns them. It returns nothing
            after the last line.

    Raises:
        LockedError: another process uses the file.
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], feed: "Feed"):
        self.path, self._feed = Path(path), feed
        # Function that a feed may call while it waits, as in `Pipe`.
        self.meanwhile: Callable[[], float | None] = lambda: None
        # Whether to continue after lines that could not be written; these lines are then lost.
        self.goes_on: Callable[[OSError], bool] = lambda error: False
        self._file: Any = None

    def _opened(self) -> Any:
        if self._file is None:
            with contextlib.ExitStack() as stack:
                stack.enter_context(locked(self.path.parent, self.path.name))
                self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
                stack.callback(self._file.close)
                self._close = stack.pop_all().close
            sync_folder(self.path.parent)  # the file may be new
            self._file.truncate(_whole(self._file))
            self._file.seek(0)
            self._held, self._at = b"", 0
        return self._file

    def peek(self, size: int) -> bytes:
        """Return the first bytes of the file, without waiting for more."""
        file = self._opened()
        return os.pread(file.fileno(), size, 0)

    def seek(self, offset: int) -> None:
        """Continue reading at a byte offset."""
        self._opened().seek(offset)
        self._held, self._at = b"", 0

    def read(self, size: int) -> bytes:
        """Return the next available bytes."""
        self._opened()
        found = self._held[self._at : self._at + size]
        self._at += len(found)
        return found or self._file.read(size)

    def readline(self, limit: int) -> bytes:
        """Return the next line, or its first `limit` bytes; an empty result at the end."""
        file = self._opened()
        while (end := self._held.find(b"\n", self._at, self._at + limit)) < 0:
            if len(self._held) - self._at >= limit:
                end = self._at + limit - 1
                break
            block = file.read(_BLOCK) or self._grown()
            if not block:
                return b""
            self._held, self._at = self._held[self._at :] + block, 0
        line = self._held[self._at : end + 1]
        self._at = end + 1
        return line

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._close()

    def _grown(self) -> bytes:
        """Wait for lines, append them, and return them after they are on the disk.

        Raises:
            OSError: the lines cannot be written. The file is unchanged.
        """
        while lines := self._feed(self):
            try:
                return self.append(lines)
            except OSError as error:
                if not self.goes_on(error):
                    raise
        return b""

    def append(self, lines: bytes) -> bytes:
        """Append lines, and return them after they are on the disk.

        Raises:
            OSError: the lines cannot be written. The file is unchanged.
        """
        file = self._opened()
        size = os.fstat(file.fileno()).st_size
        try:
            with Uninterrupted():  # a part of a line would be lost
                left = memoryview(lines)
                while left:
                    left = left[file.write(left) :]
                _sync(file.fileno())
        except OSError:
            file.truncate(size)
            file.seek(size)
            raise
        return lines


def _whole(file: Any) -> int:
    """Return the number of bytes up to and including the last line break."""
    size = os.fstat(file.fileno()).st_size
    for end in range(size, 0, -_BLOCK):
        begin = max(end - _BLOCK, 0)
        if (at := os.pread(file.fileno(), end - begin, begin).rfind(b"\n")) >= 0:
            return begin + at + 1
    return 0


Feed = Callable[[Journal], bytes]
"""A function that waits for complete lines for a journal; an empty result is the end."""


class PipeFeed:
    """Lines from standard input for a journal: all lines that have arrived, at least one.

    Args:
        has_header: whether the first line names the columns. The header of a later pipe is not
            copied.

    Raises:
        SourceError: a later pipe has a different header, or a line is too long.
    """

    def __init__(self, *, has_header: bool):
        self.pipe = Pipe()
        self.has_header = has_header
        self._file: Any = None
        self._rest = b""

    def lines(self, journal: Journal) -> bytes:
        """Return the next complete lines; an empty result at the end.

        Args:
            journal: journal for which the lines are read.
        """
        self.pipe.meanwhile = journal.meanwhile
        if self._file is None:
            self._file = open_bytes("-", self.pipe)
            if self.has_header and (header := journal.peek(MAX_LINE).partition(b"\n")[0]):
                self._check_header(header)
        read = getattr(self._file, "read1", self._file.read)
        while b"\n" not in self._rest:
            try:
                block = read(_BLOCK)
            except Interrupted:  # it may arrive while bytes are read, which come only once
                if self._file is self.pipe:
                    journal.append(self._whole(self.pipe.rest()))
                raise
            if not block:
                found, self._rest = self._rest, b""
                return found + b"\n" if found else b""
            self._rest += block
            if len(self._rest) > MAX_LINE and b"\n" not in self._rest:
                raise SourceError(
                    f"standard input: a line of more than {MAX_LINE} bytes; is a line break "
                    "missing?"
                )
        return self._whole(b"")

    def _whole(self, block: bytes) -> bytes:
        """Return the complete lines up to the end of a block, and keep the rest."""
        found, end, self._rest = (self._rest + block).rpartition(b"\n")
        return found + end

    def _check_header(self, header: bytes) -> None:
        found = self._file.readline(MAX_LINE)
        if found and found.strip() != header.strip():
            raise SourceError(
                f"standard input has the header {found[:80]!r}, and its journal {header[:80]!r}: "
                "give the columns of the journal, or name another --journal"
            )
