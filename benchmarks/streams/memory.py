"""A memory learned by the second-order step, beside the same one untrained or trained otherwise.

    python -m benchmarks.streams.memory --seeds 2 3 4

24 modules of one layer (eight set/reset units, eight without products, eight rotations), least
squares on inputs and outputs of all modules, one setting for all streams. Each row is predicted
before it is learned; each fifth has a label, revealed at once, but no label is among the inputs: so
the last one, which says nearly all on most of these streams, is no way around the memory. Methods:

    learned         ONLINE and ft.kalman
    frozen          the same modules, not trained
    one-step        ft.kalman on the one-step truncated rule
    no correction   ft.kalman without the correction of the states
    adam            ONLINE and Adam, the best of three rates

Scores are accuracy in per cent for classes and mean absolute error for numbers, of the whole stream
and of its last 30 %. Times are CPU time of the process for each row, compilation left out; they
mean something on an idle machine only.
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import foretrace as ft
from benchmarks import ledger
from benchmarks.streams.made import STREAMS

EACH = 5
"""Rows from label to label."""
CELLS = (
    ft.SetReset.factory(state_size=8),
    ft.SetReset.factory(state_size=8, products=False),
    ft.Rotation.factory(state_size=8),
)
METHODS = {
    "learned": (ft.ONLINE, ft.kalman()),
    "frozen": (ft.RESERVOIR, optax.set_to_zero()),
    "one-step": (ft.TRUNCATED, ft.kalman()),
    "no correction": (ft.ONLINE, ft.kalman(state_correction=None)),
    "adam 0.01": (ft.ONLINE, optax.adam(1e-2)),
    "adam 0.003": (ft.ONLINE, optax.adam(3e-3)),
    "adam 0.001": (ft.ONLINE, optax.adam(1e-3)),
}


def measure(cell):
    """Return the scores of one method on one stream."""
    xs, ys, classes = STREAMS[cell["stream"]](
        np.random.default_rng(cell["stream_seed"]), cell["rows"]
    )
    learner = make_learner(xs.shape[1], classes, cell["method"], cell["seed"])
    mask = np.arange(len(xs)) % EACH == EACH - 1
    targets = ys if classes else np.asarray(ys, np.float32)[:, None]
    arguments = learner.init(), *map(jnp.asarray, (np.asarray(xs, np.float32), targets, mask))
    program = (
        jax.jit(lambda state, x, y, mask: learner.step(state, x, y, mask=mask))
        .lower(*arguments)
        .compile()
    )
    began = time.process_time()
    state, info = jax.block_until_ready(program(*arguments))
    spent = time.process_time() - began
    assert bool(info.accepted), cell
    outputs = np.asarray(info.outputs)
    right = 100 * (outputs.argmax(axis=1) == ys) if classes else np.abs(outputs[:, 0] - ys)
    labelled = right[mask]
    last = labelled[int(0.7 * len(labelled)) :]
    return {
        "score": "accuracy" if classes else "error",
        "whole": round(float(labelled.mean()), 4),
        "last 30 %": round(float(last.mean()), 4),
        "us a row": round(1e6 * spent / len(xs), 1),
    }


def make_learner(inputs, classes, method, seed):
    """Return the learner of a method."""
    rule, optimizer = METHODS[method]
    network = ft.ModuleNetwork(inputs, classes or 1, cells=CELLS, key=jax.random.key(seed))
    loss = ft.losses.softmax_cross_entropy if classes else ft.losses.squared_error
    head = ft.heads.least_squares()
    return ft.Learner(network, rule=rule, optimizer=optimizer, head=head, loss=loss, warn=False)


def table(records):
    """Print the mean over seeds of the last 30 %: a line a stream, a column a method."""
    found = {}
    for record in records:
        key = record["cell"]["stream"], record["cell"]["method"]
        found.setdefault(key, []).append(record["found"]["last 30 %"])
    methods = [method for method in METHODS if any(method == key[1] for key in found)]
    print(f"| stream | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
    for stream in STREAMS:
        shown = [found.get((stream, method)) for method in methods]
        print(
            f"| {stream} | {' | '.join('' if s is None else f'{np.mean(s):.3f}' for s in shown)} |"
        )


if __name__ == "__main__":
    parser = ledger.parser(__doc__)
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument(
        "--methods", nargs="+", default=["learned", "frozen"], choices=list(METHODS)
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--stream-seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ledger.RECORDS / "memory.jsonl")
    options = parser.parse_args()
    cells = [
        {
            "stream": stream,
            "method": method,
            "rows": options.rows,
            "seed": seed,
            "stream_seed": options.stream_seed,
        }
        for stream in options.streams
        for method in options.methods
        for seed in options.seeds
    ]
    ledger.each(options.output, cells, measure)
    table(ledger.read(options.output))
