"""CPU time of a learning step in C, in JAX and elsewhere, in about five minutes.

All of one network are timed in turn, in one process, on one core, with float32, Adam and the
squared error of one output from three inputs; "24 modules" have the second-order step and least
squares. "C" is a loop in C around `model_step`; "native.step" is the same program called from
Python. A time is the least of seven rounds, each of as many rows as fit into 0.2 s. Bytes are from
the header file. "compiled" is the seconds of CPU of the compiler alone: a minute or more for the
exact rule on 2 x 32. Other runtimes are columns if they are installed (`native_peers.py`); of the
exact rule they are left out, as they compile for minutes. Needs a C compiler.
"""

import ctypes
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import optax

import foretrace as ft
from benchmarks import ledger
from benchmarks.engine.native_peers import PEERS, in_river
from benchmarks.networks import module_learner, modules
from foretrace._native import compiler

NETWORKS = {
    "LRU 1 x 8": (ft.LRU.factory(state_size=8), 1, 8, ft.ONLINE),
    "LRU 2 x 16": (ft.LRU.factory(state_size=16), 2, 16, ft.ONLINE),
    "LRU 2 x 32": (ft.LRU.factory(state_size=32), 2, 32, ft.ONLINE),
    "MinGRU 2 x 16": (ft.MinGRU.factory(), 2, 16, ft.ONLINE),
    "GRU 2 x 16": (ft.GRU.factory(), 2, 16, ft.ONLINE),
    "24 modules": None,
    "LRU 2 x 16, exact": (ft.LRU.factory(state_size=16), 2, 16, ft.ONLINE.with_depth(2)),
    "LRU 2 x 32, exact": (ft.LRU.factory(state_size=32), 2, 32, ft.ONLINE.with_depth(2)),
}
RIVER = "river, logistic regression"
ROUNDS, SECONDS, MOST_ROWS = 7, 0.2, 3000
LOOP = """#include <stdint.h>
typedef struct result { float loss; int32_t accepted; } result;
typedef result (*step)(void *, const float *, const float *, float *);
float rows_of(step learn, void *ctx, const float *xs, const float *ys, int rows)
{
    float out[1], total = 0;
    for (int t = 0; t < rows; ++t) total += learn(ctx, xs + 3 * t, ys + t, out).loss;
    return total;
}
"""


def learner_of(name):
    if NETWORKS[name] is None:
        return module_learner(3, 0, modules(8), ft.kalman())
    cell, depth, size, rule = NETWORKS[name]
    network = ft.Network(3, 1, model_size=size, depth=depth, cell=cell, key=jax.random.key(0))
    return ft.Learner(network, rule=rule, optimizer=optax.adam(1e-3), loss=ft.losses.squared_error)


def least(call):
    """Return the least CPU time of a row, in microseconds."""

    def timed(rows):
        start = time.process_time()
        call(rows)
        return (time.process_time() - start) / rows

    call(20)
    rows = int(np.clip(SECONDS / max(timed(20), 1e-9), 20, MOST_ROWS))
    return round(min(timed(rows) for _ in range(ROUNDS)) * 1e6, 2)


def in_c(native, xs, ys, folder):
    """Return a loop in C around the step that `native.step` calls."""
    (folder / "loop.c").write_text(LOOP)
    call = [*compiler.find_compiler(), *compiler.FLAGS, *"-shared -fPIC -o loop.so loop.c".split()]
    subprocess.run(call, cwd=folder, check=True)
    rows_of = ctypes.CDLL(str(folder / "loop.so")).rows_of
    step = ctypes.cast(native._step, ctypes.c_void_p)
    data = [ctypes.c_void_p(array.ctypes.data) for array in (xs, ys)]
    return lambda rows: rows_of(step, native._step_arguments[0], *data, rows)


def measure(cell):
    draw = np.random.default_rng(0)
    xs = draw.normal(size=(MOST_ROWS, 3)).astype(np.float32)
    ys = np.roll(xs[:, :1], 3, axis=0).copy()
    if cell["network"] == RIVER:
        return {"river, us": least(call)} if (call := in_river(xs, ys)) else {}
    learner = learner_of(cell["network"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A folder of its own, so that the program is compiled, and the compiler timed.
        os.environ["FORETRACE_CACHE"] = name
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        native = ft.native(learner)
        found = {
            "compiled, s": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1)
        }
        calls = {
            "C": in_c(native, xs, ys, folder),
            "native.step": lambda rows: [native.step(xs[t], ys[t]) for t in range(rows)],
        }
        peers = {"JAX": PEERS["JAX"]} if "exact" in cell["network"] else PEERS
        calls |= {kind: make(learner, xs, ys, folder) for kind, make in peers.items()}
        found |= {f"{kind}, us": least(call) for kind, call in calls.items() if call is not None}
    words = native._context.program.header.split()
    sizes = {
        part: int(words[words.index(f"MODEL_{part.upper()}_BYTES") + 1])
        for part in ("state", "scratch")
    }
    return found | {f"{part}, bytes": size for part, size in sizes.items()}


def cells(networks=(*NETWORKS, RIVER)):
    """Return the cells."""
    return ledger.grid(network=networks)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ledger.run(__doc__, "native", cells, measure)
