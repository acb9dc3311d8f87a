"""Where the CPU time of a row of `foretrace stream` goes, part by part; with `--against`, beside another checkout.

    FORETRACE_DATA=... python benchmarks/row_parts.py [--against ../old] [--rows 3000] [--rounds 3]

Each measurement is a process of its own on one thread, after a short run that compiles; both checkouts take turns, and
the smallest time of the rounds stands. Whatever else the core does shortens nothing. `dispatch` is a program that takes
and returns the whole state of the mixture and computes nothing: a call cannot be faster than this. `with files` is the
whole command, checkpoints among it.
"""

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import ledger
import rows

FILE = ledger.RECORDS / "latency.jsonl"
STREAMS = ("elec2", "beijing_pm25", "thirty numbers")
SIZES, CHUNKS = ("auto", "fast", "tiny", "small"), (1, 64)
WARM = 512


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of the project, measured in turn")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=STREAMS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--chunks", nargs="+", type=int, default=CHUNKS)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(parts(json.loads(asked.one), asked.work)))
        return
    here = Path(__file__).parent.parent
    trees = {"now": here} | ({} if asked.against is None else {"before": asked.against})
    commits = {name: _commit(tree) for name, tree in trees.items()}
    cells = [
        {"what": "parts", "stream": s, "size": size, "chunk": c, "rows": asked.rows, "commits": commits}
        for s in asked.streams
        for size in asked.sizes
        for c in asked.chunks
    ]
    ledger.each(FILE, cells, lambda cell: in_turn(cell, trees, asked))


def in_turn(cell, trees, asked):
    """Return the parts of each checkout, in microseconds of CPU time a row: those of its fastest round."""
    best = {}
    for _ in range(asked.rounds):
        for name, tree in trees.items():
            child = [sys.executable, __file__, "--one", json.dumps(cell), "--work", str(asked.work)]
            threads = "--xla_cpu_multi_thread_eigen=false"
            environment = os.environ | {"PYTHONPATH": str(tree), "XLA_FLAGS": threads, "OMP_NUM_THREADS": "1"}
            found = json.loads(subprocess.run(child, env=environment, check=True, stdout=subprocess.PIPE).stdout)
            if name not in best or found["row"] < best[name]["row"]:
                best[name] = found
    return best


def parts(cell, work):
    """Return the parts of a row in this process."""
    import foretrace.stream._parts as timed
    from foretrace.stream._config import StreamConfig
    from foretrace.stream._model_config import ModelConfig
    from foretrace.stream._run import follow

    timed.time = SimpleNamespace(perf_counter=time.process_time)
    path = thirty(work) if cell["stream"] == "thirty numbers" else rows.prepare(cell["stream"], work)
    model = ModelConfig(size=cell["size"])
    config = StreamConfig(str(path), target="target", chunk=cell["chunk"], model=model, log_every=cell["rows"] // 3)
    with tempfile.TemporaryDirectory() as folder:
        warm = dataclasses.replace(config, log_every=WARM // 2)  # a line of metrics has a program of its own
        follow(warm, f"{folder}/warm", rows=WARM, show_progress=False)
        began = time.process_time()
        result = follow(config, f"{folder}/run", rows=cell["rows"], show_progress=False)
        total = 1e6 * (time.process_time() - began) / cell["rows"]
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    spent = [line["microseconds"] for line in lines if line.get("microseconds")]
    spent = {part: min(one.get(part, 0.0) for one in spent) for part in spent[-1]}
    scores = {name: result.scores[name] for name in ("accuracy", "mae") if name in result.scores}
    return {
        "row": round(sum(spent.values()), 1),
        "with files": round(total, 1),
        **spent,
        **dispatch(config, path),
        **scores,
    }


def dispatch(config, path):
    """Return the time of a program that passes the state of the mixture through."""
    import jax
    import numpy as np

    from foretrace.stream._plan import build, make_plan, open_source

    source = open_source(config)
    first = [row for row, _ in zip(source.rows(), range(200), strict=False)]
    found = build(config, make_plan(config, source, [row for row, _ in first])).ensemble
    if found is None:
        return {}
    with jax.enable_x64(True):
        through = jax.jit(lambda state, row: (state, row + 1), donate_argnums=0)
        state, row, best = found.init().mixture, np.zeros((1, 24)), float("inf")
        if not hasattr(state, "small"):  # earlier versions packed it themselves
            state = found.mixture.packing.pack(state)
        for _ in range(5):
            began = time.process_time()
            for _ in range(300):
                state, out = through(state, row)
                np.asarray(out)
            best = min(best, 1e6 * (time.process_time() - began) / 300)
    return {"dispatch": round(best, 1), "arrays": len(jax.tree.leaves(state))}


def thirty(work):
    """Write a stream of thirty numbers and a class that depends on three of them; return its path."""
    path = Path(work) / "thirty.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draw = random.Random(0)
        lines = [",".join([*(f"x{i}" for i in range(30)), "target"])]
        for _ in range(20_000):
            x = [draw.gauss(0, 1) for _ in range(30)]
            lines.append(",".join([*(f"{v:.4f}" for v in x), "ab"[x[0] + x[1] * x[2] > 0]]))
        path.write_text("\n".join(lines) + "\n")
    return path


def _commit(tree):
    """Return the commit of a checkout; records that were written meanwhile are no change of it."""
    at = ["git", "-C", str(tree)]
    changed = subprocess.run(
        [*at, "status", "--porcelain", "-uno", "--", ":!benchmarks/records"], check=True, stdout=subprocess.PIPE
    )
    commit = subprocess.run([*at, "rev-parse", "--short", "HEAD"], check=True, stdout=subprocess.PIPE)
    return commit.stdout.decode().strip() + "-dirty" * bool(changed.stdout)


if __name__ == "__main__":
    main()
