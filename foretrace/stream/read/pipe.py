"""Standard input as a pipe."""

import errno
import os
import select
import sys
from collections.abc import Callable

from foretrace._runs.signals import Uninterrupted

_BLOCK = 2**16
_LONGEST_WAIT = 3600.0

NOT_AGAIN = (
    "standard input cannot be read again: a resumed run goes on with the rows that come then, and "
    "rows that were read and not saved are lost; for a run that resumes exactly, name a --journal"
)


class Pipe:
    """Standard input as bytes, read one block ahead. A callback runs while no data arrive."""

    def __init__(self) -> None:
        # Function to call before waiting. It returns the seconds until its next call; None for no
        # call.
        self.meanwhile: Callable[[], float | None] = lambda: None
        self._held = bytearray()
        self._at = 0  # position of the next byte in the held bytes

    def peek(self, size: int) -> bytes:
        """Return the next bytes without reading them; fewer bytes at the end."""
        while len(self._held) - self._at < size and self._fill():
            pass
        return bytes(self._held[self._at : self._at + size])

    def read(self, size: int = -1) -> bytes:
        """Return some of the next bytes, at most `size`; an empty result at the end."""
        if self._at == len(self._held):
            self._fill()
        return self._take(len(self._held) - self._at if size < 0 else size)

    def readline(self, limit: int) -> bytes:
        """Return the next line, or its first `limit` bytes."""
        searched = 0
        while (end := self._held.find(b"\n", self._at + searched, self._at + limit)) < 0:
            searched = len(self._held) - self._at
            if searched >= limit or not self._fill():
                return self._take(limit)
        return self._take(end + 1 - self._at)

    def rest(self) -> bytes:
        """Read and return the bytes that have already arrived."""
        return self._take(len(self._held) - self._at)

    def close(self) -> None:
        """Do nothing, so that standard input stays open."""

    def _take(self, size: int) -> bytes:
        data = bytes(self._held[self._at : self._at + size])
        self._at += len(data)
        return data

    def _fill(self) -> bool:
        """Wait for more bytes and read them; return whether there were any."""
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed")
        raw = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        number = _number()
        if number is not None and os.name == "posix":
            self._wait(number)
        with Uninterrupted():
            del self._held[: self._at]
            self._at = 0
            data = raw.read(_BLOCK)
            self._held += data or b""
        return bool(data)

    def _wait(self, number: int) -> None:
        """Wait for bytes without reading them, so that a signal can interrupt safely."""
        came = False
        while not came:
            seconds = self.meanwhile()
            seconds = None if seconds is None else min(max(seconds, 0.0), _LONGEST_WAIT)
            came = bool(select.select([number], [], [], seconds)[0])


def _number() -> int | None:
    """Return the file descriptor of standard input; None if there is none."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
