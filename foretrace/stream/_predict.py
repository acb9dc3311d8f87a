"""Predictions of a stream's network for more rows, without learning."""

import logging
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from foretrace._rows.lines import Encoding
from foretrace._rows.source import SYMBOL, BadRows, Format, Source, check_row_count
from foretrace.stream._config import StreamConfig
from foretrace.stream._intake import Intake, State
from foretrace.stream._plan import Rows, check_columns
from foretrace.stream._predictions import Table
from foretrace.stream._saved import opened

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
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Return the columns of a table of predictions, and its rows.

    Args:
        run_dir: directory of a run of `foretrace stream`; its checkpoint stays as it is.
        source: path of a file, or "-" for standard input.
        format: format of the source; "auto" goes by its name.
        delimiter: character between the fields of a CSV file. Default: the run's.
        encoding: encoding of the text. Default: the run's.
        bad_rows: fate of a row that cannot be read, as for `Source`. Default: the run's.
        rows: number of rows after which to stop.

    Raises:
        ValueError: `rows` is negative.
        RunError: there is no run, it has no checkpoint, or another run's.
        CheckpointError: the checkpoint is damaged.
        SourceError: the source cannot be read, or has other columns than the run.
    """
    check_row_count(rows)
    config, plan, intake, state = opened(run_dir)
    table = Table(config, intake.target)
    reader = Source(
        source,
        format,
        delimiter=delimiter or config.delimiter,
        encoding=encoding or config.encoding,
        bad_rows=bad_rows or config.bad_rows,
        times=config.time_formats,
    )
    stream = islice(check_columns(reader, reader.rows(), [*plan.inputs, *config.roles]), rows)
    return table.names, _rows(config, intake, state, table, stream, reader.name)


def _rows(
    config: StreamConfig, intake: Intake, state: State, table: Table, stream: Rows, source: str
) -> Iterator[dict[str, Any]]:
    name, bad = SYMBOL if config.target is None else config.target, 0
    for row, position in stream:
        bad = position.bad
        state, mixed = intake.advance(state, row, row.get(name))
        output, told = np.asarray(mixed.newest)[0], np.asarray(mixed.told)[0]
        yield table.row(position.row, row, output, told)
    if bad:
        _LOGGER.warning("%s: rows that could not be read and were skipped: %d", source, bad)
