"""Parity and time of exported learning steps: `python -m benchmarks.engine.export [--steps 10000] [--out FILE.md]`.

Every cell learns to recall an input of three rows ago in onnxruntime on one thread. Every step is also done by
`Learner.step`, from the same state, and what comes out (loss, parameters, states, sensitivities) is compared. Runs that
go on by themselves move apart, as two learners do whose parameters differ by 1e-7. Needs the extra `export`.
"""

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import optax
from safetensors.numpy import load_file

import foretrace as ft
from benchmarks import ledger

CELLS = {
    "LRU": ft.LRU.factory(state_size=16),
    "S5": ft.S5.factory(state_size=16),
    "RTU": ft.RTU.factory(state_size=16),
    "SelectiveSSM": ft.SelectiveSSM.factory(states_per_channel=2),
    "MinGRU": ft.MinGRU.factory(),
    "MinLSTM": ft.MinLSTM.factory(),
    "RGLRU": ft.RGLRU.factory(),
    "GRU": ft.GRU.factory(),
    "ElementwiseLSTM": ft.ElementwiseLSTM.factory(),
    "LinearRNN": ft.LinearRNN.factory(state_size=16),
    "IndRNN": ft.IndRNN.factory(),
    "LIF": ft.LIF.factory(),
}
COLUMNS = (
    *("cell", "nodes", "learning, kB", "inference, kB", "StableHLO, kB", "loss, first 500", "loss, last 500"),
    *("largest difference of a step", "onnxruntime, us", "JAX, us"),
)


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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(files.graph.read_bytes(), options)
    names = [o.name for o in session.get_outputs()]
    order = [i.name for i in session.get_inputs() if i.name not in ("x", "y")]
    stored, like = load_file(files.state), learner.init()
    state, losses, apart, times = {name: stored[name] for name in order}, [], 0.0, ([], [])
    for x, y in zip(xs, ys, strict=True):
        before = as_state(like, state)
        start = time.perf_counter()
        out = dict(zip(names, session.run(None, {"x": x, "y": y, **state}), strict=True))
        times[0].append(time.perf_counter() - start)
        start = time.perf_counter()
        after, info = jax.block_until_ready(learner.step(before, x[None], y[None]))
        times[1].append(time.perf_counter() - start)
        state = {name: out[f"next.{name}"] for name in order}
        losses.append(float(out["loss"]))
        there = jax.tree.leaves(as_state(like, state)._replace(key=None))
        here = jax.tree.leaves(after._replace(key=None))
        apart = max(apart, *(float(jnp.abs(p - q).max()) for p, q in zip(here, there, strict=True)))
        apart = max(apart, abs(float(info.loss) - losses[-1]))
    return losses, apart, float(np.median(times[0])), float(np.median(times[1]))


def measured(cell: str, steps: int) -> list[str]:
    network = ft.Network(1, 1, model_size=16, depth=2, cell=CELLS[cell], key=jax.random.key(0))
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optax.sgd(1e-2), loss=ft.losses.squared_error, warn=False)
    xs, ys = rows(steps)
    with tempfile.TemporaryDirectory() as folder:
        learning = ft.export(learner, Path(folder) / "learning.onnx", "onnx", learn=True)
        inference = ft.export(learner, Path(folder) / "inference.onnx", "onnx")
        stablehlo = ft.export(learner, Path(folder) / "learning.stablehlo", learn=True)
        sizes = [path.graph.stat().st_size / 1000 for path in (learning, inference, stablehlo)]
        import onnx

        nodes = len(onnx.load(learning.graph).graph.node)
        losses, apart, there, here = learned(learner, learning, xs, ys)
    ends = f"{np.mean(losses[:500]):.3f}", f"{np.mean(losses[-500:]):.3f}"
    times = f"{there * 1e6:.0f}", f"{here * 1e6:.0f}"
    return [cell, str(nodes), *(f"{size:.0f}" for size in sizes), *ends, f"{apart:.0e}", *times]


def main() -> None:
    parser = ledger.parser(__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--out", type=Path, help="Markdown file to write as well")
    parser.add_argument("--float64", action="store_true", help="export and compare in double precision")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.float64)
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    print("\n".join(lines))
    for cell in options.cells:
        lines.append("| " + " | ".join(measured(cell, options.steps)) + " |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
