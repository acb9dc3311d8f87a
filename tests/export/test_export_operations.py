"""Every operation of the table, in ONNX and in C, is that of JAX."""

import ctypes
import shutil
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operations import NOT_IN_ONNX, OPERATIONS

from foretrace._export.onnx_graph import onnx_model
from foretrace._graph.real_valued import NotExportable
from foretrace._graph.step import traced_graph
from foretrace._native import compiler
from foretrace._native.context import Context
from foretrace._native.program import stream_program

VALUES = {
    "x": np.random.default_rng(1).normal(size=4),
    "b": np.random.default_rng(2).normal(size=(5, 4)),
    "i": np.array([3, 0, 3], np.int32),
}


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


@cache
def graph_of(function):
    def step(state, *values):
        return [jnp.atleast_1d(leaf) for leaf in jax.tree.leaves(function(*values))], state

    data = {name: jax.ShapeDtypeStruct(v.shape, v.dtype) for name, v in VALUES.items()}
    count = len(jax.tree.leaves(jax.eval_shape(function, *VALUES.values())))
    return traced_graph(step, (), "", data, [f"found{i}" for i in range(count)])


def in_onnx(graph):
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    model = onnx_model(graph.closed, graph.inputs, graph.outputs, "")
    needed = {given.name for given in runtime.InferenceSession(model).get_inputs()}
    given = {name: value for name, value in VALUES.items() if name in needed}
    return runtime.InferenceSession(model).run(None, given)


def in_c(graph):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program = stream_program("model", graph, None)
    step = compiler.compiled(program.source, program.header, "model").model_step
    found = [np.zeros(v.aval.shape, v.aval.dtype) for v in graph.closed.jaxpr.outvars]
    arrays = (ctypes.c_void_p(a.ctypes.data) for a in (*VALUES.values(), *found))
    context = Context(program, ())
    step(context.pointer, *arrays)
    return found


FORMATS = {
    **{("onnx", name): (in_onnx, function) for name, function in OPERATIONS.items()},
    **{("c", name): (in_c, function) for name, function in (OPERATIONS | NOT_IN_ONNX).items()},
}


@cache
def in_jax(function):
    return jax.tree.map(np.asarray, jax.tree.leaves(jax.jit(function)(*VALUES.values())))


@pytest.mark.parametrize("case", FORMATS, ids=" ".join)
def test_it_is_the_operation_of_jax(case, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    run, function = FORMATS[case]
    for ours, theirs in zip(run(graph_of(function)), in_jax(function), strict=True):
        np.testing.assert_allclose(ours, np.atleast_1d(theirs), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NOT_IN_ONNX)
def test_what_onnx_does_not_have_is_refused(name):
    pytest.importorskip("onnx", reason="pip install 'foretrace[export]'")
    graph = graph_of(NOT_IN_ONNX[name])
    with pytest.raises(NotExportable, match="has no form"):
        onnx_model(graph.closed, graph.inputs, graph.outputs, "")
