"""Predictions as rows of a table, for a file, standard output or a function."""

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from foretrace._runs.appended import AppendedFile, FileMark
from foretrace._runs.directory import Run, RunError
from foretrace._runs.escape import for_terminal
from foretrace.stream.model.intake import Intake, State
from foretrace.stream.model.intervals import bounded
from foretrace.stream.read.source import SYMBOL
from foretrace.stream.read.target import ClassTarget, Target
from foretrace.stream.read.values import as_label
from foretrace.stream.runs.config import LINE_FORMATS, STDOUT, StreamConfig

OnPrediction = Callable[[dict[str, Any]], Any]
"""A function that is called with each row of the table of predictions."""


class Table:
    """Conversion of the model's outputs into rows of a table.

    A row has the number of the stream's row, the member and the id if columns name them, and the
    prediction, which was made before the label was known. For a number, the row also has the ends
    of the interval. For a class, it has the probability, 1 or 0 for each alarm, and the
    probabilities of all classes under `probabilities`. With a horizon, the predictions are for the
    following rows.
    The surprise is for the label that arrived with the row; it is None without a label, or if too
    few labels are known.

    Args:
        config: configuration of the stream.
        target: predicted quantity.
        learns: whether labels are learned, and so have a surprise.

    `names` are the columns of the table as CSV, which does not have `probabilities`.

    Raises:
        ValueError: two columns would have the same name.
    """

    def __init__(self, config: StreamConfig, target: Target, *, learns: bool = True):
        self._target, self._at_least = target, config.at_least
        self._thresholds = [*config.alarms.values()]
        self._keys = [name for name in (config.member, config.id) if name is not None]
        name = SYMBOL if config.target is None else config.target
        if isinstance(target, ClassTarget):
            values = [name, "probability", *(f"alarm_{one}" for one in config.alarms)]
        else:
            values = [f"{name}+{i}" for i in range(1, config.horizon + 1)] or [name]
            values += [f"{value}_{end}" for value in values for end in ("low", "high")]
        self.names = ["row", *self._keys, *values, *(["surprise"] if learns else [])]
        if twice := {one for one in self.names if self.names.count(one) > 1}:
            raise ValueError(
                f"the table of predictions would have two columns {sorted(twice)[0]!r}: its "
                f"columns are {', '.join(self.names)}; give this column of the source another name"
            )

    def row(
        self,
        number: int,
        row: Mapping[str, Any],
        output: np.ndarray,
        told: np.ndarray,
        surprise: float = math.nan,
    ) -> dict[str, Any]:
        """Return a row of the table.

        Args:
            number: number of the row in the stream, counted from 1.
            row: the row.
            output: output of the model for the row.
            told: number of classes that were known at the prediction, or the margins of the
                numbers.
            surprise: surprise of the label that came with it; NaN for none.
        """
        last = [None if math.isnan(surprise) else round(surprise, 4)]
        keys = [row.get(name) for name in self._keys]
        if not isinstance(self._target, ClassTarget):
            output, *ends = bounded(output, told, self._at_least)
            found = [*output.tolist(), *np.stack(ends, axis=1).ravel().tolist()]
            found = [None if math.isnan(one) else one for one in found]  # no number is known
            return dict(zip(self.names, [number, *keys, *found, *last], strict=False))
        known = self._target.classes[: int(told)]
        shares = self._target.probabilities(output, len(known)).tolist()
        best = int(np.argmax(shares)) if known else 0
        found = [known[best], shares[best]] if known else [None, None]
        every = dict(zip(map(as_label, known), shares, strict=True))
        marked = zip(self._target.watched, self._thresholds, strict=True)
        marks = [int(0 <= at < len(known) and shares[at] >= least) for at, least in marked]
        out = dict(zip(self.names, [number, *keys, *found, *marks, *last], strict=False))
        return out | {"probabilities": every}


