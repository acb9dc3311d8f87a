"""Where the CPU time of a row of `foretrace stream` goes, part by part; with `--against`, beside another checkout.

    FORETRACE_DATA=... python -m benchmarks.streams.row_parts [--against ../old] [--rows 3000] [--rounds 3]

Each measurement is a process of its own on one thread, after a short run that compiles; both checkouts take turns, and
the smallest time of the rounds stands. Whatever else the core does shortens nothing. `with files` is the whole command,
checkpoints among it.
"""

import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from benchmarks import ledger
from benchmarks.streams import rows

FILE = ledger.RECORDS / "latency.jsonl"
STREAMS = ("elec2", "beijing_pm25", "thirty numbers")
SIZES, CHUNKS = ("auto", "fast", "tiny", "small"), (1, 64)
WARM = 512


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--against", type=Path, help="another checkout of the project, measured in turn")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=STREAMS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--chunks", nargs="+", type=int, default=CHUNKS)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    parser.add_argument("--one", help="measure this cell in this process and print it")
    asked = parser.parse_args()
    if asked.one:
        return print(json.dumps(parts(json.loads(asked.one), asked.work)))
    trees = {"now": ledger.ROOT} | ({} if asked.against is None else {"before": asked.against})
    commits = {name: ledger.commit(tree) for name, tree in trees.items()}
    cells = [
        {"what": "parts", "stream": s, "size": size, "chunk": c, "rows": asked.rows, "commits": commits}
        for s in asked.streams
        for size in asked.sizes
        for c in asked.chunks
    ]
    return ledger.each(FILE, cells, lambda cell: in_turn(cell, trees, asked))


def in_turn(cell, trees, asked):
    """Return the parts of each checkout, in microseconds of CPU time a row: those of its fastest round."""
    best = {}
    for _ in range(asked.rounds):
        for name, tree in trees.items():
            given = ("--one", json.dumps(cell), "--work", asked.work.resolve())
            threads = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
            found = ledger.fresh("benchmarks.streams.row_parts", *given, package=tree, **threads)
            if name not in best or found["row"] < best[name]["row"]:
                best[name] = found
    return best


def parts(cell, work):
    """Return the parts of a row in this process."""
    import foretrace.stream._parts as timed
    from benchmarks.streams.followed import follow

    timed.time = SimpleNamespace(perf_counter=time.process_time)
    path, count = rows.prepare(cell["stream"], work), cell["rows"]
    given = {"source": str(path), "target": "target", "chunk": cell["chunk"], "log_every": count // 3}
    result, lines, seconds, _ = follow({"size": cell["size"]}, rows=count, warm=WARM, **given)
    spent = [line["microseconds"] for line in lines if line.get("microseconds")]
    spent = {part: min(one.get(part, 0.0) for one in spent) for part in spent[-1]}
    scores = {name: result.scores[name] for name in ("accuracy", "mae") if name in result.scores}
    return {"row": round(sum(spent.values()), 1), "with files": round(1e6 * seconds / count, 1), **spent, **scores}


if __name__ == "__main__":
    main()
