"""The commands about streams: what `foretrace stream` and `foretrace predict` do."""

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from foretrace._runs.directory import default_path, read_config_as
from foretrace._runs.escape import for_terminal
from foretrace._runs.files import appearing
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Predict, Stream
from foretrace.stream._config import StreamConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow
from foretrace.stream._saved import MAY_CHANGE

_OF_PREDICTIONS = ("format", "delimiter", "encoding", "bad_rows", "rows")


def stream(command: Stream) -> int:
    """Follow a stream; return the exit code."""
    run_dir = default_path("stream") if command.run_dir is None else command.run_dir
    result = follow(
        command.config,
        run_dir,
        resume=command.resume,
        rows=command.rows,
        tensorboard=command.tensorboard,
    )
    if not result.stopped:
        return report(run_dir)
    return stopped(f"after row {result.position.row}; the state is saved", _again(command, run_dir))


def _again(command: Stream, run_dir: Path) -> str:
    recorded = read_config_as(run_dir, StreamConfig)
    given = {
        name: value
        for name in MAY_CHANGE
        if (value := getattr(command.config, name)) != getattr(recorded, name)
    }
    return again("stream", run_dir, **given, rows=command.rows, tensorboard=command.tensorboard)


def predict(command: Predict) -> int:
    """Write predictions as CSV; return the exit code."""
    if command.out is not None and os.path.lexists(command.out):
        raise FileExistsError(f"{command.out} exists already; choose another file for --out")
    options = {name: getattr(command, name) for name in _OF_PREDICTIONS}
    rows = predictions(command.run_dir, command.source, **options)
    # Up to the first row anything may be wrong with run and source; a file is made only then.
    first = list(islice(rows, 2))
    if command.out is not None:
        with appearing(command.out) as file:
            _write(chain(first, rows), file)
        return 0
    try:
        _write(chain(first, rows), sys.stdout)
    except BrokenPipeError:
        # Who reads the pipe has enough, as `head` has. Nothing more may be written at the end of
        # the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write(rows: Iterable[Sequence[Any]], file: TextIO) -> None:
    """Write rows as CSV: texts as they are to a file, without control characters to a terminal."""
    writer = csv.writer(file, lineterminator="\n")
    shown = for_terminal if file.isatty() else str
    for row in rows:
        writer.writerow([shown(value) if isinstance(value, str) else value for value in row])
        file.flush()  # who reads a pipe waits for it
