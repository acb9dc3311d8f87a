"""What tests of runs share: streams, runs that are killed, and whether two runs are the same."""

import csv
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_frozen as frozen
from safetensors.numpy import load_file
from test_frozen import TINY

from foretrace import read_extra
from foretrace._runs.appended import AppendedFile
from foretrace._runs.metrics import read_metrics
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.run import follow

FEW = ModelConfig(experts=("baselines", "row"))
LAGS = ModelConfig(experts=("baselines", "lags"))
MACHINE = ("seconds", "rows_per_second", "resident_mib", "microseconds")
OFTEN = {"log_every": 50, "checkpoint_every": 70}
NUMBERS, CLASSES, MEMBERS = (frozen.STREAMS[name] for name in ("number", "class", "members"))
CHUNKS = dataclasses.replace(frozen.FEW, size="fast")
DEEP = dataclasses.replace(TINY, cell="min-gru", depth=2, state_size=4, rule="hybrid(depth=2)")
MORE = {
    "everything": MEMBERS
    | {"reset": "start", "horizon": 2, "delay": 1, "model": TINY, "at_least": -0.3}
    | {"ignore": ("t", "c", "k", "empty")},
    "members in chunks": CLASSES
    | {"member": "who", "members": 2, "reset": "start", "delay": 2, "id": "t"}
    | {"model": CHUNKS, "ignore": ("c", "y", "empty")},
    "alarms": CLASSES | {"delay": 2, "alarm": ("up=0.4", "new=0.01"), "model": FEW},
    "all layers": NUMBERS | {"delay": 1, "at_least": -1.0, "outliers": "mask", "model": DEEP},
    "words": CLASSES
    | {
        "text": ("t", "c"),
        "words": 8,
        "member": "who",
        "members": 2,
        "delay": 1,
        "ignore": ("y", "start", "empty"),
    }
    | {"model": ModelConfig(experts=("baselines", "words"))},
    "known in advance": MEMBERS
    | {"horizon": 2, "known": ("start",), "model": CHUNKS, "ignore": ("c", "k", "empty")}
    | {"at_least": -1.0},
}
OF_SLOTS = ("pasts.", "past_errors.", "arrived.streams.", "of_members.", "carries.")
"""Arrays of a checkpoint that have an entry for each member; the last only if there are members."""

STREAMS = {name: options for name, options in frozen.STREAMS.items() if name != "stop"} | MORE
"""Options of streams that run to their end: those that are frozen, and some more."""


class Killed(BaseException):
    """The end of a process at once: nothing is saved any more."""


def quiet(config, folder, **options):
    """Follow a stream without a word on standard error."""
    return follow(config, folder, show_progress=False, **options)


class Whole(NamedTuple):
    """An undisturbed run: its configuration, directory, predictions, and the rows of its file."""

    name: str
    config: StreamConfig
    run: Path
    found: list[dict[str, Any]]
    header: list[str]
    rows: list[str]

    @property
    def late(self):
        """Rows until a label is known, beside the row's own."""
        return self.config.delay + (self.config.horizon == 0)

    @property
    def table(self):
        """Rows as dictionaries of texts; none of a text."""
        return list(csv.DictReader([*self.header, *self.rows]))

    @property
    def labels(self):
        """Label of each row, as it is written."""
        return [row[self.config.target] for row in self.table] if self.header else self.rows

    def moved(self, folder, rows):
        """Return the configuration of a run on other rows, with predictions in a file."""
        path = folder / Path(self.config.source).name
        path.write_text("".join([*self.header, *rows]))
        name = "p.jsonl" if self.config.member or not self.header else "p.csv"
        return dataclasses.replace(self.config, source=str(path), predictions=str(folder / name))


def undisturbed(name, files, run):
    """Run a stream to its end."""
    path, found = files / ("a.txt" if name == "text" else "a.csv"), []
    config = StreamConfig(str(path), **OFTEN | STREAMS[name])
    quiet(config, run, on_prediction=found.append)
    lines = list(path.read_text()) if name == "text" else path.read_text().splitlines(True)
    header, rows = ([], lines) if name == "text" else (lines[:1], lines[1:])
    return Whole(name, config, run, found, header, rows)


def kill_behind(config, folder, row, **options):
    """Follow a stream up to a row, and be killed there."""

    def kill(line):
        if line["row"] > row:
            raise Killed

    with pytest.raises(Killed):
        quiet(config, folder, on_prediction=kill, **options)


def kill_while_writing(config, folder, at, **options):
    """Follow a stream, and be killed within the write `at` of a prediction, counted from 0."""
    write, count = AppendedFile.write, iter(range(10**6))

    def write_or_die(self, text):
        if Path(self._file.name) == Path(config.predictions) and next(count) == at:
            write(self, text[: len(text) // 2])
            self.flush()
            raise Killed
        write(self, text)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(AppendedFile, "write", write_or_die)
        quiet(config, folder, **options)


def saved(run):
    """Return what a checkpoint says beside its arrays."""
    return read_extra(run / "checkpoint.safetensors")


def rows_in(run):
    return saved(run)["position"][0]


def records(run):
    """Return the record's lines without the machine's values, and of results only the last."""
    lines = [
        {name: value for name, value in line.items() if name not in MACHINE}
        for line in read_metrics(run / "metrics.jsonl")
    ]
    return [line for line in lines if line["kind"] != "result"] + [lines[-1]]


def assert_same_state(one, two):
    """Assert that two runs ended with the same arrays, bit for bit."""
    a, b = (load_file(run / "checkpoint.safetensors") for run in (one, two))
    assert a.keys() == b.keys()
    slots = len(a["past_errors.unit"])
    for name in a.keys() - {"__extra__"}:
        # The last slot is that of missing rows, as many as an incomplete chunk has.
        of_slots = name.startswith(OF_SLOTS if slots > 2 else OF_SLOTS[:-1])
        kept = slice(-1) if of_slots else ...
        np.testing.assert_array_equal(a[name][kept], b[name][kept], err_msg=name)


def assert_same_run(one, two):
    """Assert that two runs ended with the same record and state, bit for bit."""
    assert records(one) == records(two)
    assert_same_state(one, two)
    # Times, and where files lie.
    place = dict.fromkeys(("seconds", "record", "predictions", "config"))
    a, b = (saved(run) | place for run in (one, two))
    assert a == b, [
        (name, a.get(name), b.get(name)) for name in a | b if a.get(name) != b.get(name)
    ]
