"""What tests of runs share: a small model, runs that are killed, and whether two are the same."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from foretrace import read_extra
from foretrace._runs.appended import AppendedFile
from foretrace._runs.metrics import read_metrics
from foretrace.stream import _loop
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._run import follow

FEW = ModelConfig(experts=("baselines", "row"))
TINY = ModelConfig("tiny", depth=1, model_size=4, state_size=3)
MACHINE = ("seconds", "rows_per_second", "resident_mib", "microseconds")


class Killed(BaseException):
    """The end of a process at once: nothing is saved any more."""


def quiet(config, folder, **options):
    """Follow a stream without a word on standard error."""
    return follow(config, folder, show_progress=False, **options)


def kill_behind(config, folder, row, **options):
    """Follow a stream up to a row, and be killed there."""
    learn = _loop.StreamLoop._learn

    def learn_or_die(self, chunk, **more):
        if self.position.row >= row:
            raise Killed
        learn(self, chunk, **more)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(_loop.StreamLoop, "_learn", learn_or_die)
        quiet(config, folder, **options)


def kill_while_writing(config, folder, at, error=Killed, **options):
    """Follow a stream, and be killed within the write `at` of a prediction, counted from 0."""
    write, count = AppendedFile.write, iter(range(10**6))

    def write_or_die(self, text):
        if next(count) == at:
            write(self, text[: len(text) // 2])
            self.flush()
            raise error
        write(self, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loop.StreamLoop, "_report", lambda self: None)  # the record has other lines
        patch.setattr(AppendedFile, "write", write_or_die)
        with pytest.raises(error):
            quiet(config, folder, **options)


def saved(run):
    """Return what a checkpoint says beside its arrays."""
    return read_extra(run / "checkpoint.safetensors")


def rows_in(run):
    return saved(run)["position"][0]


def state(run):
    """Return the arrays of a checkpoint, without what `saved` reads."""
    arrays = load_file(run / "checkpoint.safetensors")
    del arrays["__extra__"]
    return arrays


def records(run):
    """Return the record's lines without the machine's values, and of results only the last."""
    lines = [
        {name: value for name, value in line.items() if name not in MACHINE}
        for line in read_metrics(run / "metrics.jsonl")
    ]
    return [line for line in lines if line["kind"] != "result"] + [lines[-1]]


def assert_same_state(one, two):
    a, b = state(one), state(two)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


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
