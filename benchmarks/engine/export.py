"""Parity and time of exported learning steps: `python -m benchmarks.engine.export [--steps 10000]`.

Every cell learns to recall an input of three rows ago in onnxruntime on one thread. Every step is
also done by `Learner.step`, from the same state, and the results (loss, parameters, states,
sensitivities) are compared. Runs that go on by themselves move apart, as two learners do whose
parameters differ by 1e-7. Needs the extra `export`.
"""

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import optax

import foretrace as ft
from benchmarks import ledger
from benchmarks.engine.native_parity import cells_of
from benchmarks.engine.native_peers import onnx_step

CELLS = cells_of(16)


def rows(steps: int) -> tuple[np.ndarray, np.ndarray]:
    xs = np.random.default_rng(0).normal(size=(steps, 1)).astype(jnp.zeros(()).dtype)
    return xs, np.roll(xs, 3, axis=0)


def as_state(like: ft.LearnerState, arrays: dict[str, np.ndarray]) -> ft.LearnerState:
    """Return the learner's state that a graph's state stands for."""
    leaves, structure = jax.tree.flatten(like._replace(key=None))
    pieces = iter(arrays.values())
    leaves = [
        jax.lax.complex(jnp.asarray(next(pieces)), jnp.asarray(next(pieces)))
        if jnp.iscomplexobj(leaf)
        else jnp.asarray(next(pieces))
        for leaf in leaves
    ]
    return structure.unflatten(leaves)._replace(key=like.key)


def learned(
    learner: ft.Learner, files: ft.Exported, xs: np.ndarray, ys: np.ndarray
) -> tuple[list, float, float, float]:
    """Let the graph learn; do each of its steps by the learner too, from the same state."""
    step, state = onnx_step(files)
    like, losses, apart, times = learner.init(), [], 0.0, ([], [])
    for x, y in zip(xs, ys, strict=True):
        before = as_state(like, state)
        start = time.perf_counter()
        out, state = step(x, y, state)
        times[0].append(time.perf_counter() - start)
        start = time.perf_counter()
        after, info = jax.block_until_ready(learner.step(before, x[None], y[None]))
        times[1].append(time.perf_counter() - start)
        losses.append(float(out["loss"]))
        there = jax.tree.leaves(as_state(like, state)._replace(key=None))
        here = jax.tree.leaves(after._replace(key=None))
        apart = max(apart, *(float(jnp.abs(p - q).max()) for p, q in zip(here, there, strict=True)))
        apart = max(apart, abs(float(info.loss) - losses[-1]))
    return losses, apart, float(np.median(times[0])), float(np.median(times[1]))


def measure(cell):
    """Return sizes, losses, largest difference and times of a cell's learning step."""
    with jax.enable_x64(cell["float64"]):
        return exported(cell)


def exported(cell):
    """Return what `measure` does, in the precision as it is."""
    make = {"cell": CELLS[cell["cell"]], "key": jax.random.key(0)}
    network = ft.Network(1, 1, model_size=16, depth=2, **make)
    options = {"optimizer": optax.sgd(1e-2), "loss": ft.losses.squared_error, "warn": False}
    learner = ft.Learner(network, rule=ft.ONLINE, **options)
    with tempfile.TemporaryDirectory() as folder:
        learning = ft.export(learner, Path(folder) / "learning.onnx", "onnx", learn=True)
        inference = ft.export(learner, Path(folder) / "inference.onnx", "onnx")
        stablehlo = ft.export(learner, Path(folder) / "learning.stablehlo", learn=True)
        files = (learning, inference, stablehlo)
        sizes = [round(file.graph.stat().st_size / 1000) for file in files]
        nodes = len(onnx.load(learning.graph).graph.node)
        losses, apart, there, here = learned(learner, learning, *rows(cell["steps"]))
    return {
        "nodes": nodes,
        **dict(zip(("learning, kB", "inference, kB", "StableHLO, kB"), sizes, strict=True)),
        "loss, first 500": round(float(np.mean(losses[:500])), 3),
        "loss, last 500": round(float(np.mean(losses[-500:])), 3),
        "largest difference of a step": float(f"{apart:.0e}"),
        "onnxruntime, us": round(there * 1e6),
        "JAX, us": round(here * 1e6),
    }


def cells(steps=10_000, cells=tuple(CELLS), float64=False):
    """Return the cells.

    Args:
        float64: export and compare in double precision.
    """
    return ledger.grid(cell=cells, steps=steps, float64=float64)


if __name__ == "__main__":
    ledger.run(__doc__, "export", cells, measure)