def forecast(config: StreamConfig, intake: Intake, state: State) -> list[dict[str, Any]]:
    """Return the forecast of each member as rows of a table; an empty list without a horizon.

    A row has the member, and the number and times of the member's last row, which is followed by
    the predicted values.
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
    """Writer of rows of a table, one per line, flushed for readers of a pipe.

    Args:
        file: file with the methods `write` and `flush`.
        names: columns of the CSV.
        is_csv: whether the lines are CSV. If not, they are JSON and contain all values of a row.
        header: whether the first line of the CSV has the names.
    """

    def __init__(
        self, file: Any, names: Sequence[str], *, is_csv: bool = True, header: bool = True
    ):
        self._file, self._names = file, names
        # With Windows' line ending, every version of Python also quotes a single \r or \n.
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
        """Write a line. On a terminal, control characters are removed."""
        self._write([self._shown(one) if isinstance(one, str) else one for one in values])
        self._file.flush()


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file of predictions means CSV; otherwise it is JSON lines."""
    return LINE_FORMATS.get(Path(path).suffix.lower()) != "jsonl"


class Outlet:
    """Destination of a run's predictions. Nothing is written before `open`.

    Args:
        config: configuration of the run.
        target: predicted quantity.
        also: function that is called with each row of the table.
        run: files of the run.
        mark: size and digest of the file at the checkpoint from which the run continues; None
            without a checkpoint.

    Raises:
        FileExistsError: the file exists, and the run has no checkpoint.
        RunError: the beginning of the file has changed since the checkpoint.
        ValueError: the folder of the file cannot be used, or two columns of the table would have
            the same name.
    """

    def __init__(
        self,
        config: StreamConfig,
        target: Target,
        also: OnPrediction | None,
        run: Run,
        mark: FileMark | None,
    ):
        self._target = config.predictions
        self._table = Table(config, target)
        self._sinks: list[OnPrediction] = [] if also is None else [also]
        self._file: AppendedFile | None = None
        self._keep: int | None = None
        if self._target is None or self._target == STDOUT:
            return
        path = Path(self._target)
        _check_place(path, run)
        if mark is not None:
            if (difference := mark.difference(path)) is not None:
                raise RunError(
                    f"{path} {difference}; put the predictions of the run back, or begin a new run"
                )
            self._keep = mark.size
        elif os.path.lexists(path):
            if not (run.config.exists() and self._is_begun(path)):
                raise FileExistsError(
                    f"{path} exists already; move it, or choose another file for --predictions"
                )
            self._keep = 0

    def _is_begun(self, path: Path) -> bool:
        """Return whether a file has no rows, after a kill before the first checkpoint."""
        header = io.StringIO()
        LineWriter(header, self._table.names, is_csv=is_csv(path))
        return path.is_file() and header.getvalue().encode().startswith(path.read_bytes())

    def open(self) -> None:
        """Open the file, and remove the rows that were written after the checkpoint."""
        names = self._table.names
        if self._target == STDOUT:
            self._sinks.append(LineWriter(sys.stdout, names))
        elif self._target is not None:
            self._file, begins = AppendedFile(Path(self._target), self._keep), not self._keep
            self._sinks.append(
                LineWriter(self._file, names, is_csv=is_csv(self._target), header=begins)
            )

    def __bool__(self) -> bool:
        """Return whether predictions are written."""
        return bool(self._sinks)

    def __call__(
        self,
        number: int,
        row: Mapping[str, Any],
        output: np.ndarray,
        told: np.ndarray,
        surprise: float,
    ) -> None:
        """Write the prediction for a row; arguments as in `Table.row`."""
        found = self._table.row(number, row, output, told, surprise)
        for sink in self._sinks:
            sink(found)

    def mark(self) -> FileMark | None:
        """Return size and digest of the file on the disk for a checkpoint."""
        if self._file is None:
            return None
        self._file.sync()
        return self._file.mark()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _check_place(path: Path, run: Run) -> None:
    """Check that the folder of a file of predictions exists and is outside the run directory."""
    if path.resolve().is_relative_to(run.path.resolve()):
        raise ValueError(
            f"predictions={str(path)!r} is in the run directory {run.path}, whose files the run "
            "itself writes; choose a file outside of it"
        )
    if not path.parent.is_dir():
        raise ValueError(f"predictions={str(path)!r}: there is no folder {path.parent}; make it")
