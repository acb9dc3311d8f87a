"""Memory over a million rows of `foretrace stream`.

    python -m benchmarks.streams.flat_memory [--rows 1000000] [--size auto]

A stream of generated numbers comes in by a pipe; the run itself says how much memory it holds.
"""

import random
import resource
import subprocess
import sys
import tempfile

from benchmarks import ledger
from foretrace._runs.metrics import read_metrics

WIDTH = 4
FEED = "from benchmarks.streams.flat_memory import feed; feed({})"


def cells(rows=1_000_000, chunk=16, size="small"):
    """Return the cell.

    Args:
        rows: rows of the pipe.
        chunk: rows that are learned together.
        size: what learns, as `foretrace stream --size`.
    """
    other = {} if size == "small" else {"size": size}
    return ledger.grid(what="foretrace stream", rows=rows, chunk=chunk, **other)


def feed(rows):
    """Write rows of numbers to standard output; the class is an earlier number's sign."""
    draw, before = random.Random(0), [0.0] * 8
    print(",".join([f"x{i}" for i in range(WIDTH)] + ["y"]))
    for _ in range(rows):
        xs = [draw.gauss(0, 1) for _ in range(WIDTH)]
        print(",".join(f"{x:.5f}" for x in xs) + f",{int(before[0] > 0)}")
        before = [*before[1:], xs[0]]


def measure(cell):
    """Run the command on a pipe; return resident memory along the way."""
    rows = cell["rows"]
    with tempfile.TemporaryDirectory() as folder:
        every = str(rows // 100)
        command = [sys.executable, *"-m foretrace stream - --format csv --target y".split()]
        command += ["--size", cell.get("size", "small"), "--chunk", str(cell["chunk"])]
        command += ["--log-every", every, "--checkpoint-every", every, "--run-dir", f"{folder}/run"]
        source = [sys.executable, "-c", FEED.format(rows)]
        with subprocess.Popen(source, stdout=subprocess.PIPE, cwd=ledger.ROOT) as pipe:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdin=pipe.stdout, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = read_metrics(f"{folder}/run/metrics.jsonl")
    lines = [line for line in lines if line["kind"] == "stream"]
    memory = [[line["step"], line["resident_mib"]] for line in lines]
    first, last = memory[0][1], memory[-1][1]
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "growth": last / first - 1,
        "mib_at_first": first,
        "mib_at_last": last,
        "cpu_us_per_row": 1e6 * seconds / rows,
        "accuracy": [round(line["accuracy"], 4) for line in lines],
        "mib": memory,
    }


if __name__ == "__main__":
    ledger.run(__doc__, "flat_memory", cells, measure)
