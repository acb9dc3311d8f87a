"""Exported files compute as the learner does and hold data only; errors name a remedy."""

import itertools
import json

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from safetensors.numpy import load_file
from tiers import fast

import foretrace as ft
from foretrace._export import onnx_nodes
from foretrace._graph.real_valued import real_valued

pytestmark = pytest.mark.usefixtures("default_promotion")
STEPS = 30


def make_learner(cell="lru", rule=ft.ONLINE, loss=ft.losses.squared_error, **options):
    network = ft.Network(3, 2, model_size=4, depth=2, cell=CELLS[cell], key=jax.random.key(0))
    options = {"optimizer": optax.adam(1e-2), "warn": False} | options
    return ft.Learner(network, rule=rule, loss=loss, **options)


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

    def run(inputs):
        return [
            np.asarray(value) for value in program.execute([jnp.asarray(value) for value in inputs])
        ]

    return run


def in_onnxruntime(path):
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    session = runtime.InferenceSession(path.read_bytes())

    def run(inputs):
        return session.run(
            None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
        )

    return run


def played(files, run, rows):
    """Run a graph row by row, by its header; return each row's results and the last state."""
    header, state = json.loads(files.header.read_text()), load_file(files.state)
    names = [i["name"] for i in header["inputs"]]
    results = []
    for row in rows:
        out = dict(
            zip(
                [o["name"] for o in header["outputs"]],
                run([np.asarray((state | row)[name]) for name in names]),
                strict=True,
            )
        )
        state = {
            header["state"][name]: value for name, value in out.items() if name in header["state"]
        }
        results.append({name: value for name, value in out.items() if name not in header["state"]})
    return results, state


def rows_of(classes=False):
    keys = jax.random.split(jax.random.key(1))
    xs = np.asarray(jax.random.normal(keys[0], (STEPS, 3)))
    ys = (
        np.asarray(jax.random.randint(keys[1], (STEPS,), 0, 2, jnp.int32))
        if classes
        else 0.3 * xs[:, 1:]
    )
    return [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]


def learned(learner, rows):
    state, losses = learner.init(), []
    for row in rows:
        state, info = learner.step(state, jnp.asarray(row["x"])[None], jnp.asarray(row["y"])[None])
        losses.append(info.loss)
    return losses, state


RUNTIMES = {"stablehlo": compiled, "onnx": in_onnxruntime}


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "rule"),
    fast(
        [
            ("lru", ft.ONLINE),
            *((name, ft.ONLINE) for name in CELLS if name != "lru"),
            ("gru", ft.RTRL),
            ("lru", ft.TRUNCATED),
            ("lru", ft.ONLINE.with_depth(1)),
        ]
    ),
    ids=str,
)
@pytest.mark.parametrize("format", RUNTIMES)
@pytest.mark.exact
def test_the_learning_step_is_that_of_the_learner(format, cell, rule, tmp_path):
    learner = make_learner(cell, rule)
    if format == "onnx":
        pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    files = ft.export(learner, tmp_path / f"step.{format}", format, learn=True)
    rows = rows_of()
    found, after = played(files, RUNTIMES[format](files.graph), rows)
    losses, state = learned(learner, rows)
    np.testing.assert_allclose([row["loss"] for row in found], losses, rtol=1e-8)
    assert all(row["accepted"] for row in found)
    np.testing.assert_allclose(
        after["network.encoder.weight"], state.network.encoder.weight, atol=1e-8
    )
    if cell == "lru" and rule.carried:
        np.testing.assert_allclose(after["carry.h.im"], state.carry.h.imag, atol=1e-8)
    assert int(after["step"]) == STEPS


@pytest.mark.parametrize("format", RUNTIMES)
@pytest.mark.exact
def test_the_inference_step_is_the_forward_pass(format, tmp_path):
    learner = make_learner()
    if format == "onnx":
        pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    files = ft.export(learner, tmp_path / f"step.{format}", format)
    rows = [{"x": row["x"]} for row in rows_of()]
    found, after = played(files, RUNTIMES[format](files.graph), rows)
    outputs, carry = ft.forward(learner.network, None, jnp.stack([row["x"] for row in rows]))
    np.testing.assert_allclose([row["outputs"] for row in found], outputs, atol=1e-10)
    assert sorted(after) == ["carry.h.im", "carry.h.re"]
    np.testing.assert_allclose(after["carry.h.re"], carry.h.real, atol=1e-10)


@pytest.mark.exact
def test_classes_are_learned_from_their_numbers(tmp_path):
    pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    learner, rows = (
        make_learner("mingru", loss=ft.losses.softmax_cross_entropy),
        rows_of(classes=True),
    )
    files = ft.export(learner, tmp_path / "step.onnx", "onnx", learn=True)
    found, _ = played(files, in_onnxruntime(files.graph), rows)
    np.testing.assert_allclose([row["loss"] for row in found], learned(learner, rows)[0], rtol=1e-8)


@pytest.mark.full
def test_the_parameters_of_a_state_are_exported(tmp_path):
    learner = make_learner(optimizer=optax.sgd(1e-2))
    state = learner.init()
    state = state._replace(network=jax.tree.map(lambda leaf: leaf + 1, state.network))
    files = ft.export(learner, tmp_path / "step.stablehlo", learn=True, state=state)
    np.testing.assert_array_equal(
        load_file(files.state)["network.encoder.bias"], state.network.encoder.bias
    )


