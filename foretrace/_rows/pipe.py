"""Standard input, whose bytes arrive once: bytes read but not learned are kept."""

import errno
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from foretrace._runs.signals import Uninterrupted

_BLOCK = 2**16
_LONGEST_WAIT = 3600.0


class _Dropped(NamedTuple):
    """Dropped bytes: the offset where they were, their number, and their bad rows."""

    at: int
    size: int
    bad: int


class Pipe:
    """Standard input as bytes, with the bytes read ahead and an interrupted line.

    A checkpoint holds the bytes of `to_json`: the rows of an unfinished chunk, and the bytes read
    ahead, at most 64 KiB. `restore` reads them first. Rows that are skipped are dropped at once,
    wherever they are: they may come without end.

    An offset is a number of bytes that were read and not dropped.

    Args:
        is_kept: whether bytes that were read stay here until they are released.
    """

    def __init__(self, is_kept: bool = False) -> None:
        self.is_kept = is_kept
        # What to do before waiting; returns after how many seconds to do it again, None for never.
        self.meanwhile: Callable[[], float | None] = lambda: None
        self.is_compressed = False
        # offset of the first byte that comes from another pipe, which may begin with a header
        self.seam = 0
        self._is_torn = False  # whether the buffer ends in the middle of a row whose begin is lost
        self._held = bytearray()
        self._start = 0  # offset of the first byte in the buffer
        self._at = 0  # place among them of the next byte to be read
        # Dropped bytes behind `_start`, in order, those of one place as one.
        self._dropped: deque[_Dropped] = deque()
        self._bad_before: list[
            list[int]
        ] = []  # offsets, and numbers of bad rows that an earlier process dropped there

    def peek(self, size: int) -> bytes:
        """Return the next bytes without reading them; fewer at the end."""
        while len(self._held) - self._at < size and self._fill():
            pass
        return bytes(self._held[self._at : self._at + size])

    def read(self, size: int = -1) -> bytes:
        """Return some of the next bytes, at most `size`; none at the end."""
        if self._at == len(self._held):
            self._fill()
        return self._take(len(self._held) - self._at if size < 0 else size)

    def readline(self, limit: int) -> bytes:
        """Return the next line, or the first `limit` bytes of it."""
        searched = 0
        while (end := self._held.find(b"\n", self._at + searched, self._at + limit)) < 0:
            searched = len(self._held) - self._at
            if searched >= limit or not self._fill():
                return self._take(limit)
        return self._take(end + 1 - self._at)

    def release(self, offset: int) -> None:
        """Forget the bytes before an offset."""
        done = min(offset - self._start, self._at)
        if done >= _BLOCK:  # moving the rest of a block at every row would take longer than the row
            self._forget(done)

    def drop(self, begin: int, end: int, *, bad: int = 0) -> int:
        """Forget bytes that were read and that nobody needs: rows that are skipped.

        Return their number, by which later offsets are smaller; 0 where bytes are not kept anyway.

        Args:
            begin: offset of the first of them.
            end: offset behind the last of them.
            bad: number of bad rows among them; a process that goes on asks `bad_before` for them.
        """
        if not self.is_kept or self.is_compressed or end <= begin:
            return 0
        size = end - begin
        del self._held[begin - self._start : end - self._start]
        self._at -= size
        if begin <= self.seam:
            self.seam -= size
        before = _Dropped(begin, 0, 0)
        if self._dropped and self._dropped[-1].at == begin:
            before = self._dropped.pop()
        self._dropped.append(_Dropped(begin, before.size + size, before.bad + bad))
        return size

    def bad_before(self, offset: int) -> int:
        """Return the bad rows before an offset that the earlier process dropped uncounted."""
        return sum(bad for place, bad in self._bad_before if place <= offset)

    def to_json(self, offset: int, *, end: bool) -> dict[str, Any]:
        """Return the bytes behind an offset, for the process that goes on.

        Args:
            offset: number of bytes that are not needed any more.
            end: whether this process will read no more. If it does and is killed then, bytes are
                lost.
        """
        begin = max(offset - self._start, 0)
        unread = b"" if self.is_compressed else bytes(self._held[begin:])
        dropped = [one for one in self._dropped if one.at >= offset]
        bad = [[one.at - offset, one.bad] for one in dropped if one.bad]
        bad += [[place - offset, count] for place, count in self._bad_before if place >= offset]
        if end and unread and self._give_back(len(unread) + sum(one.size for one in dropped)):
            unread, bad = b"", []
        return {
            "unread": unread.decode("latin-1"),
            "bad": bad,
            "of": _identity(),
            "end": end and not self._is_torn,
            "compressed": self.is_compressed,
        }

    def restore(self, state: dict[str, Any], *, quotes: bool) -> list[str]:
        """Read the bytes of `to_json` first; return what cannot be read any more, in words.

        Args:
            state: what `to_json` returned in the process before.
            quotes: whether a quoted field may hold line breaks.
        """
        if state["compressed"]:
            return [
                "standard input was compressed: rows that were read ahead of the checkpoint are "
                "lost"
            ]
        unread = state["unread"].encode("latin-1")
        self._bad_before = state["bad"]
        is_same = state["of"] is not None and state["of"] == _identity()
        if is_same and state["end"]:
            self._held[:0] = unread
            return []
        whole = _whole_lines(unread, quotes)
        self._held[:0] = unread[:whole]
        self.seam = whole
        lost = []
        if len(unread) > whole:
            torn = len(unread) - whole
            lost.append(
                f"the incomplete row at the end of the earlier input, of {torn} bytes, is dropped"
            )
        if is_same:
            lost.append(
                "the earlier process was killed: rows of standard input that it read after its "
                "checkpoint are lost"
            )
            self._drop_line()
        return lost

    def _drop_line(self) -> None:
        """Drop what follows up to a line break, the rest of a row whose begin is lost."""
        kept = self._at = len(self._held)
        self._is_torn = True
        while self._is_torn:
            line = self.readline(_BLOCK)
            self._is_torn = bool(line) and not line.endswith(b"\n")
            del self._held[kept : self._at]
            self._at = kept
        self._at = 0

    def close(self) -> None:
        """Leave standard input open."""

    def _forget(self, size: int) -> None:
        del self._held[:size]
        self._start += size
        self._at -= size
        while self._dropped and self._dropped[0].at < self._start:
            self._dropped.popleft()

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
            # Compressed bytes are not kept: a reader that begins among them could not make sense of
            # them.
            if not self.is_kept or self.is_compressed:
                self._forget(self._at)
            data = raw.read(_BLOCK)
            self._held += data or b""
        return bool(data)

    def _wait(self, number: int) -> None:
        """Wait for bytes. A signal may end the waiting: nothing is taken out of the pipe yet."""
        came = False
        while not came:
            seconds = self.meanwhile()
            seconds = None if seconds is None else min(max(seconds, 0.0), _LONGEST_WAIT)
            came = bool(select.select([number], [], [], seconds)[0])

    def _give_back(self, size: int) -> bool:
        """Put the file of a redirection back by some bytes; return whether this is possible."""
        number = _number()
        try:
            if number is None or not stat.S_ISREG(os.fstat(number).st_mode):
                return False
            os.lseek(number, -size, os.SEEK_CUR)
        except OSError:
            return False
        return True


def _number() -> int | None:
    """Return the file descriptor of standard input; None if it has none."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _identity() -> list[int] | None:
    """Return an identifier of a pipe, or None for other files."""
    number = _number()
    if number is None:
        return None
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return (
        [found.st_dev, found.st_ino]
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)
        else None
    )


def _whole_lines(data: bytes, quotes: bool) -> int:
    """Return the number of bytes up to the last line break outside of quotes."""
    end = data.rfind(b"\n")
    while quotes and end >= 0 and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end)
    return end + 1
