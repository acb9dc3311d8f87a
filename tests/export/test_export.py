"""Exported files compute as the learner does and hold data only; errors name a remedy."""

import json

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from gradients import make_network
from learners import LEARNERS, OPTIMIZERS, make_learner
from safetensors.numpy import load_file
from tiers import fast, slow

import foretrace as ft
from foretrace._export import onnx_nodes

pytestmark = pytest.mark.usefixtures("standard_promotion")


def compiled(path):
    """Return what runs a StableHLO file: the runtime alone, without tracing anything."""
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo

    client = jax.extend.backend.get_backend("cpu")
    from jax._src.interpreters import mlir

    with mlir.make_ir_context() as context:
        module = str(stablehlo.deserialize_portable_artifact(context, path.read_bytes()))
    program = client.compile_and_load(
        module, _jax.DeviceList(tuple(client.local_devices())), _jax.CompileOptions()
    )

    return lambda inputs: list(map(np.asarray, program.execute(list(map(jnp.asarray, inputs)))))


def in_onnxruntime(path):
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    session = runtime.InferenceSession(path.read_bytes())
    names = [given.name for given in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def played(files, run, rows):
    """Run a graph row by row, by its header; return each row's results and the last state."""
    header, state = json.loads(files.header.read_text()), load_file(files.state)
    inputs, outputs = ([one["name"] for one in header[part]] for part in ("inputs", "outputs"))
    results = []
    for row in rows:
        given = [np.asarray((state | row)[name]) for name in inputs]
        results.append(dict(zip(outputs, run(given), strict=True)))
        state = {name: results[-1].pop(after) for after, name in header["state"].items()}
    return results, state


RUNTIMES = {"stablehlo": compiled, "onnx": in_onnxruntime}


def named(state):
    """Return the real arrays of a state by the names that they have in a graph."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(state._replace(key=None)):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        parts = {".re": leaf.real, ".im": leaf.imag} if jnp.iscomplexobj(leaf) else {"": leaf}
        found |= {name + part: np.asarray(value) for part, value in parts.items()}
    return found


QUICK = [("onnx", "classes", True), ("onnx", "lru", False), ("stablehlo", "lru", False)]
# Rules, optimisers and answers are shown in C; StableHLO is what JAX itself makes of a step.
LEARNED = ("gru", "RTRL(depth=2)")
MATRIX = [*QUICK, *(("onnx", name, True) for name in LEARNED)]
MATRIX += [("onnx", cell, False) for cell in CELLS if cell != "lru"]
MATRIX += [("stablehlo", "classes", True)]
OTHERS = [name for name in LEARNERS if name not in (*OPTIMIZERS, *LEARNED, "classes")]
MATRIX += [slow("onnx", name, True) for name in OTHERS]


@pytest.mark.parametrize(("format", "name", "learn"), fast(MATRIX, len(QUICK)))
@pytest.mark.exact
def test_the_graph_is_the_step_of_the_learner(format, name, learn, tmp_path):
    """The learning step, and the inference step of what was learned, row by row."""
    if format == "onnx":
        pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    learner, draw = LEARNERS[name](), np.random.default_rng(0)
    outputs = learner.network.output_size
    xs, ys = draw.normal(size=(30, 3)), 0.3 * draw.normal(size=(30, outputs))
    ys = ys.argmax(1).astype(np.int32) if "classes" in name else ys
    state = learner.init()
    for t in range(9 if learn or name == "lru" else 0):
        state, _ = learner.step(state, jnp.asarray(xs[t : t + 1]), jnp.asarray(ys[t : t + 1]))
    files = ft.export(learner, tmp_path / f"step.{format}", format, learn=learn, state=state)
    rows = [{"x": x, "y": y} if learn else {"x": x} for x, y in zip(xs[9:], ys[9:], strict=True)]
    found, after = played(files, RUNTIMES[format](files.graph), rows)
    state = state if learn else state._replace(carry=learner.init().carry)
    for row, values in zip(rows, found, strict=True):
        now = {name: jnp.asarray(value)[None] for name, value in row.items()}
        if learn:
            state, info = learner.step(state, now["x"], now["y"])
            assert values["accepted"] and abs(values["loss"] - info.loss) < 1e-8
        outputs, state = (info.outputs, state) if learn else learner.predict(state, now["x"])
        np.testing.assert_allclose(values["outputs"], outputs[0], atol=1e-8)
    # Under the second-order step rounding grows a hundredfold in ten rows.
    want = named(state) if "modules" not in name else after
    for part, value in after.items():
        np.testing.assert_allclose(value, want[part], rtol=1e-8, atol=1e-8, err_msg=part)


def test_onnx_has_standard_operators_only(tmp_path):
    onnx = pytest.importorskip("onnx", reason="pip install 'foretrace[export]'")
    files = ft.export(make_learner("mingru"), tmp_path / "step.onnx", "onnx", learn=True)
    model = onnx.load(files.graph)
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert json.loads(model.metadata_props[0].value) == json.loads(files.header.read_text())


def to(path, format="stablehlo", learn=True, **options):
    return lambda folder: ft.export(make_learner(**options), folder / path, format, learn=learn)


REFUSED = {
    "batches": (to("a", batch_size=2), ValueError, "batch_size=2"),
    "sums": (to("a", accumulate=True), ValueError, "accumulate=True"),
    "a mean": (
        lambda folder: ft.export(make_network(cumulative_mean=True), folder / "a.stablehlo"),
        ValueError,
        "cumulative_mean=True decodes a mean over the whole sequence",
    ),
    "sequences": (to("a", whole_sequences=True), ValueError, "whole_sequences=True"),
    "samples": (to("a", rule=ft.rule("online(depth=1, modules=2)")), ValueError, "which samples"),
    "a loss of outputs": (to("a", loss=lambda output, y: output), ValueError, "target=…"),
    "a format": (to("a", "tensorflow"), ValueError, "stablehlo, onnx"),
    "no folder": (to("no/step.stablehlo"), FileNotFoundError, "make it first"),
    "a text as C": (to("model.txt", "c"), ValueError, r"such as model\.c"),
    "a dash in C": (to("my-model.c", "c"), ValueError, r"such as model\.c"),
    "a sorted output": (
        to("a.c", "c", loss=lambda output, y: jnp.sort(output)[0] - y[0]),
        ValueError,
        "sort",
    ),
    "a network that learns": (
        lambda folder: ft.export(make_learner().network, folder / "a", learn=True),
        TypeError,
        "need a Learner",
    ),
    "a number": (lambda folder: ft.export(3, folder / "a"), TypeError, "got int"),
    "an RTU in PyTorch": (
        lambda folder: ft.to_torch(make_learner("rtu").network, folder / "model.py"),
        ValueError,
        "no form of RTU, only of LRU, S5, MinGRU, GRU",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_before_a_file_is_written(what, tmp_path):
    export, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        export(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_onnx_names_what_installs_it(monkeypatch, tmp_path):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(onnx_nodes.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'foretrace\[export\]'"):
        ft.export(make_learner().network, tmp_path / "step.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []
