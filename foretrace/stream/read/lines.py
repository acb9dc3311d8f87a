"""Lines of a file or of standard input as text, gzip or not, in bounded memory."""

import gzip
import hashlib
import io
import zlib
from collections import deque
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from foretrace.stream.read.pipe import Pipe

Encoding = Literal["utf-8", "latin-1"]
Row = dict[str, Any]

MAX_LINE = 2**20
"""Maximum number of bytes of a row. A gigabyte without a line break is not read into memory."""

MAX_COLUMNS = 1024
"""Maximum number of columns of a source."""

STDIN = "-"
_GZIP = b"\x1f\x8b"
_BLOCK = 2**20


class Position(NamedTuple):
    """Position in a source from which reading continues.

    Args:
        row: number of rows that were read.
        line: number of lines that were read, including the header.
        offset: number of bytes of the decompressed text that were read.
        bad: number of rows that were skipped because they could not be read.
        is_torn: whether the last row has no line break and may be incomplete. Reading must not
            continue at such a position.
        digest: SHA-256 of the content that was read: the bytes of a file, or the rows of a parquet
            file. Reading continues only if a file begins with this content.
    """

    row: int = 0
    line: int = 0
    offset: int = 0
    bad: int = 0
    is_torn: bool = False
    digest: str = ""


class SourceError(ValueError):
    """Data cannot be read. The message names the place, the expected data and a remedy."""


class BadRow(SourceError):
    """A row cannot be read, but the following rows can."""


class ReplacedError(SourceError):
    """A file does not begin with the bytes that were read from it earlier.

    Args:
        name: name of the file.
        difference: description of the difference.
    """

    def __init__(self, name: str, difference: str):
        super().__init__(
            f"{name} is not the file that was read before: {difference}. Give the run its original "
            "file back, or begin a new run for this one, in another --run-dir"
        )


def check_width(place: str, names: Sized) -> None:
    """Check the number of columns.

    Raises:
        BadRow: there are too many columns.
    """
    if len(names) > MAX_COLUMNS:
        raise BadRow(
            f"{place}: {len(names)} columns, but at most {MAX_COLUMNS} are read; leave some out"
        )


def check_flat(place: str, row: Mapping[str, Any]) -> None:
    """Check that each value of a row is a single value.

    Raises:
        BadRow: a column contains a list or another container.
    """
    for name, value in row.items():
        if isinstance(value, dict | list | tuple | set):
            what = type(value).__name__
            raise BadRow(f"{place}: {name[:80]!r} holds a {what}; flatten it into columns")


def open_bytes(path: str, pipe: Any = None) -> Any:
    """Open a file or standard input, and decompress it if it begins like a gzip file.

    Args:
        path: path of the file, or "-" for standard input.
        pipe: standard input, if a part of it may already have been read, or the journal at this
            path.

    Raises:
        SourceError: the file does not exist, is a folder, or may not be read.
    """
    if path == STDIN:
        pipe = Pipe() if pipe is None else pipe
        return _Gzip(pipe) if pipe.peek(2) == _GZIP else pipe
    if pipe is not None:
        return pipe
    if Path(path).is_dir():
        raise SourceError(f"{path} is a folder; give a file, or - for standard input")
    else:
        try:
            file = open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    # Recognised by its first bytes, because a pipe has no name.
    peek = getattr(file, "peek", None)
    return _Gzip(file) if peek is not None and peek(2)[:2] == _GZIP else file


class _Gzip(gzip.GzipFile):
    """A gzip file that also closes the file from which it reads."""

    def __init__(self, below: Any):
        super().__init__(fileobj=below, mode="rb")
        self._below = below

    def close(self) -> None:
        """Close the gzip file and the file from which it reads."""
        super().close()
        self._below.close()


