"""The commands about streams: `foretrace stream`, `predict` and `serve`."""

import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import chain, islice
from pathlib import Path
from typing import Any

from foretrace._runs.directory import default_path, read_config_as
from foretrace._runs.files import appearing
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Predict, Serve, Stream
from foretrace.stream.runs.config import STDOUT, StreamConfig
from foretrace.stream.runs.predict import predictions
from foretrace.stream.runs.predictions import LineWriter, is_csv
from foretrace.stream.runs.run import follow
from foretrace.stream.runs.saved import MAY_CHANGE
from foretrace.stream.serve.group import join
from foretrace.stream.serve.serving import configured
from foretrace.stream.serve.serving import serve as serve_run

_OF_SERVICE = ("host", "port", "checkpoints", "freeze", "back_to")
_OF_PREDICTIONS = ("format", "delimiter", "encoding", "bad_rows", "rows", "importance")


def stream(command: Stream) -> int:
    """Learn from a stream, and return the exit code."""
    if command.config.topic is not None:
        return _stream_topic(command)
    run_dir = command.run_dir or default_path("stream")
    options = {name: getattr(command, name) for name in ("resume", "rows", "tensorboard")}
    try:
        result = follow(command.config, run_dir, **options)
        if command.forecast and not result.stopped:
            # A member has no times if its last row arrived before the first column of times.
            names = dict.fromkeys(name for row in result.forecast for name in row)
            rows = ({name: _shown(row.get(name)) for name in names} for row in result.forecast)
            _write(rows, LineWriter(sys.stdout, [*names]))
    except BrokenPipeError:
        how = _again(command, run_dir)
        print(
            f"foretrace: stopped, as the reader of standard output left; go on with: {how}",
            file=sys.stderr,
        )
        raise
    prints_rows = command.forecast or command.config.predictions == STDOUT
    with redirect_stdout(sys.stderr if prints_rows else sys.stdout):
        if not result.stopped:
            return report(run_dir, draws=False)
        place = f"after row {result.position.row}; the state is saved"
        return stopped(place, _again(command, run_dir))


def _stream_topic(command: Stream) -> int:
    assert command.run_dir is not None
    options = {name: getattr(command, name) for name in ("kafka_config", "metrics_port")}
    rows = join(command.config, command.run_dir, **options)
    place = f"after {rows} rows of this process; the state of its partitions is saved"
    return stopped(place, again(command.run_dir, **options))


def _shown(value: Any) -> Any:
    """Return a number with six significant digits; other values are unchanged."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _again(command: Stream, run_dir: Path) -> str:
    recorded = read_config_as(run_dir, StreamConfig)
    given = {
        name: value
        for name in MAY_CHANGE
        if (value := getattr(command.config, name)) != getattr(recorded, name)
    }
    given |= {name: getattr(command, name) for name in ("rows", "tensorboard", "forecast")}
    return again(run_dir, **given)


def predict(command: Predict) -> int:
    """Write predictions, and return the exit code."""
    if command.out is not None and os.path.lexists(command.out):
        raise FileExistsError(f"{command.out} exists already; choose another file for --out")
    options = {name: getattr(command, name) for name in _OF_PREDICTIONS}
    names, rows = predictions(command.run_dir, command.source, **options)
    # Until the first row, run or source may be wrong, so a file is created only then.
    rows = chain(list(islice(rows, 1)), rows)
    if command.out is None:
        _write(rows, LineWriter(sys.stdout, names))
    else:
        with appearing(command.out) as file:
            _write(rows, LineWriter(file, names, is_csv=is_csv(command.out)))
    return 0


def serve(command: Serve) -> int:
    """Serve a run, and return the exit code."""
    options = {name: getattr(command, name) for name in _OF_SERVICE}
    config = configured(command.run, command.config)
    serve_run(command.run, config, **options)
    return 0


def _write(rows: Iterator[dict], lines: LineWriter) -> None:
    for row in rows:
        lines(row)
