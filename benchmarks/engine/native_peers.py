"""The same learning step in other runtimes, as a call that steps through rows, or None.

`pip install onnx onnxruntime iree-base-compiler iree-base-runtime emx-onnx-cgen river`
"""

import ctypes
import importlib.util
import json
import subprocess
import sys

import jax
import numpy as np
from safetensors.numpy import load_file

import foretrace as ft
from foretrace._native.compiler import FLAGS, find_compiler


def installed(*names):
    """Say whether all packages can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in names)


def in_jax(learner, xs, ys, folder):
    state = learner.init()

    def call(rows):
        nonlocal state
        for t in range(rows):
            state, info = learner.step(state, xs[t : t + 1], ys[t : t + 1])
        jax.block_until_ready(info.loss)

    return call


def in_onnxruntime(learner, xs, ys, folder):
    if not installed("onnx", "onnxruntime"):
        return None
    step, state = onnx_step(ft.export(learner, folder / "model.onnx", "onnx", learn=True))

    def call(rows):
        nonlocal state
        for t in range(rows):
            _, state = step(xs[t], ys[t], state)

    return call


def onnx_step(files):
    """Return an exported step, from a row and a state to outputs and a state; the first state."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(files.graph.read_bytes(), options)
    names, stored = [o.name for o in session.get_outputs()], load_file(files.state)
    order = [i.name for i in session.get_inputs() if i.name in stored]

    def step(x, y, state):
        out = dict(zip(names, session.run(None, {"x": x, "y": y, **state}), strict=True))
        return out, {name: out[f"next.{name}"] for name in order}

    return step, {name: stored[name] for name in order}


def in_iree(learner, xs, ys, folder):
    if not installed("iree"):
        return None
    import iree.compiler
    import iree.runtime

    files = ft.export(learner, folder / "model.stablehlo", "stablehlo", learn=True)
    options = {"target_backends": ["llvm-cpu"], "input_type": "stablehlo"}
    host = ["--iree-llvmcpu-target-cpu=host"]
    program = iree.compiler.compile_file(str(files.graph), extra_args=host, **options)
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    module = iree.runtime.VmModule.copy_buffer(context.instance, program)
    context.add_vm_module(module)
    step = getattr(context.modules, module.name)["main"]
    header, state = json.loads(files.header.read_text()), load_file(files.state)
    inputs, outputs = ([each["name"] for each in header[kind]] for kind in ("inputs", "outputs"))
    state = {
        name: iree.runtime.asdevicearray(config.device, value) for name, value in state.items()
    }

    def call(rows):
        nonlocal state
        for t in range(rows):
            given = {"x": xs[t], "y": ys[t], **state}
            out = dict(zip(outputs, step(*[given[name] for name in inputs]), strict=True))
            state = {name: out["next." + name] for name in state}

    return call


LOOP = """
#include <string.h>
#include <time.h>
void rows_of(void **a, const float *xs, const float *ys, int rows)
{{
    for (int t = 0; t < rows; ++t)
    {{
        memcpy(a[{x}], xs + 3 * t, 3 * sizeof *xs);
        memcpy(a[{y}], ys + t, sizeof *ys);
        if (t % 2) model({back}); else model({there});
    }}
}}
"""


def in_emx(learner, xs, ys, folder):
    """Return a loop in C around the step that emx-onnx-cgen makes of the ONNX file."""
    if not installed("onnx", "emx_onnx_cgen"):
        return None
    import onnx

    files = ft.export(learner, folder / "model.onnx", "onnx", learn=True)
    make = [sys.executable, *"-m emx_onnx_cgen compile model.onnx emx.c --model-name model".split()]
    subprocess.run(
        [*make, "--large-temp-threshold", "0"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    graph = onnx.load(files.graph).graph
    inputs, outputs = ([value.name for value in side] for side in (graph.input, graph.output))
    header, state = json.loads(files.header.read_text()), load_file(files.state)
    shapes = {each["name"]: each for side in ("inputs", "outputs") for each in header[side]}
    buffers = {
        name: np.zeros(shapes[name]["shape"], shapes[name]["dtype"]) for name in (*inputs, *outputs)
    }
    for name in inputs:
        if name in state:
            buffers[name][...] = state[name]
    # A next state is read by the step after it, which writes where the first one read.
    swapped = {name: f"next.{name}" for name in inputs if f"next.{name}" in outputs}
    swapped |= {after: before for before, after in swapped.items()}
    places = {name: place for place, name in enumerate(buffers)}
    there = [f"a[{places[name]}]" for name in (*inputs, *outputs)]
    back = [f"a[{places[swapped.get(name, name)]}]" for name in (*inputs, *outputs)]
    loop = LOOP.format(x=places["x"], y=places["y"], there=", ".join(there), back=", ".join(back))
    with open(folder / "emx.c", "a") as source:
        source.write(loop)
    flags = ["-std=gnu11" if flag.startswith("-std") else flag for flag in FLAGS]
    command = [*find_compiler(), *flags, "-w", "-shared", "-fPIC", "-o", "emx.so", "emx.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    rows_of = ctypes.CDLL(str(folder / "emx.so")).rows_of
    pointers = (ctypes.c_void_p * len(buffers))(*(array.ctypes.data for array in buffers.values()))
    data = [ctypes.c_void_p(array.ctypes.data) for array in (xs, ys)]

    def call(rows):
        assert buffers is not None  # they live as long as the call
        rows_of(pointers, *data, rows)

    return call


def in_river(xs, ys):
    """Return river's logistic regression on the same inputs; its target is the sign of theirs."""
    if not installed("river"):
        return None
    from river import linear_model

    model = linear_model.LogisticRegression()
    data = [
        ({"a": a, "b": b, "c": c}, bool(y > 0))
        for (a, b, c), (y,) in zip(xs.tolist(), ys.tolist(), strict=True)
    ]

    def call(rows):
        for x, y in data[:rows]:
            model.predict_proba_one(x)
            model.learn_one(x, y)

    return call


PEERS = {"JAX": in_jax, "onnxruntime": in_onnxruntime, "IREE": in_iree, "emx-onnx-cgen": in_emx}
