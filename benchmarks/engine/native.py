"""CPU time of a learning step in JAX, in onnxruntime and in C: `python -m benchmarks.engine.native [--rows 3000]`.

All of one network are timed in turn, in one process, on one core, with float32, Adam and the squared error of one
output from three inputs. "C" is a loop in C around `model_step`; "native.step" is the same program called from Python.
Bytes are those of the header file. Needs a C compiler; without the extra `export` the column of onnxruntime is empty.
"""

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import optax

import foretrace as ft
from benchmarks import ledger
from foretrace._native.compiler import FLAGS, find_compiler

NETWORKS = {
    "LRU 1 x 8": (ft.LRU.factory(state_size=8), 1, 8, ft.ONLINE),
    "LRU 1 x 16": (ft.LRU.factory(state_size=16), 1, 16, ft.ONLINE),
    "LRU 2 x 16": (ft.LRU.factory(state_size=16), 2, 16, ft.ONLINE),
    "LRU 2 x 32": (ft.LRU.factory(state_size=32), 2, 32, ft.ONLINE),
    "LRU 2 x 64": (ft.LRU.factory(state_size=64), 2, 64, ft.ONLINE),
    "MinGRU 2 x 16": (ft.MinGRU.factory(), 2, 16, ft.ONLINE),
    "GRU 2 x 16": (ft.GRU.factory(), 2, 16, ft.ONLINE),
    "LRU 2 x 16, exact": (ft.LRU.factory(state_size=16), 2, 16, ft.ONLINE.with_depth(2)),
    "LRU 2 x 32, exact": (ft.LRU.factory(state_size=32), 2, 32, ft.ONLINE.with_depth(2)),
}
ROUNDS = 7
MAIN = """#include "model.h"
#include <stdio.h>
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
double seconds(model *ctx, const float *xs, const float *ys, int rows)
{
    float out[1], begin = 0;
    double start = now();
    for (int t = 0; t < rows; ++t) begin += model_step(ctx, xs + 3 * t, ys + t, out).loss;
    return begin == -1 ? 0 : now() - start;
}
unsigned long size(void) { return sizeof(model); }
"""


def learner_of(name):
    cell, depth, size, rule = NETWORKS[name]
    network = ft.Network(3, 1, model_size=size, depth=depth, cell=cell, key=jax.random.key(0))
    return ft.Learner(network, rule=rule, optimizer=optax.adam(1e-3), loss=ft.losses.squared_error)


def least(call, rows):
    """Return the least CPU time of a row, in microseconds."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call(rows)
        found.append((time.process_time() - start) / rows * 1e6)
    return min(found)


def in_jax(learner, xs, ys):
    state = learner.init()

    def call(rows):
        nonlocal state
        for t in range(rows):
            state, info = learner.step(state, xs[t : t + 1], ys[t : t + 1])
        jax.block_until_ready(info.loss)

    return call


def in_onnxruntime(learner, xs, ys, folder):
    try:
        import onnxruntime
        from safetensors.numpy import load_file
    except ImportError:
        return None
    files = ft.export(learner, folder / "model.onnx", "onnx", learn=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(files.graph.read_bytes(), options)
    names, state = [o.name for o in session.get_outputs()], load_file(files.state)
    wanted = {i.name for i in session.get_inputs()}
    state = {name: value for name, value in state.items() if name in wanted}

    def call(rows):
        nonlocal state
        for t in range(rows):
            out = dict(zip(names, session.run(None, {"x": xs[t], "y": ys[t], **state}), strict=True))
            state = {name: out["next." + name] for name in state}

    return call


def in_c(learner, xs, ys, folder):
    """Return a call that steps in C, and the bytes of state and scratch."""
    files = ft.export(learner, folder / "model.c", "c", learn=True)
    (folder / "main.c").write_text(MAIN)
    command = [*find_compiler(), *FLAGS, "-D_POSIX_C_SOURCE=200809L", "-shared", "-fPIC", "-o", "bench.so"]
    subprocess.run([*command, "main.c", "model.c", "-lm"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "bench.so"))
    library.seconds.restype, library.size.restype = ctypes.c_double, ctypes.c_ulong
    context = ctypes.create_string_buffer(library.size())
    library.model_init(context)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (xs, ys)]

    def call(rows):
        library.seconds(context, *pointers, rows)

    words = files.include.read_text().split()
    sizes = [int(words[words.index(f"MODEL_{part}_BYTES") + 1]) for part in ("STATE", "SCRATCH")]
    return call, sizes


def measure(cell):
    learner, rows = learner_of(cell["network"]), cell["rows"]
    draw = np.random.default_rng(0)
    xs = draw.normal(size=(rows, 3)).astype(np.float32)
    ys = np.roll(xs[:, :1], 3, axis=0).copy()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        native = ft.native(learner)
        c_loop, (state, scratch) = in_c(learner, xs, ys, folder)
        calls = {
            "JAX": in_jax(learner, xs, ys),
            "onnxruntime": in_onnxruntime(learner, xs, ys, folder),
            "native.step": lambda rows: [native.step(xs[t], ys[t]) for t in range(rows)],
            "C": c_loop,
        }
        found = {}
        for kind, call in calls.items():
            if call is not None:
                call(10)
                found[f"{kind}, us"] = round(least(call, rows), 2)
    return found | {"state, bytes": state, "scratch, bytes": scratch}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--records", type=Path, default=ledger.RECORDS / "native.jsonl")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ledger.each(given.records, [{"network": name, "rows": given.rows} for name in given.networks], measure)
    columns = ("JAX, us", "onnxruntime, us", "native.step, us", "C, us", "state, bytes", "scratch, bytes")
    ledger.print_table(ledger.read(given.records), ("network",), columns)
