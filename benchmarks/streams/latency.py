"""Time to learn from or answer for one row, and rows per second, beside inference.

    python -m benchmarks.streams.latency [--repeats 200] [--rows 20000] [--what parts]

`learn_one` and `predict_one` are the river estimators', by default and by the paper's rule; all are
timed in turn in one process, medians: run it on a machine that does nothing else. The step alone is
`Learner.step` and `Learner.predict` without rows, encoding and scores. `foretrace stream` is timed
by what it runs, in this process, after a short run that compiles: reading, encoding, learning,
scores and checkpoints.
"""

import random
import statistics
import tempfile
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import foretrace as ft
import foretrace.stream.model.intake as intake
from benchmarks import ledger
from benchmarks.networks import classifier, lru_network, ratio, timed
from benchmarks.streams.followed import follow, write
from benchmarks.streams.rows import prepare

SIZES = {"tiny": (1, 16, 16), "small": (2, 32, 32), "paper": (4, 128, 64)}
"""Depth, model size and state size of networks."""

FEATURES, WARM = 8, 256
STREAMS = ("elec2", "beijing_pm25", "thirty numbers")


def cells(what="calls", sizes=SIZES, repeats=200, rows=20_000):
    """Return the cells.

    Args:
        what: calls and runs, or parts: where the time of a row goes.
        repeats: rounds of one call each.
        rows: rows of the command that are timed.
    """
    if what == "parts":
        models = ["auto", "fast", "tiny", "small"]
        grid = {"stream": STREAMS, "size": models, "rows": 3000}
        return ledger.grid(what=what, **grid)
    runs = ledger.grid(what="foretrace stream", size=sizes, rows=rows)
    return ledger.grid(what="one row", size=sizes, repeats=repeats) + runs


def measure(cell):
    """Return the times of a cell."""
    return {"one row": one_row, "foretrace stream": command, "parts": parts}[cell["what"]](cell)


def model_of(cell):
    """Return the options of the model of a cell."""
    if cell["size"] not in SIZES:
        return {"size": cell["size"]}
    names = ("depth", "model_size", "state_size")
    return {"size": "small", **dict(zip(names, SIZES[cell["size"]], strict=True))}


def one_row(cell):
    """Return medians of single calls, and paired ratios to inference alone."""
    columns = {"features": 2 * FEATURES, "classes": 2}
    chosen = ft.stream.ModelConfig(**model_of(cell))
    model = ft.stream.Classifier(model=chosen, **columns)
    by_paper = ft.stream.ModelConfig(**model_of(cell), rule="hybrid")
    paper = ft.stream.Classifier(model=by_paper, **columns)
    draw = random.Random(0)
    given = [
        ({f"x{i}": draw.gauss(0, 1) for i in range(FEATURES)}, draw.random() < 0.5)
        for _ in range(20)
    ]
    depth, model_size, modules = SIZES[cell["size"]]
    learner = classifier(lru_network(2 * FEATURES, 2, model_size, depth, modules=modules))
    state, x, y = learner.init(), jnp.ones((1, 2 * FEATURES)), jnp.zeros(1, int)
    turn = iter(range(10**9))
    calls = {
        "learn_one": lambda: model.learn_one(*given[next(turn) % len(given)]),
        "learn_one_paper_rule": lambda: paper.learn_one(*given[next(turn) % len(given)]),
        "predict_one": lambda: model.predict_one(given[0][0]),
        "step": lambda: jax.block_until_ready(learner.step(state, x, y)),
        "inference": lambda: jax.block_until_ready(learner.predict(state, x, sensitivity=False)),
    }
    took = timed(calls, cell["repeats"], first=5)
    found = {f"{name}_us": 1e6 * statistics.median(times) for name, times in took.items()}
    for over, under in (("step", "inference"), ("learn_one", "predict_one")):
        found[f"{over}_over_{under}"] = ratio(took, over, under)
    return found


def command(cell):
    """Return CPU time for each row of a run."""
    draw = np.random.default_rng(0)
    columns = {f"x{i}": draw.normal(size=cell["rows"]).round(4) for i in range(FEATURES)}
    with tempfile.TemporaryDirectory() as folder:
        path = write(f"{folder}/rows.csv", **columns, y=draw.integers(0, 2, cell["rows"]))
        given = {"source": path, "target": "y"}
        seconds = follow(model_of(cell), warm=WARM, **given).seconds
    jax.clear_caches()
    return {
        "cpu_us_per_row": 1e6 * seconds / cell["rows"],
        "rows_per_cpu_second": cell["rows"] / seconds,
    }


def parts(cell):
    """Return the parts of a row in microseconds of CPU time; run it with XLA on one thread."""
    intake.time = SimpleNamespace(perf_counter=time.process_time)
    count = cell["rows"]
    given = {"source": str(prepare(cell["stream"])), "target": "target", "log_every": count // 3}
    result, lines, seconds, _ = follow(model_of(cell), rows=count, warm=WARM, **given)
    spent = [line["microseconds"] for line in lines if line.get("microseconds")]
    spent = {part: min(one.get(part, 0.0) for one in spent) for part in spent[-1]}
    scores = {name: result.scores[name] for name in ("accuracy", "mae") if name in result.scores}
    times = {"row": round(sum(spent.values()), 1), "with files": round(1e6 * seconds / count, 1)}
    return {"now": {**times, **spent, **scores}}


if __name__ == "__main__":
    ledger.run(__doc__, "latency", cells, measure)
