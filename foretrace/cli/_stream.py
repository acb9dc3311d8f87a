"""The commands about streams: what `foretrace stream` and `foretrace predict` do."""

import csv
import shlex
import sys
from pathlib import Path
from typing import TextIO

from foretrace._runs.directory import default_path, files
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import Predict, Stream
from foretrace.stream import _report as _stream_report
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

_CONTENTS = {
    "config.json": "what was run, with versions and hardware",
    "metrics.jsonl": "scores beside the baselines, speed and memory, a line each",
    "checkpoint.safetensors": "network, optimiser, encoding and position",
    "curves.png": "scores, speed and memory",
    "tensorboard": "the same for TensorBoard",
}


def stream(command: Stream) -> int:
    """Follow a stream; return the exit code."""
    run_dir = default_path("stream") if command.run_dir is None else command.run_dir
    result = follow(command.config, run_dir, resume=command.resume, rows=command.rows, tensorboard=command.tensorboard)
    if not result.stopped:
        return report_stream(run_dir)
    again = f"foretrace stream {shlex.quote(command.config.source)} --run-dir {shlex.quote(str(run_dir))} --resume"
    print(f"stopped after row {result.position.row}; the state is saved. Go on with:\n    {again}")
    return STOPPED


def predict(command: Predict) -> int:
    """Write predictions as CSV; return the exit code."""
    if command.out is None:
        _write(command, sys.stdout)
    else:
        with open(command.out, "x", newline="") as file:
            _write(command, file)
    return 0


def report_stream(run_dir: Path) -> int:
    """Print the table of a run and draw its curves; return the exit code."""
    from rich.console import Console

    Console().print(_stream_report.table(run_dir))
    _stream_report.figure(run_dir)
    print(files(run_dir, _CONTENTS))
    return 0


def _write(command: Predict, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    for row in predictions(command.run_dir, command.source, format=command.format, rows=command.rows):
        writer.writerow(row)
        file.flush()  # who reads a pipe waits for it
