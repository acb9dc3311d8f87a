"""Time to learn from or answer for one row, and rows per second, beside inference.

    python -m benchmarks.streams.latency [--repeats 200] [--rows 20000]

`learn_one` and `predict_one` are the river estimators', by default and by the paper's rule; all are
timed in turn in one process, medians: run it on a machine that does nothing else. The step alone is
`Learner.step` and `Learner.predict` without rows, encoding and scores. `foretrace stream` is timed
by what it runs, in this process, after a short run that compiles: reading, encoding, learning,
scores and checkpoints.
"""

import itertools
import random
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from benchmarks import ledger
from benchmarks.streams import rows

FILE = ledger.RECORDS / "latency.jsonl"
SIZES = {"tiny": (1, 16, 16), "small": (2, 32, 32), "paper": (4, 128, 64)}
FEATURES, WARM = 8, 256
PARTS = ("elec2", "beijing_pm25", "thirty numbers")


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--repeats", type=int, default=200, help="rounds of one call each")
    parser.add_argument(
        "--rows", type=int, default=20_000, help="rows of the command that are timed"
    )
    parser.add_argument(
        "--parts", action="store_true", help="instead, where the time of a row goes, part by part"
    )
    asked = parser.parse_args()
    cells = [{"what": "one row", "size": size, "repeats": asked.repeats} for size in asked.sizes]
    cells += [
        {"what": "foretrace stream", "size": size, "chunk": chunk, "rows": asked.rows}
        for size in asked.sizes
        for chunk in asked.chunks
    ]
    if asked.parts:
        pairs = itertools.product(PARTS, ("auto", "fast", "tiny", "small"), (1, 64))
        cells = [
            {"what": "parts", "stream": s, "size": size, "chunk": c, "rows": 3000}
            for s, size, c in pairs
        ]
    measure = {"one row": one_row, "foretrace stream": command, "parts": parts}
    ledger.each(FILE, cells, lambda cell: measure[cell["what"]](cell))


def one_row(cell):
    """Return medians of single calls, and paired ratios to inference alone."""
    import jax
    import jax.numpy as jnp

    import foretrace as ft

    model = ft.stream.Classifier(size=cell["size"], features=2 * FEATURES, classes=2)
    paper = ft.stream.Classifier(
        model=ft.stream.ModelConfig(cell["size"], rule="hybrid"), features=2 * FEATURES, classes=2
    )
    draw = random.Random(0)
    given = [
        ({f"x{i}": draw.gauss(0, 1) for i in range(FEATURES)}, draw.random() < 0.5)
        for _ in range(20)
    ]
    depth, model_size, state_size = SIZES[cell["size"]]
    network = ft.Network(
        2 * FEATURES,
        2,
        model_size=model_size,
        depth=depth,
        cell=ft.LRU.factory(state_size=state_size),
        key=jax.random.key(0),
    )
    learner = ft.Learner(
        network, rule=ft.ONLINE, optimizer=ft.adamw(1e-3), loss=ft.losses.softmax_cross_entropy
    )
    state, x, y = learner.init(), jnp.ones((1, 2 * FEATURES)), jnp.zeros(1, int)
    turn = iter(range(10**9))
    calls = {
        "learn_one": lambda: model.learn_one(*given[next(turn) % len(given)]),
        "learn_one_paper_rule": lambda: paper.learn_one(*given[next(turn) % len(given)]),
        "predict_one": lambda: model.predict_one(given[0][0]),
        "step": lambda: jax.block_until_ready(learner.step(state, x, y)),
        "inference": lambda: jax.block_until_ready(learner.predict(state, x, sensitivity=False)),
    }
    took = {name: [] for name in calls}
    for i in range(cell["repeats"] + 5):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if i >= 5:
                took[name].append(time.perf_counter() - began)
    found = {f"{name}_us": 1e6 * statistics.median(times) for name, times in took.items()}
    for over, under in (("step", "inference"), ("learn_one", "predict_one")):
        ratios = [a / b for a, b in zip(took[over], took[under], strict=True)]
        found[f"{over}_over_{under}"] = statistics.median(ratios)
    return found


def command(cell):
    """Return CPU time for each row of a run."""
    import jax

    from benchmarks.streams.followed import follow

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        draw = random.Random(0)
        lines = [",".join([*(f"x{i}" for i in range(FEATURES)), "y"])]
        for _ in range(cell["rows"]):
            lines.append(
                ",".join(
                    [*(f"{draw.gauss(0, 1):.4f}" for _ in range(FEATURES)), str(draw.randrange(2))]
                )
            )
        path.write_text("\n".join(lines) + "\n")
        seconds = follow(
            {"size": cell["size"]}, warm=WARM, source=str(path), target="y", chunk=cell["chunk"]
        ).seconds
    jax.clear_caches()
    return {
        "cpu_us_per_row": 1e6 * seconds / cell["rows"],
        "rows_per_cpu_second": cell["rows"] / seconds,
    }


def parts(cell):
    """Return the parts of a row in microseconds of CPU time; run it with XLA on one thread."""
    import foretrace.stream._intake as timed
    from benchmarks.streams.followed import follow

    timed.time = SimpleNamespace(perf_counter=time.process_time)
    path, count = (
        rows.prepare(cell["stream"], Path(tempfile.gettempdir()) / "foretrace-streams"),
        cell["rows"],
    )
    given = {
        "source": str(path),
        "target": "target",
        "chunk": cell["chunk"],
        "log_every": count // 3,
    }
    result, lines, seconds, _ = follow({"size": cell["size"]}, rows=count, warm=WARM, **given)
    spent = [line["microseconds"] for line in lines if line.get("microseconds")]
    spent = {part: min(one.get(part, 0.0) for one in spent) for part in spent[-1]}
    scores = {name: result.scores[name] for name in ("accuracy", "mae") if name in result.scores}
    times = {"row": round(sum(spent.values()), 1), "with files": round(1e6 * seconds / count, 1)}
    return {"now": {**times, **spent, **scores}}


if __name__ == "__main__":
    main()
