"""The README's programs, with three seeds: `python -m benchmarks.streams.conveyor`.

`conveyor` is its first program: one recurrent layer predicts each row of
`examples/sensors.csv.gz`, then learns it. Backpropagation through time learns each row alone, or
ten rows in one call. `copy` is `foretrace train copy --chunk 8`: the share of bits of new
sequences that are right after the last step.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import optax

import foretrace as ft
from benchmarks import ledger

RULES = {"online": ft.ONLINE, "BPTT": ft.BPTT}
WINDOWS = {
    "first 1,000": slice(1000),
    "from 2,000": slice(2000, None),
    "last 1,000": slice(-1000, None),
}


def cells(seeds=(0, 1, 2)):
    """Return the cells.

    Args:
        seeds: seeds of the initial parameters.
    """
    ways = (
        {"rule": "online", "rows": 1},
        {"rule": "BPTT", "rows": 1},
        {"rule": "BPTT", "rows": 10},
    )
    conveyor = [{"what": "conveyor", **way, "seed": seed} for seed in seeds for way in ways]
    return [*conveyor, {"what": "copy", "chunk": 8, "seed": 0}]


def measure(cell):
    """Return the share that is right."""
    return copy(cell) if cell["what"] == "copy" else conveyor(cell)


def conveyor(cell):
    """Return the share of rows that are right, for parts of the stream."""
    path = ledger.ROOT / "examples" / "sensors.csv.gz"
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    weight = ((table["weight"] - 500) / 20).astype("float32")[:, None]
    reject = (table["reject"] == "yes").astype(int)
    cell_of, key = ft.LRU.factory(state_size=32), jax.random.key(cell["seed"])
    network = ft.Network(1, 2, model_size=32, depth=1, cell=cell_of, key=key)
    learner = ft.Learner(
        network,
        rule=RULES[cell["rule"]],
        optimizer=optax.adam(1e-3),
        loss=ft.losses.softmax_cross_entropy,
    )
    calls = range(0, len(reject), cell["rows"])
    stream = ((weight[i : i + cell["rows"]], reject[i : i + cell["rows"]]) for i in calls)
    guesses = [info.outputs.argmax(-1) for _, info in learner.run(learner.init(), stream)]
    right = np.concatenate(guesses) == reject
    return {name: float(right[part].mean()) for name, part in WINDOWS.items()}


def copy(cell):
    """Return the shares of bits and of sequences that are right, and the loss."""
    with tempfile.TemporaryDirectory() as folder:
        words = f"train copy --chunk {cell['chunk']} --seed {cell['seed']} --run-dir {folder}/run"
        subprocess.run([sys.executable, "-m", "foretrace", *words.split()], check=True)
        last = json.loads(Path(folder, "run", "metrics.jsonl").read_text().splitlines()[-1])
    return {name: last[name] for name in ("step", "accuracy", "sequences", "loss", "seconds")}


if __name__ == "__main__":
    ledger.run(__doc__, "conveyor", cells, measure)
