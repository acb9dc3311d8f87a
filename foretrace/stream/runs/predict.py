"""Predictions for further rows without learning, and the columns on which they depend.

The importance of a column is computed from the squared changes of the predictions when the values
of the column are shuffled. It is the column's fraction of the sum over all columns:

   importance of j ~ sum over rows (f(x) - f(x with the x_j of another row))^2

The rows are predicted in their order, so the result includes every expert, lag and memory. For a
linear function of independent columns, the importance is the fraction of the variance that the
column causes.

Source: Jansen, Computer Physics Communications 117, 1999 (total effects).
"""

import copy
import logging
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from foretrace._runs.directory import Run
from foretrace._runs.metrics import read_metrics
from foretrace.stream.model.intake import Intake, Row, State
from foretrace.stream.read.lines import Encoding
from foretrace.stream.read.source import SYMBOL, BadRows, Format, Source, check_row_count
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.read.values import is_absent, is_missing
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Rows, check_columns
from foretrace.stream.runs.predictions import Table
from foretrace.stream.runs.saved import copy_state, opened

_LOGGER = logging.getLogger(__name__)


def predictions(
    run_dir: str | os.PathLike[str],
    source: str,
    *,
    format: Format = "auto",
    delimiter: str | None = None,
    encoding: Encoding | None = None,
    bad_rows: BadRows | None = None,
    rows: int | None = None,
    importance: bool = False,
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Return the columns and rows of a table of predictions, or of the importance of columns.

    Args:
        run_dir: directory of a run of `foretrace stream`. Its checkpoint is not changed.
        source: path of a file, or "-" for standard input.
        format: format of the source. "auto" is determined by the name.
        delimiter: character between the fields of a CSV file. Default: the run's delimiter.
        encoding: encoding of the text. Default: the run's encoding.
        bad_rows: action for a row that cannot be read, as in `Source`. Default: the run's action.
        rows: number of rows after which to stop. Default: all; 1,000 for the importance.
        importance: whether the table has the importance of each column, instead of predictions.

    Raises:
        ValueError: `rows` is negative, or less than 2 for the importance.
        RunError: there is no run, it has no checkpoint, or the checkpoint belongs to another run.
        CheckpointError: the checkpoint is damaged.
        SourceError: the source cannot be read, or its columns differ from the run's columns.
    """
    check_row_count(rows)
    run = opened(run_dir)
    config, plan, intake = run.config, run.plan, run.intake
    table = Table(config, intake.target, learns=False)
    ahead = config.ahead and replace(config.ahead, target=None)  # each row is predicted
    reader = Source(
        source,
        format,
        delimiter=delimiter or config.delimiter,
        encoding=encoding or config.encoding,
        bad_rows=bad_rows or config.bad_rows,
        times=config.time_formats,
        ahead=ahead,
    )
    rows = 1000 if importance and rows is None else rows
    needed = [*plan.inputs, *(name for name in config.roles if name != config.id)]
    found = check_columns(reader, reader.rows(), needed)
    stream = islice(_without_labels(config, intake, found, reader.name), rows)
    if importance:
        target = SYMBOL if config.target is None else config.target
        later = intake.encoder.columns.keys() - plan.gaps.keys()
        names = dict.fromkeys((*plan.inputs, *sorted(later), *config.expert_column, target))
        first = list(stream)
        shares = shares_of(intake, run.state, [row for row, _ in first], names, target)
        _tell_bad(reader.name, first[-1][1].bad)
        return ["column", "share"], ({"column": k, "share": v} for k, v in shares.items())
    told = _from_label(config, intake, Run(Path(run_dir)), stream, reader.name)
    return table.names, _rows(config, intake, run.state, table, told, reader.name)


def _without_labels(config: StreamConfig, intake: Intake, stream: Rows, source: str) -> Rows:
    """Yield all lines but labels without a row, and report the number of these."""
    count = 0
    for row, position in stream:
        has_id = config.id is not None and not is_absent(row.get(config.id))
        if config.waiting and has_id and not intake.encoder.has_values(row):
            count += 1
        else:
            yield row, position
    if count:
        _LOGGER.warning("%s: labels by id, which were skipped: %d", source, count)


def _from_label(config: StreamConfig, intake: Intake, run: Run, stream: Rows, source: str) -> Rows:
    """Yield rows; if the first has no last label, report the label that its prediction uses.

    If columns are known in advance, no checkpoint contains the last rows of a run.
    """
    target = str(config.target)
    for row, position in islice(stream, 1):
        member = intake.streams.table.members.get(intake.name(row))
        if config.known and member is not None and is_missing(row.get(target)):
            last = int(member.last["row"])
            text = (
                "%s, row %d has no value of %r, and is predicted as the row after row %d of the "
                "run, from the labels up to there"
            )
            lines = read_metrics(run.metrics) if run.metrics.exists() else []
            end = max((line["step"] for line in lines if line["kind"] == "result"), default=last)
            if end > last:
                text += (
                    f". The run went on to row {end}, and the {end - last} rows between are in no "
                    f"checkpoint: put rows {last + 1} to {end} before it if it comes after them"
                )
            _LOGGER.warning(text, source, position.row, target, last)
        yield row, position
    yield from stream


def _rows(
    config: StreamConfig, intake: Intake, state: State, table: Table, stream: Rows, source: str
) -> Iterator[dict[str, Any]]:
    name, bad = SYMBOL if config.target is None else config.target, 0
    for row, position in stream:
        bad = position.bad
        state, mixed = intake.advance(state, row, row.get(name))
        output, told = np.asarray(mixed.newest)[0], np.asarray(mixed.told)[0]
        yield table.row(position.row, row, output, told)
    _tell_bad(source, bad)


def _tell_bad(source: str, count: int) -> None:
    if count:
        _LOGGER.warning("%s: rows that could not be read and were skipped: %d", source, count)


def shares_of(
    intake: Intake, state: State, rows: Sequence[Row], names: Iterable[Hashable], target: Hashable
) -> dict[Hashable, float]:
    """Return the importance of each column. The state is not changed.

    The importance is the column's fraction of the squared changes of the predictions when its
    values are shuffled. All are 0 if shuffling changes no prediction.

    Args:
        intake: converter from rows to numbers.
        state: state of the intake's mixture.
        rows: further rows.
        names: columns.
        target: column of the targets. It may be one of the columns, because earlier labels are
            features.

    Raises:
        ValueError: there are fewer than two rows.
    """
    if len(rows) < 2:
        raise ValueError(f"the importance of columns needs 2 rows or more, not {len(rows)}")
    others = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]
    whole, changes = _predicted(intake, state, rows, target), {}
    for name in names:
        moved = [{**row, name: other.get(name)} for row, other in zip(rows, others, strict=True)]
        change = _predicted(intake, state, moved, target) - whole
        changes[name] = float((change**2).sum())
    total = sum(changes.values()) or 1.0
    return {name: change / total for name, change in changes.items()}


def _predicted(intake: Intake, state: State, rows: Sequence[Row], target: Hashable) -> np.ndarray:
    """Return predicted numbers, or probabilities of the known classes, for further rows."""
    reader, now, found = copy.deepcopy(intake), copy_state(state), []
    for row in rows:
        features = {name: value for name, value in row.items() if name != target}
        now, mixed = reader.advance(now, features, row.get(target))
        output = np.asarray(mixed.newest)[0]
        if isinstance(intake.target, ClassTarget):
            output = intake.target.probabilities(output)
        found.append(output)
    return np.stack(found)
