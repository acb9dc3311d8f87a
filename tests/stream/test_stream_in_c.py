"""The model of a stream in C predicts and learns as the run does, and names its limits."""

import ctypes
import dataclasses
import json
import math
import re
import shutil

import numpy as np
import pytest
from tiers import fast

from foretrace import cli
from foretrace._native import compiler
from foretrace.stream._config import StreamConfig
from foretrace.stream._exported import export_run
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import open_source
from foretrace.stream._run import follow
from foretrace.stream._saved import opened

pytestmark = pytest.mark.usefixtures("default_promotion")
FIRST, ROWS = 150, 500
NUMBERS = ("row", "short", "neighbours")
NETWORK = {"experts": ("row", "network"), "depth": 1, "model_size": 4, "state_size": 4}
BYTES = {"float": 4, "double": 8, "int32_t": 4, "int64_t": 8, "uint8_t": 1, "uint32_t": 4}
in_c = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def rows(tmp_path):
    """Return a file of numbers with gaps, outliers, infinity, a new level, and classes."""
    draw = np.random.default_rng(0)
    t = np.arange(ROWS)
    a, b = np.sin(t / 7) + 0.1 * draw.normal(size=ROWS), draw.normal(size=ROWS).cumsum()
    c = np.where(t < 300, 5, 500) + draw.normal(size=ROWS)
    c[200], c[201], c[202] = 1e9, np.inf, -1e31
    y = 2 * a + 0.3 * np.roll(b, 1) + 0.05 * draw.normal(size=ROWS)
    y[210] = 1e6
    kind = np.where(a > 0.5, "up", np.where(a < -0.5, "down", "level"))
    kind[t < 160] = np.where(kind[t < 160] == "level", "up", kind[t < 160])
    columns = [
        ["" if u < 0.05 else str(v) for u, v in zip(draw.uniform(size=ROWS), values, strict=True)]
        for values in (a, b, c, y, kind)
    ]
    path = tmp_path / "rows.csv"
    lines = ["a,b,c,y,kind", *(",".join(row) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def begun(rows, folder, target="y", model=None, **options):
    model = ModelConfig(**(model or {"experts": NUMBERS}))
    ignore = options.pop("ignore", tuple({"y", "kind"} - {target}))
    config = StreamConfig(str(rows), target, ignore=ignore, model=model, **options)
    follow(config, folder, rows=FIRST, show_progress=False)
    return config


class InC:
    """The exported program of a run, called row by row."""

    def __init__(self, folder):
        files = export_run(folder, folder / "model.c")
        header = files.include.read_text()
        self.about = json.loads(files.header.read_text())
        fields = re.findall(r"^    (\w+) \w+\[(\d+)\];", header, re.MULTILINE)
        size = sum(BYTES[kind] * int(count) for kind, count in fields) + 1024
        self.context = ctypes.create_string_buffer(size)
        self.outputs = np.zeros(int(re.search(r"MODEL_OUTPUTS (\d+)", header)[1]))
        self.program = compiler.compiled(files.graph.read_text(), header, "model")
        self.program.model_init(self.context)

    def step(self, row, label):
        x = np.array([number(row[name]) for name in self.about["columns"]])
        y = np.array(label, np.int32 if "classes" in self.about else np.float64)
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in (x, y, self.outputs)]
        self.program.model_predict(self.context, pointers[0], pointers[2])
        predicted = self.outputs.copy()
        self.program.model_step(self.context, *pointers)
        return predicted, self.outputs.copy()


def number(text):
    return float(text) if text else math.nan


@in_c
@pytest.mark.parametrize(
    "options",
    fast(
        [
            {},
            {"model": NETWORK, "delay": 2},
            {"target": "kind"},
            {"horizon": 3, "outliers": "mask"},
            {"target": "kind", "delay": 3, "model": {"experts": ("contexts", "lags", "gradient")}},
            {"model": NETWORK, "horizon": 2, "delay": 1},
            {"target": "kind", "model": NETWORK},
            pytest.param({"model": {}}, marks=pytest.mark.program),
            pytest.param({"model": {}, "target": "kind"}, marks=pytest.mark.slow),
            {"model": {"size": "fast"}},
        ]
    ),
)
def test_a_run_in_c_predicts_and_learns_as_the_run_itself(options, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    folder = tmp_path / "run"
    config = begun(rows, folder, **options)
    _, _, intake, state = opened(folder)
    in_c = InC(folder)
    labels = [one.value for one in intake.streams.pending(None)]
    for index, (row, _) in enumerate([*open_source(config).rows()][FIRST:]):
        value = row[config.target]
        labels.append(value)
        known = len(intake.target.classes) if intake.shape.classes else 0
        alone = np.asarray(intake.predict(state, row).newest)
        state, mixed = intake.learn(state, [(row, value)])
        wanted = np.asarray(mixed.newest)[0]
        came = labels[index]
        if intake.shape.classes:
            wanted, alone = (probabilities(one, known) for one in (wanted, alone))
            label = -1 if not came else intake.target.classes.get(came)
        else:
            label = number(came)
        predicted, found = in_c.step(row, label)
        # The network computes in float32, and sums are taken in another order.
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"row {index}")
        np.testing.assert_allclose(predicted, alone, rtol=1e-4, atol=1e-5)


def probabilities(output, known):
    weights = np.exp(output[:known] - output[:known].max(initial=-np.inf))
    return np.concatenate([weights / weights.sum(), np.zeros(len(output) - known)])


@pytest.mark.parametrize(
    ("options", "named"),
    fast(
        [
            ({"ignore": ()}, "column 'kind' holds texts"),
            ({"reset": "flag"}, "--reset"),
            ({"outliers": "stop"}, "--outliers stop"),
            ({"model": NETWORK | {"rule": "online(depth=1, modules=1)"}}, "random numbers"),
        ],
        number=3,
    ),
)
def test_what_c_cannot_take_along_is_named(options, named, rows, tmp_path):
    if "reset" in options:
        lines = rows.read_text().splitlines()
        rows.write_text("\n".join([lines[0] + ",flag", *(line + ",0" for line in lines[1:])]))
    if "outliers" in options:
        rows.write_text("a,y\n" + "1,2\n2,3\n" * ROWS)
        options = options | {"ignore": ()}
    begun(rows, tmp_path / "run", **options)
    with pytest.raises(ValueError, match=re.escape(named)):
        export_run(tmp_path / "run", tmp_path / "model.c")
    assert not (tmp_path / "model.c").exists()


def test_the_command_writes_a_run_of_a_stream(rows, tmp_path, capsys):
    begun(rows, tmp_path / "run", model={"experts": ("row",)})
    out = tmp_path / "model.c"
    assert cli.main(["export", str(tmp_path / "run"), "--out", str(out)]) == 2
    assert "--format c" in capsys.readouterr().err
    assert cli.main(["export", str(tmp_path / "run"), "--out", str(out), "--format", "c"]) == 0
    assert '["a", "b", "c"]' in out.with_suffix(".h").read_text()


@in_c
@pytest.mark.parametrize(
    "options",
    fast(
        [
            # Clipped, the label of 1e6 leaves a tie between experts that rounding decides.
            {"horizon": 2, "delay": 1, "outliers": "mask"},
            {"member": "kind", "members": 2, "ignore": (), "model": NETWORK},
            {"target": "kind", "chunk": 4, "model": {"experts": ("contexts", "row")}},
            pytest.param({"model": {}}, marks=pytest.mark.program),
        ]
    ),
)
def test_the_backend_native_has_the_results_of_jax_and_resumes(
    options, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    begun(rows, tmp_path / "jax", **options)
    whole = begun(rows, tmp_path / "whole", backend="native", **options)
    results = {name: follow_to_end(whole, tmp_path / name) for name in ("jax", "whole")}
    stopped = tmp_path / "stopped"
    follow(whole, stopped, rows=FIRST + 50, show_progress=False)
    assert json.loads((stopped / "config.json").read_text())["config"]["backend"] == "native"
    results["stopped"] = follow_to_end(whole, stopped)
    assert results["stopped"].scores == results["whole"].scores
    assert results["whole"].scores == pytest.approx(results["jax"].scores, rel=1e-5)
    assert results["whole"].weights == pytest.approx(results["jax"].weights, rel=1e-4, abs=1e-6)


def follow_to_end(config, folder):
    backend = "jax" if folder.name == "jax" else "native"
    config = dataclasses.replace(config, backend=backend)
    return follow(config, folder, resume=True, show_progress=False)
