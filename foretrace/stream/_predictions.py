"""Predictions as rows of a table, and where the rows go: a file, standard output, a function."""

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from foretrace._rows.number_target import NumberTarget
from foretrace._rows.source import SYMBOL
from foretrace._rows.target import ClassTarget, Context, NumberContext, Target
from foretrace._rows.values import as_label
from foretrace._runs.appended import AppendedFile, FileMark
from foretrace._runs.directory import RunError
from foretrace._runs.escape import for_terminal
from foretrace.stream._config import LINE_FORMATS, STDOUT, StreamConfig
from foretrace.stream._intake import Intake, State

OnPrediction = Callable[[dict[str, Any]], Any]
"""A function that is called with a row of the table of predictions."""


class Table:
    """Turn outputs for rows into rows of a table.

    A row has the number of the stream's row, its member and key if columns name them, and the
    prediction, which was made before the row's label was known. A number comes with the ends of its
    interval, a class with its probability and, under `probabilities`, all classes' probabilities.
    With a horizon, the predictions belong to the rows behind it.

    Args:
        config: configuration of the stream.
        target: predicted quantity.

    `names` are the columns of a table of CSV, which has no `probabilities`.

    Raises:
        ValueError: two columns would have one name.
    """

    def __init__(self, config: StreamConfig, target: Target):
        self._target = target
        self._keys = [name for name in (config.member, config.id) if name is not None]
        name = SYMBOL if config.target is None else config.target
        if isinstance(target, ClassTarget):
            values = [name, "probability"]
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
        self, number: int, row: Mapping[str, Any], output: np.ndarray, context: Any
    ) -> dict[str, Any]:
        """Return a row of the table.

        Args:
            number: number of the row in the stream, from 1.
            row: the row.
            output: output for it.
            context: knowledge of the target then.
        """
        target = self._target
        found = target.describe(output, context)
        if isinstance(target, NumberTarget):
            found += target.interval(output, context).T.ravel().tolist()
        keys = [row.get(name) for name in self._keys]
        out = dict(zip(self.names, [number, *keys, *found], strict=True))
        if isinstance(target, ClassTarget):
            shares = target.probabilities(output, context.num_classes).tolist()
            known = target.classes.values[: context.num_classes]
            out["probabilities"] = dict(zip(map(as_label, known), shares, strict=True))
        return out


def forecast(config: StreamConfig, intake: Intake, state: State) -> list[dict[str, Any]]:
    """Return the next values of each member, row by row of a table; none without a horizon."""
    if config.target is None or not isinstance(intake.target, NumberTarget):
        return []
    found, ends = [], ("", "_low", "_high")
    for name, output, context in intake.waiting(state) if config.horizon else ():
        assert isinstance(context, NumberContext)
        columns = [intake.target.describe(output), *intake.target.interval(output, context)]
        for i, values in enumerate(zip(*columns, strict=True), 1):
            row = {} if config.member is None else {config.member: name}
            row |= {"ahead": i} | dict(
                zip((config.target + end for end in ends), map(float, values), strict=True)
            )
            found.append(row)
    return found


class _File(Protocol):
    def write(self, text: str, /) -> Any: ...

    def flush(self) -> None: ...


class LineWriter:
    """Write rows of a table, one a line, flushed: a reader of a pipe waits for it.

    Args:
        file: where to write.
        names: columns of CSV.
        is_csv: whether the lines are CSV, rather than JSON, which has all that a row has.
        header: whether the names are the first line of CSV.
    """

    def __init__(
        self, file: _File, names: Sequence[str], *, is_csv: bool = True, header: bool = True
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
        mark: size and digest of the file at the last checkpoint; None for a new run.

    Raises:
        FileExistsError: there is such a file, and the run is new.
        RunError: the file of a run that goes on is not the one of its checkpoint.
        ValueError: two columns of the table would have one name.
    """

    def __init__(
        self,
        config: StreamConfig,
        target: Target,
        also: OnPrediction | None,
        mark: FileMark | None,
    ):
        self._target, self._mark = config.predictions, mark
        self._table = Table(config, target)
        self._sinks: list[OnPrediction] = [] if also is None else [also]
        self._file: AppendedFile | None = None
        if not self._has_file:
            return
        path = Path(str(config.predictions))
        if mark is None:
            if os.path.lexists(path):
                raise FileExistsError(
                    f"{path} exists already; choose another file for --predictions"
                )
        elif (difference := mark.difference(path)) is not None:
            raise RunError(
                f"{path} {difference}; put the predictions of the run back, or begin a new run"
            )

    @property
    def _has_file(self) -> bool:
        return self._target not in (None, STDOUT)

    def open(self) -> None:
        """Open the file, without the rows that a killed process wrote behind the checkpoint."""
        names = self._table.names
        if self._target == STDOUT:
            self._sinks.append(LineWriter(sys.stdout, names))
        elif self._target is not None:
            keep = None if self._mark is None else self._mark.size
            self._file = AppendedFile(Path(self._target), keep)
            self._sinks.append(
                LineWriter(self._file, names, is_csv=is_csv(self._target), header=not keep)
            )

    def __bool__(self) -> bool:
        """Return whether predictions go anywhere."""
        return bool(self._sinks)

    def __call__(
        self, number: int, row: Mapping[str, Any], output: np.ndarray, context: Context
    ) -> None:
        """Write the prediction for a row; the arguments are as for `Table.row`."""
        found = self._table.row(number, row, output, context)
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
