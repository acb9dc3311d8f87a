"""Predictions as rows of a table, and where the rows go: a file, standard output, a function."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from foretrace._experts.intervals import bounded
from foretrace._rows.source import SYMBOL
from foretrace._rows.target import ClassTarget, Target
from foretrace._rows.values import as_label
from foretrace._runs.appended import AppendedFile, FileMark, identity
from foretrace._runs.directory import Run, RunError
from foretrace._runs.escape import for_terminal
from foretrace.stream._config import LINE_FORMATS, STDOUT, StreamConfig
from foretrace.stream._intake import Intake, State

OnPrediction = Callable[[dict[str, Any]], Any]
"""A function that is called with a row of the table of predictions."""


class Table:
    """Turn outputs for rows into rows of a table.

    A row has the number of the stream's row, its member and key if columns name them, and the
    prediction, which was made before the row's label was known. A number comes with the ends of its
    interval, a class with its probability, 1 or 0 for each alarm and, under `probabilities`, all
    classes' probabilities.
    With a horizon, the predictions belong to the rows behind it.

    Args:
        config: configuration of the stream.
        target: predicted quantity.

    `names` are the columns of a table of CSV, which has no `probabilities`.

    Raises:
        ValueError: two columns would have one name.
    """

    def __init__(self, config: StreamConfig, target: Target):
        self._target, self._at_least = target, config.at_least
        self._thresholds = [*config.alarms.values()]
        self._keys = [name for name in (config.member, config.id) if name is not None]
        name = SYMBOL if config.target is None else config.target
        if isinstance(target, ClassTarget):
            values = [name, "probability", *(f"alarm_{one}" for one in config.alarms)]
        else:
            values = [f"{name}+{i}" for i in range(1, config.horizon + 1)] or [name]
            values += [f"{value}_{end}" for value in values for end in ("low", "high")]
        self.names = ["row", *self._keys, *values]
        if twice := {one for one in self.names if self.names.count(one) > 1}:
            raise ValueError(
                f"the table of predictions would have two columns {sorted(twice)[0]!r}: its "
                f"columns are {', '.join(self.names)}; give this column of the source another name"
            )

    def row(
        self, number: int, row: Mapping[str, Any], output: np.ndarray, told: np.ndarray
    ) -> dict[str, Any]:
        """Return a row of the table.

        Args:
            number: number of the row in the stream, from 1.
            row: the row.
            output: output for it.
            told: number of classes that were known then, or the margins of the numbers.
        """
        keys = [row.get(name) for name in self._keys]
        if not isinstance(self._target, ClassTarget):
            output, *ends = bounded(output, told, self._at_least)
            found = [*output.tolist(), *np.stack(ends, axis=1).ravel().tolist()]
            return dict(zip(self.names, [number, *keys, *found], strict=True))
        known = self._target.classes[: int(told)]
        shares = self._target.probabilities(output, len(known)).tolist()
        best = int(np.argmax(shares)) if known else 0
        found = [known[best], shares[best]] if known else [None, None]
        every = dict(zip(map(as_label, known), shares, strict=True))
        marked = zip(self._target.watched, self._thresholds, strict=True)
        marks = [int(0 <= at < len(known) and shares[at] >= least) for at, least in marked]
        out = dict(zip(self.names, [number, *keys, *found, *marks], strict=True))
        return out | {"probabilities": every}


def forecast(config: StreamConfig, intake: Intake, state: State) -> list[dict[str, Any]]:
    """Return the next values of each member, row by row of a table; none without a horizon.

    A row has the member, and the number and times of its last row, which the values are behind.
    """
    if config.target is None or not config.horizon:
        return []
    found, ends = [], ("", "_low", "_high")
    for name, output, margins in intake.waiting(state):
        columns = bounded(output, margins, config.at_least)
        for i, values in enumerate(zip(*columns, strict=True), 1):
            row = {} if config.member is None else {config.member: name}
            row |= intake.streams.table.members[name].last | {"ahead": i}
            pairs = zip(ends, map(float, values), strict=True)
            found.append(row | {config.target + end: value for end, value in pairs})
    return found


class LineWriter:
    """Write rows of a table, one a line, flushed: a reader of a pipe waits for it.

    Args:
        file: where to write, by `write` and `flush`.
        names: columns of CSV.
        is_csv: whether the lines are CSV, rather than JSON, which has all that a row has.
        header: whether the names are the first line of CSV.
    """

    def __init__(
        self, file: Any, names: Sequence[str], *, is_csv: bool = True, header: bool = True
    ):
        self._file, self._names = file, names
        # With Windows' line ending, every version of Python quotes \r and \n alone, too.
        line = SimpleNamespace(write=lambda text: file.write(text.removesuffix("\r\n") + "\n"))
        self._write = csv.writer(line, lineterminator="\r\n").writerow
        is_terminal = getattr(file, "isatty", lambda: False)()
        self._shown: Callable[[str], str] = for_terminal if is_terminal else str
        self._is_csv = is_csv
        if is_csv and header:
            self._line(names)

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Write a row."""
        if self._is_csv:
            self._line([row[name] for name in self._names])
        else:
            self._file.write(json.dumps(row, default=str) + "\n")
            self._file.flush()

    def _line(self, values: Sequence[Any]) -> None:
        """Write texts as they are to a file, without control characters to a terminal."""
        self._write([self._shown(one) if isinstance(one, str) else one for one in values])
        self._file.flush()


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Return whether a file of predictions is CSV, rather than JSON lines, by its name."""
    return LINE_FORMATS.get(Path(path).suffix.lower()) != "jsonl"


class Outlet:
    """Where the predictions of a run go; nothing is written before `open`.

    Args:
        config: configuration of the run.
        target: predicted quantity.
        also: function that is called with each row of the table.
        run: files of the run.
        mark: file at the last checkpoint, or as the run began it; None if it has begun none.
        rows: number of rows at the last checkpoint.

    Raises:
        FileExistsError: there is such a file, and the run has begun none.
        RunError: the file is not the one that the run has begun.
        ValueError: the file is the source, or a file of the run; or two columns of the table would
            have one name.
    """

    def __init__(
        self,
        config: StreamConfig,
        target: Target,
        also: OnPrediction | None,
        run: Run,
        mark: FileMark | None,
        rows: int,
    ):
        self._target, self._mark = config.predictions, mark
        self._table = Table(config, target)
        self._sinks: list[OnPrediction] = [] if also is None else [also]
        self._file: AppendedFile | None = None
        if not self._has_file:
            return
        path = Path(str(config.predictions))
        _check_apart(path, run, Path(config.source))
        if mark is None:
            if os.path.lexists(path):
                raise FileExistsError(
                    f"{path} exists already; choose another file for --predictions"
                )
        elif (difference := self._difference(path, mark, rows)) is not None:
            raise RunError(
                f"{path} {difference}; put the predictions of the run back, or begin a new run"
            )

    @property
    def _has_file(self) -> bool:
        return self._target not in (None, STDOUT)

    def _difference(self, path: Path, mark: FileMark, rows: int) -> str | None:
        """Return in which way a file is not the one that the run has begun; None if it is."""
        if not path.is_file():
            return "is missing"
        if (found := mark.difference(path)) is not None:
            return found
        # A copy may go on if nothing of it is cut off, and what it holds are rows of the run.
        is_copy = rows > 0 and path.stat().st_size == mark.size
        if mark.identity not in (None, identity(path)) and not is_copy:
            return (
                "is another file than the one that the run began; of a copy, only the "
                f"{mark.size} bytes of the checkpoint may be there"
            )
        start = self._start(rows + 1, is_new=not mark.size)
        with open(path, "rb") as file:
            file.seek(mark.size)
            if not start.startswith(file.read(len(start))):  # the last row of a kill may be torn
                return f"was changed: row {rows + 1} does not follow the bytes of the checkpoint"
        return None

    def _start(self, row: int, *, is_new: bool) -> bytes:
        """Return the first bytes from a row on, behind the header of a new file."""
        text, lines = io.StringIO(), is_csv(str(self._target))
        LineWriter(text, self._table.names, is_csv=lines, header=is_new)
        text.write(f"{row}," if lines else f'{{"row": {row},')
        return text.getvalue().encode("utf-8", "backslashreplace")

    @contextmanager
    def claimed(self) -> Iterator[FileMark | None]:
        """Make the file of a run that has begun none; it goes again if the block fails.

        Raises:
            FileExistsError: another process has made it meanwhile.
        """
        if self._has_file and self._mark is None:
            self._file = AppendedFile(Path(str(self._target)))
        try:
            yield self.mark()
        except BaseException:
            if self._file is not None:
                self.close()
                Path(str(self._target)).unlink()
            raise

    def open(self) -> None:
        """Open the file, without the rows that a killed process wrote behind the checkpoint."""
        names = self._table.names
        if self._target == STDOUT:
            self._sinks.append(LineWriter(sys.stdout, names))
        elif self._target is not None:
            keep = 0 if self._mark is None else self._mark.size
            self._file = self._file or AppendedFile(Path(self._target), keep)
            self._sinks.append(
                LineWriter(self._file, names, is_csv=is_csv(self._target), header=not keep)
            )

    def __bool__(self) -> bool:
        """Return whether predictions go anywhere."""
        return bool(self._sinks)

    def __call__(
        self, number: int, row: Mapping[str, Any], output: np.ndarray, told: np.ndarray
    ) -> None:
        """Write the prediction for a row; the arguments are as for `Table.row`."""
        found = self._table.row(number, row, output, told)
        for sink in self._sinks:
            sink(found)

    def mark(self) -> FileMark | None:
        """Return size and digest of the file on the disk, for a checkpoint."""
        if self._file is None:
            return None
        self._file.sync()
        return self._file.mark()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _check_apart(path: Path, run: Run, source: Path) -> None:
    """Check that a file of predictions is neither the source nor a file of the run."""
    folder, there = run.path.resolve(), [source]
    if path.resolve().is_relative_to(folder):
        raise ValueError(
            f"predictions={str(path)!r} is in the run directory {run.path}, whose files the run "
            "itself writes; choose a file outside of it"
        )
    if folder.is_dir():
        there += folder.rglob("*")
    for other in there if path.exists() else ():
        if other.exists() and path.samefile(other):
            raise ValueError(
                f"predictions={str(path)!r} is the file {other}, which the run itself reads or "
                "writes; choose another file"
            )
