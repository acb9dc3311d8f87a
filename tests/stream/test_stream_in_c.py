"""The model of a stream in C predicts and learns as the run does, and names its limits."""

import ctypes
import dataclasses
import json
import math
import re
import shutil

import numpy as np
import pytest
import test_frozen as frozen
from streams import OFTEN, STREAMS, TINY, quiet
from tiers import fast, slow

from foretrace._native import compiler
from foretrace.cli import _main as cli
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read.values import as_number
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.exported import export_run
from foretrace.stream.runs.saved import opened

FIRST = 32
"""Rows of a run before it is exported."""

BYTES = {"float": 4, "double": 8, "int32_t": 4, "int64_t": 8, "uint8_t": 1, "uint32_t": 4}
in_c = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def quickly_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O0", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))


class InC:
    """The exported program of a run, called row by row."""

    def __init__(self, folder):
        path = folder / "model.c"
        assert cli.main(f"export {folder} --out {path} --format c".split()) == 0
        header = path.with_suffix(".h").read_text()
        self.about = json.loads(path.with_suffix(".header.json").read_text())
        fields = re.findall(r"^    (\w+) \w+\[(\d+)\];", header, re.MULTILINE)
        size = sum(BYTES[kind] * int(count) for kind, count in fields) + 1024
        self.context = ctypes.create_string_buffer(size)
        self.outputs = np.zeros(int(re.search(r"MODEL_OUTPUTS (\d+)", header)[1]))
        self.surprise = np.zeros(1)
        self.program = compiler.compiled(path.read_text(), header, "model")
        self.program.model_init(self.context)

    def step(self, row, label):
        """Return the predictions for a row before and after it was learned with a label."""
        x = np.array([number(row[name]) for name in self.about["columns"]])
        y = np.array(self.label(label), np.int32 if "classes" in self.about else np.float64)
        parts = x, y, self.outputs, self.surprise
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in parts]
        self.program.model_predict(self.context, pointers[0], pointers[2])
        predicted = self.outputs.copy()
        self.program.model_step(self.context, *pointers)
        return predicted, self.outputs.copy()

    def label(self, text):
        """Return a label as C takes it; a new class takes the next index."""
        if (known := self.about.get("classes")) is None:
            return number(text)
        known += [text] * (text not in ("", *known))
        return known.index(text) if text else -1


def number(text):
    found = as_number(text)
    return float("nan") if found is None else found


def outputs_of(row, size):
    """Return a row of predictions as the outputs of C."""
    if "probabilities" not in row:
        return [value for name, value in row.items() if re.fullmatch(r"y(\+\d)?", name)]
    shares = list(row["probabilities"].values())
    return shares + [0.0] * (size - len(shares))


PARTS = ("late classes", "mask", "no last label", "number", "numbers as they are", "horizon")
"""Streams whose parts others have: `default` all experts, `network, late` a horizon."""


@pytest.mark.full
@in_c
@pytest.mark.parametrize(
    "whole",
    ["alarms", "network, late", "default", *map(slow, PARTS)],
    indirect=True,
)
def test_a_run_in_c_predicts_and_learns_as_the_run_itself(whole, tmp_path, quickly_compiled):
    run = quiet(whole.config, tmp_path / "run", rows=FIRST).run_dir
    _, _, intake, state = opened(run)
    program, last, table = InC(run), frozen.FIRST.get(whole.name), whole.table
    both = []
    assert table[40]["a"] == "inf"
    table[40]["a"] = "-1e31"  # missing as well
    for at in range(FIRST, last or len(table)):
        label = table[at - whole.config.delay][whole.config.target]
        if intake.shape.classes and label == "new" and intake.shape.outputs == 2:
            break  # C has room for the classes of the run alone
        predicted, learned = program.step(table[at], label)
        expected = outputs_of(whole.found[at], len(learned))
        # The network computes in float32, and sums are taken in another order.
        close = {"rtol": 1e-4, "atol": 1e-5, "err_msg": f"row {at}"}
        np.testing.assert_allclose(learned, expected, **close)
        surprise = whole.found[at]["surprise"]
        both += [(program.surprise[0], math.nan if surprise is None else surprise)]
        if not whole.config.horizon:
            np.testing.assert_allclose(predicted, expected, **close)
        elif at == FIRST:  # before the row's own number is known, which is learned first
            alone = intake.predict(state, whole.table[FIRST]).newest
            np.testing.assert_allclose(predicted, np.asarray(alone), **close)
    np.testing.assert_allclose(*np.array(both).T, atol=1e-4)


REFUSED = {
    "categories, no value at first": "column 'c' is one of categories",
    "dates, irregular": "column 't' is one of times",
    "resets": "--reset",
    "members": "--member",
    "stop": "--outliers stop",
    "text": "reads a text symbol by symbol",
    "sampled": "random numbers",
}
SAMPLED = dataclasses.replace(TINY, rule="online(depth=1, modules=1)", depth=2)


@pytest.mark.parametrize("name", fast(list(REFUSED), 6))
def test_what_c_cannot_take_along_is_named(name, files, tmp_path, capsys):
    model = SAMPLED if name == "sampled" else ModelConfig(experts=("baselines",))
    options = frozen.STREAMS.get(name, STREAMS["number"]) | {"model": model}
    source = files / ("a.txt" if name == "text" else "a.csv")
    quiet(StreamConfig(str(source), **OFTEN | options), tmp_path / "run", rows=0)
    with pytest.raises(ValueError, match=REFUSED[name]):
        export_run(tmp_path / "run", tmp_path / "model.c")
    assert cli.main(f"export {tmp_path / 'run'} --out {tmp_path / 'model.c'}".split()) == 2
    assert "--format c" in capsys.readouterr().err and not (tmp_path / "model.c").exists()
