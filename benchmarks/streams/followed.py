"""A run of `foretrace stream` in this process, with CPU time after compilation."""

import csv
import dataclasses
import tempfile
import time
from typing import Any, NamedTuple

from foretrace._runs.metrics import read_metrics
from foretrace.stream import ModelConfig, StreamConfig, run


class Followed(NamedTuple):
    """Results of a run.

    Args:
        result: what `foretrace.stream.run` returns.
        lines: lines of its record.
        seconds: CPU seconds, checkpoints and record among them.
        state_kib: size of its checkpoint.
    """

    result: Any
    lines: list
    seconds: float
    state_kib: float

    def scored(self, score, rows):
        """Return the scores of the parts of a run of some rows, and its costs, for records."""
        return {
            "parts": [line.get(score) for line in self.lines if line["kind"] == "stream"],
            "rows": rows,
            "scored": self.lines[-1]["scored"],
            "cpu_us_per_row": 1e6 * self.seconds / rows,
            "state_kib": self.state_kib,
        }


def write(path, **columns):
    """Write columns as a table of commas, and return its path as a text."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerows([columns, *zip(*columns.values(), strict=True)])
    return str(path)


def follow(model, *, rows=None, warm=0, **options):
    """Follow a stream.

    Args:
        model: options of the model.
        rows: number of rows; all if None.
        warm: number of rows of the short run.
        options: options of a `StreamConfig`.

    Raises:
        SystemExit: the run was stopped.
    """
    config = StreamConfig(model=ModelConfig(**model), **options)
    with tempfile.TemporaryDirectory() as folder:
        if warm:  # a line of metrics has a program of its own
            run(dataclasses.replace(config, log_every=warm // 2), f"{folder}/warm", rows=warm)
        began = time.process_time()
        result = run(config, f"{folder}/run", rows=rows)
        seconds = time.process_time() - began
        if result.stopped:
            raise SystemExit("stopped: this cell is not recorded")
        lines = read_metrics(result.run.metrics)
        return Followed(result, lines, seconds, result.run.checkpoint.stat().st_size / 2**10)