def test_onnx_has_standard_operators_only(tmp_path):
    onnx = pytest.importorskip("onnx", reason="pip install 'foretrace[export]'")
    files = ft.export(make_learner("mingru"), tmp_path / "step.onnx", "onnx", learn=True)
    model = onnx.load(files.graph)
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert json.loads(model.metadata_props[0].value) == json.loads(files.header.read_text())


@pytest.mark.exact
def test_complex_operations_as_pairs():
    numbers = np.random.default_rng(0).normal(size=(6, 5))

    def function(re, im, other):
        z, w = jax.lax.complex(re, im), jax.lax.complex(other, re)
        found = [
            z * w,
            z / w,
            jnp.exp(z),
            jnp.expm1(z),
            z**3,
            z**-2,
            jnp.conj(z) - w,
            jnp.where(re > 0, z, w),
            -z,
        ]
        found += [
            jnp.vdot(z, w),
            jnp.outer(z, w).sum(0),
            jnp.cumsum(z),
            jnp.stack([z, w])[::-1],
            1j * z + 2,
        ]
        reals = [abs(z), jnp.isfinite(z), z == w, z.real * 2]
        return [part for value in found for part in (value.real, value.imag)] + reals

    found = real_valued(function, [numbers[0]] * 3)(*numbers[:3])
    for real, complex_one in zip(found, function(*numbers[:3]), strict=True):
        np.testing.assert_allclose(real, complex_one, atol=1e-12)


TRIANGULAR = list(itertools.product([False, True], repeat=4))


@pytest.mark.parametrize(("left_side", "lower", "transpose_a", "unit_diagonal"), TRIANGULAR)
@pytest.mark.exact
def test_a_triangular_system_is_solved_as_jax_does(left_side, lower, transpose_a, unit_diagonal):
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 5, 5)) + 3 * np.eye(5), draw.normal(size=(2, 5, 3))

    def solve(a, b):
        b = b if left_side else jnp.matrix_transpose(b)
        kind = {"lower": lower, "transpose_a": transpose_a, "unit_diagonal": unit_diagonal}
        return [jax.lax.linalg.triangular_solve(a, b, left_side=left_side, **kind)]

    plain = real_valued(solve, [a, b])
    assert "triangular_solve" not in str(jax.make_jaxpr(plain)(a, b))
    np.testing.assert_allclose(jax.jit(plain)(a, b)[0], solve(a, b)[0], rtol=1e-12, atol=1e-14)


def test_a_matrix_that_is_not_positive_has_no_root():
    a = -np.eye(3)
    assert np.isnan(jax.jit(real_valued(lambda a: [jnp.linalg.cholesky(a)], [a]))(a)[0]).any()


def test_onnx_names_what_installs_it(monkeypatch, tmp_path):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(onnx_nodes.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'foretrace\[export\]'"):
        ft.export(make_learner().network, tmp_path / "step.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2}, "batch_size=2"),
        ({"accumulate": True}, "accumulate=True"),
        ({"whole_sequences": True}, "whole_sequences=True"),
        ({"rule": ft.rule("online(depth=1, modules=2)")}, "modules=2. samples"),
        ({"loss": lambda output, y: output}, "target=…"),
    ],
)
def test_a_learner_whose_step_is_no_graph_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        ft.export(make_learner(**options), tmp_path / "step.stablehlo", learn=True)
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_named(tmp_path):
    learner = make_learner()
    with pytest.raises(ValueError, match="stablehlo, onnx"):
        ft.export(learner, tmp_path / "step.tf", "tensorflow")
    with pytest.raises(TypeError, match="need a Learner"):
        ft.export(learner.network, tmp_path / "step.stablehlo", learn=True)
    with pytest.raises(TypeError, match="got int"):
        ft.export(3, tmp_path / "step.stablehlo")
    with pytest.raises(ValueError, match="suffix"):
        ft.export(learner, tmp_path / "step.json")
    with pytest.raises(FileNotFoundError, match="make it first"):
        ft.export(learner, tmp_path / "no" / "step.stablehlo")


@pytest.mark.full
@pytest.mark.parametrize("format", RUNTIMES)
@pytest.mark.parametrize(("learn", "outputs"), [(False, 1), (True, 1), (True, 3)])
@pytest.mark.exact
def test_a_network_of_modules_with_its_second_order_step_and_head(format, learn, outputs, tmp_path):
    cells = (ft.SetReset.factory(state_size=2), ft.Rotation.factory(state_size=1))
    network = ft.ModuleNetwork(3, outputs, cells=cells, key=jax.random.key(0))
    learner = ft.Learner(
        network,
        rule=ft.ONLINE,
        optimizer=ft.kalman(warmup=2),
        head=ft.heads.least_squares(),
        loss=ft.losses.squared_error,
    )
    if format == "onnx":
        pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    xs = np.random.default_rng(0).normal(size=(STEPS, 3))
    ys = xs[:, :outputs] * xs[:, 1:2]
    state, _ = learner.step(learner.init(), jnp.asarray(xs[:9]), jnp.asarray(ys[:9]))
    files = ft.export(learner, tmp_path / f"step.{format}", format, learn=learn, state=state)
    rows = [{"x": x, "y": y} if learn else {"x": x} for x, y in zip(xs[9:], ys[9:], strict=True)]
    found, _ = played(files, RUNTIMES[format](files.graph), rows)
    if learn:
        want = learner.step(state, jnp.asarray(xs[9:]), jnp.asarray(ys[9:]))[1].outputs
    else:
        want = learner.predict(state._replace(carry=learner.init().carry), jnp.asarray(xs[9:]))[0]
    np.testing.assert_allclose([row["outputs"] for row in found], want, atol=1e-8)
