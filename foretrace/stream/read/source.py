"""Rows of a CSV, TSV, JSON-lines, parquet or text file or pipe, read one by one with positions.

Files are data: nothing in them is executed, and the memory is bounded for any content. Each row
comes with the position after it. Reading that continues at this position gives the same rows as
reading without interruption.
"""

import codecs
import csv
import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.formats import read_date
from foretrace.stream.read.journal import Journal
from foretrace.stream.read.lines import (
    STDIN,
    BadRow,
    Encoding,
    Lines,
    Position,
    ReplacedError,
    Row,
    SourceError,
    check_flat,
    check_width,
)
from foretrace.stream.read.pipe import Pipe

Format = Literal["auto", "csv", "tsv", "jsonl", "parquet", "text"]
BadRows = Literal["stop", "skip"]

MAX_IN_A_ROW = 2**20
"""Maximum number of consecutive blank lines or bad rows, because a source may have no end."""

SYMBOL = "symbol"
"""The only column of a text, which contains its characters."""

_BLOCK = 2**16

_SUFFIXES: dict[str, Format] = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"},
    **{".parquet": "parquet", ".txt": "text", ".text": "text"},
}


class Source:
    r"""A file or standard input as rows: dictionaries from column to text, number, truth or None.

    Args:
        path: path of the file, gzip or not, or "-" for standard input.
        format: format of the rows. "auto" is determined by the name of the file.
        delimiter: character between the fields of a CSV file. Default: a comma, or a tab for TSV.
        encoding: encoding of the text.
        bad_rows: action for a row that cannot be read: "stop" raises an error, and "skip" counts
            the row. A row that is too long and a header that cannot be read always raise an error.
        times: date format of some columns, as in `read_date`. Values that fit the format become
            dates.
        ahead: columns whose values are known in advance, for which rows are read ahead.
        journal: file at this path to which lines are added while it is read. Default: none.

    Raises:
        SourceError: the name does not determine the format, the delimiter is not one character, or
            rows of standard input would have to be read ahead.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("x,y\n1,a\n2,b\n")
    >>> source = Source(str(path))
    >>> (first, position), *_ = source.rows()
    >>> first, [row for row, _ in source.rows(position)]
    ({'x': '1', 'y': 'a'}, [{'x': '2', 'y': 'b'}])
    """

    def __init__(
        self,
        path: str,
        format: Format = "auto",
        *,
        delimiter: str | None = None,
        encoding: Encoding = "utf-8",
        bad_rows: BadRows = "stop",
        times: Mapping[str, str] | None = None,
        ahead: Ahead | None = None,
        journal: Journal | None = None,
    ):
        if ahead is not None and (path == STDIN or journal is not None):
            raise SourceError(
                "known: the next rows of standard input are not there yet when a row is predicted; "
                "give a file, with the rows to come after the last one that has a target"
            )
        self.ahead = ahead
        self.times = dict(times or {})
        self.path = path
        self.pipe = Pipe() if path == STDIN else journal
        self.format = detect_format(path) if format == "auto" else format
        self.encoding = encoding
        self.bad_rows = bad_rows
        self.name = "standard input" if path == STDIN else path
        self.delimiter = delimiter or ("\t" if self.format == "tsv" else ",")
        if len(self.delimiter) != 1:
            raise SourceError(f"delimiter={delimiter!r} must be a single character")

    def rows(self, after: Position | None = None) -> Iterator[tuple[Row, Position]]:
        """Yield rows, each with the position after it.

        Args:
            after: position from which to continue. Standard input instead continues with the rows
                that arrive, after another header.

        Raises:
            SourceError: the source cannot be read.
            ReplacedError: the rows up to `after` differ from the rows that were read before.
        """
        rows = self._rows(after or Position())
        rows = map(self.dated, rows) if self.times else rows
        return rows if self.ahead is None else self.ahead.rows(rows)

    def dated(self, item: tuple[Row, Position]) -> tuple[Row, Position]:
        """Return a row and its position, with texts in a date format converted to dates."""
        for name, form in self.times.items():
            if (date := read_date(item[0].get(name), form)) is not None:
                item[0][name] = date
        return item

    def _rows(self, after: Position) -> Iterator[tuple[Row, Position]]:
        """Yield rows with unconverted values."""
        if self.format == "parquet":
            yield from self._parquet(after)
            return
        with Lines(self.path, self.encoding, self.pipe) as lines:
            if self.format == "text":
                yield from self._text(lines, after)
            elif self.format == "jsonl":
                yield from self._jsonl(lines, after)
            else:
                yield from self._csv(lines, after)

    def _csv(self, lines: Lines, after: Position) -> Iterator[tuple[Row, Position]]:
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        try:
            first = self._fields(reader, lines)
            if first is None:
                if self.path == STDIN and after.row:
                    return  # a pipe that had no rows left
                raise SourceError(f"{self.name} is empty; the first line must name the columns")
            columns = _checked_header(self.name, first)
        finally:
            self._seek(lines, after)  # also if the header is wrong: it may be another file's

        def read_row() -> Row | None:
            fields, blank = self._fields(reader, lines), 0
            if fields == [] and len(columns) == 1:
                fields = [""]  # a blank line is an empty value of a single column
            while fields == []:  # a blank line
                fields, blank = self._fields(reader, lines), self._count_blank(blank, lines)
            if fields is None:
                return None
            self._check_length(fields, columns, lines.number)
            return dict(zip(columns, fields, strict=True))

        yield from self._good_rows(lines, after, read_row)

    def _fields(self, reader: Any, lines: Lines) -> list[str] | None:
        lines.begin_row()
        try:
            return next(reader, None)
        except csv.Error as error:
            raise BadRow(
                f"{self.name}, line {lines.number}: not a row of {self.format} ({error}); repair "
                "the quotes, or leave such rows out with --bad-rows skip"
            ) from error

    def _seek(self, lines: Lines, after: Position) -> None:
        """Continue after a position. A pipe is already at this position."""
        if after.offset and self.path != STDIN:
            lines.seek(after.offset, after.line, after.digest)

    def _count_blank(self, blank: int, lines: Lines) -> int:
        if blank >= MAX_IN_A_ROW:
            raise SourceError(
                f"{self.name}, line {lines.number}: more than {MAX_IN_A_ROW} blank lines one after "
                "another; is this the right source?"
            )
        return blank + 1

    def _check_length(self, fields: list[str], columns: tuple[str, ...], line: int) -> None:
        if len(fields) != len(columns):
            raise BadRow(
                f"{self.name}, line {line}: {len(fields)} fields, but the header names "
                f"{len(columns)} columns; repair the row, choose another --delimiter (now "
                f"{self.delimiter!r}), or leave such rows out with --bad-rows skip"
            )

    def _jsonl(self, lines: Lines, after: Position) -> Iterator[tuple[Row, Position]]:
        self._seek(lines, after)

        def read_row() -> Row | None:
            lines.begin_row()
            text, blank = next(lines, None), 0
            while text is not None and not text.strip():
                lines.begin_row()
                text, blank = next(lines, None), self._count_blank(blank, lines)
            return None if text is None else self._object(text, lines.number)

        end = yield from self._good_rows(lines, after, read_row)
        if not end.row and not end.bad:
            raise SourceError(f"{self.name} is empty; each line must be a JSON object")

    def _good_rows(
        self, lines: Lines, after: Position, read_row: Callable[[], Row | None]
    ) -> Generator[tuple[Row, Position], None, Position]:
        """Yield each readable row and the position after it; return the position at the end.

        Args:
            lines: lines that `read_row` reads.
            after: position before the first row.
            read_row: function that reads the next row and returns None at the end. If it raises
                `BadRow`, reading stops, or the row is counted.
        """
        row, bad, in_a_row = after.row, after.bad, 0
        while True:
            try:
                values = read_row()
            except BadRow as error:
                if self.bad_rows == "stop":
                    if lines.is_torn:
                        raise BadRow(
                            f"{error}. It is the last line, without a line break: is it complete?"
                        ) from error
                    raise
                # An open quote includes the rows after it, but only its own line is bad.
                lines.retry_from_second_line()
                bad += 1
                in_a_row += 1
                if in_a_row > MAX_IN_A_ROW:
                    raise SourceError(
                        f"{error}. {in_a_row} rows one after another could not be read; is this "
                        "the right source?"
                    ) from error
                continue
            in_a_row = 0
            row += values is not None
            now = Position(row=row, line=lines.number, offset=lines.offset, bad=bad)
            if values is None:
                return now
            yield values, now._replace(is_torn=lines.is_torn, digest=lines.digest())

    def _object(self, text: str, line: int) -> Row:
        place = f"{self.name}, line {line}"
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"{place}: not JSON ({error}); each line must be one object") from error
        if not isinstance(values, dict):
            raise BadRow(
                f"{place}: a JSON {type(values).__name__}, but each line must be an object, column "
                "to value"
            )
        check_width(place, values)
        check_flat(place, values)
        return values

    def _text(self, lines: Lines, after: Position) -> Iterator[tuple[Row, Position]]:
        self._seek(lines, after)
        symbols = self._symbols(lines, is_start=not after.row)
        end = yield from self._good_rows(lines, after, lambda: next(symbols, None))
        if not end.row:
            raise SourceError(f"{self.name} is empty")

    def _symbols(self, lines: Lines, *, is_start: bool) -> Iterator[Row]:
        decoder, block = codecs.getincrementaldecoder(self.encoding)(), b"?"
        while block:
            block = lines.read(_BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                where = f"{self.name}, line {lines.number + 1} or later"
                raise SourceError(
                    f"{where}: not {self.encoding} ({error.reason}); try --encoding latin-1"
                ) from error
            for symbol in text:
                lines.add(symbol.encode(self.encoding))
                if symbol == "\0":
                    raise SourceError(
                        f"{self.name}, line {lines.number + 1}: a zero byte, so this is not text"
                    )
                if not is_start or symbol != "\ufeff":
                    is_start = False
                    yield {SYMBOL: symbol}

    def _parquet(self, after: Position) -> Iterator[tuple[Row, Position]]:
        """Yield the rows of a parquet file, each with the position after it."""
        from foretrace.stream.read.parquet import parquet_rows

        if self.path == STDIN:
            raise SourceError(
                "parquet cannot be read from standard input: its directory is at its end; give a "
                "file"
            )
        yield from self._table(parquet_rows(self.path), after)

    def _compared(self, values: Row) -> Row:
        """Return the values by which a row is compared with the row that was read before."""
        return values

    def _table(self, rows: Iterable[Row], after: Position) -> Iterator[tuple[Row, Position]]:
        """Yield the rows of a table after a position, each with its own position."""
        row, sha256 = 0, hashlib.sha256()
        # A table that has grown is written anew in every byte, so its rows are compared instead.
        for row, values in enumerate(rows, 1):
            sha256.update(json.dumps(self._compared(values), default=str).encode())
            if row == after.row and sha256.hexdigest() != after.digest:
                raise ReplacedError(self.name, f"its first {row} rows are not those that were read")
            if row > after.row:
                yield values, Position(row=row, digest=sha256.hexdigest())
        if row < after.row:
            difference = f"it has {row} rows, fewer than the {after.row} that were read of it"
            raise ReplacedError(self.name, difference)


def check_row_count(rows: int | None) -> None:
    """Check a number of rows after which to stop; None for all rows.

    Raises:
        ValueError: the number is negative.
    """
    if rows is not None and rows < 0:
        raise ValueError(f"rows={rows} must not be negative: give the number of rows to read")


def detect_format(path: str) -> Format:
    """Return the format that the name of a file indicates.

    Raises:
        SourceError: the name does not determine a format.

    >>> detect_format("sensors.csv.gz")
    'csv'
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() != ".gz"]
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    name = "standard input has no name" if path == STDIN else f"the name {path} does not say"
    raise SourceError(
        f"{name} what it holds: say so with --format csv, tsv, jsonl, parquet or text"
    )


def _checked_header(name: str, columns: list[str]) -> tuple[str, ...]:
    columns = [column.strip() for column in columns]
    check_width(f"{name}, line 1", columns)
    for column in columns:
        if not column or columns.count(column) > 1:
            what = f"two columns named {column[:80]!r}" if column else "a column without a name"
            raise SourceError(f"{name}, line 1: {what}; the first line must name every column once")
    return tuple(columns)