class Lines:
    """Iterator over the lines of a file. `offset` bytes and `number` lines have been returned.

    The present row begins at the offset `row_began`.

    If `is_torn` is true, the last line has no line break and may be incomplete.

    A digest covers all bytes of a file up to the offset. When reading continues later, these bytes
    are read once more, which takes a second for a gigabyte, so that a file that was replaced, cut
    or edited there is noticed. The bytes after the offset may have changed. Standard input cannot
    be read again and has no digest.

    Args:
        path: path of the file, or "-" for standard input.
        encoding: encoding of the text.
        pipe: standard input, if a part of it may already have been read, or the journal at this
            path.
    """

    def __init__(self, path: str, encoding: Encoding, pipe: Any = None):
        self.name = "standard input" if path == STDIN else path
        self.encoding = encoding
        with explained(self.name):
            self._file = open_bytes(path, pipe)
        self.offset = self.number = 0
        self.is_torn = False
        self._row_lines: list[bytes] = []
        self._again: deque[bytes] = deque()
        self._sha256 = None if path == STDIN else hashlib.sha256()
        self.row_began = 0

    def seek(self, offset: int, number: int, digest: str) -> None:
        """Continue at a byte of the (decompressed) text.

        Args:
            offset: number of bytes that were read before.
            number: number of lines in these bytes.
            digest: `digest` at this offset.

        Raises:
            ReplacedError: the file begins with different bytes.
        """
        sha256, left = hashlib.sha256(), offset
        with explained(self.name):
            self._file.seek(0)
            while left and (block := self._file.read(min(left, _BLOCK))):
                sha256.update(block)
                left -= len(block)
        if left:
            difference = f"it is shorter than the {offset} bytes that were read of it"
            raise ReplacedError(self.name, difference)
        if sha256.hexdigest() != digest:
            difference = (
                f"its first {offset} bytes, up to line {number}, are not those that were read"
            )
            raise ReplacedError(self.name, difference)
        self._row_lines.clear()
        self._sha256 = sha256
        self.offset, self.number = offset, number

    def begin_row(self) -> None:
        """Mark the beginning of a row. The lines of a row together may not exceed `MAX_LINE`."""
        self._settle()
        self.row_began = self.offset

    def retry_from_second_line(self) -> None:
        """Go back to the second line of the present row, if the row has several lines."""
        rest = self._row_lines[1:]
        self._again.extendleft(reversed(rest))
        del self._row_lines[1:]
        self.offset -= sum(map(len, rest))
        self.number -= len(rest)

    def digest(self) -> str:
        """Return the SHA-256 of all bytes up to the offset, in hexadecimal; "" for a pipe."""
        self._settle()
        return "" if self._sha256 is None else self._sha256.hexdigest()

    def _settle(self) -> None:
        """Add the finished lines of the present row to the digest."""
        if self._sha256 is not None:
            for line in self._row_lines:
                self._sha256.update(line)
        self._row_lines.clear()

    def read(self, size: int) -> bytes:
        """Return the next bytes; an empty result at the end. `add` counts them as read."""
        with explained(self.name):
            return self._file.read(size)

    def add(self, data: bytes) -> None:
        """Count the bytes of a symbol, which `read` has returned, as read."""
        self.offset += len(data)
        self.number += data == b"\n"
        if self._sha256 is not None:
            self._sha256.update(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.name != "standard input":
            self._file.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        with explained(self.name):
            line = self._again.popleft() if self._again else self._file.readline(MAX_LINE + 1)
        if not line:
            raise StopIteration
        self._row_lines.append(line)
        self.offset += len(line)
        self.number += 1
        self.is_torn = not line.endswith(b"\n")
        if self.offset - self.row_began > MAX_LINE:
            # A single line may be too long for the memory. Of several lines, the first may be the
            # fault.
            raise (SourceError if len(self._row_lines) == 1 else BadRow)(
                f"{self.name}, line {self.number}: a row of more than {MAX_LINE} bytes; is a line "
                "break or a closing quote missing, or is this not a text file?"
            )
        return self._decode(line)

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            raise BadRow(
                f"{self.name}, line {self.number}: a zero byte, so this is not text; give a text "
                "file"
            )
        try:
            text = line.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise BadRow(
                f"{self.name}, line {self.number}: byte {error.start + 1} is not {self.encoding}; "
                "convert the file, or read it with --encoding latin-1"
            ) from error
        return text.removeprefix("\ufeff") if self.number == 1 else text


class explained:
    """Context that turns errors of a damaged or truncated file into a `SourceError`."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            raise SourceError(
                f"{self.name} is damaged or incomplete gzip data ({error})"
            ) from error
        if isinstance(error, io.UnsupportedOperation):
            raise SourceError(f"{self.name} cannot be read from an earlier place") from error
        if isinstance(error, OSError):
            raise SourceError(f"{self.name} cannot be read: {error.strerror or error}") from error
