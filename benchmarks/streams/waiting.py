"""Rows that wait for labels: memory over a million rows, and of many rows that wait at once.

    python -m benchmarks.streams.waiting [--kinds flat] [--rows 1000000]

flat: labels come 0 to 800 rows late in any order, one in ten never, and 1,000 rows may wait. Only
two groups of experts learn, since the memory of the default does not differ. room: the default;
the first 500 labels come at once, no later one does, and 10 or 10,000 rows wait.
"""

import csv
import tempfile

import numpy as np

from benchmarks import ledger
from benchmarks.streams.followed import follow

LATEST, NEVER, TOLD = 800, 0.1, 500
KINDS = ("flat", "room 10", "room 10000")


def cells(kinds=KINDS, rows=1_000_000):
    """Return the cells.

    Args:
        rows: number of rows of `flat`.
    """
    found = {"flat": rows}
    return [{"kind": kind, "rows": found.get(kind, 10_000 + TOLD)} for kind in kinds]


def measure(cell):
    """Return the peak of memory on the way, and what became of rows and labels."""
    kind, _, waiting = cell["kind"].partition(" ")
    is_flat = kind == "flat"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/events.csv"
        write_events(path, cell["rows"], is_flat)
        options = {"source": path, "target": "y", "id": "id", "task": "regression"}
        options |= {"waiting": int(waiting or 1000), "log_every": cell["rows"] // 20}
        model = {"experts": ("lags", "raw")} if is_flat else {}
        found = follow(model, **options)
    last = found.lines[-1]
    names = ("scored", "mae", "mean_mae", "counts")
    return {name: last[name] for name in names if name in last} | {
        "resident_mib": [line["resident_mib"] for line in found.lines if "resident_mib" in line],
        "checkpoint_mib": found.state_kib / 2**10,
        "cpu_seconds": found.seconds,
    }


def write_events(path, count, is_flat):
    """Write rows, and labels as lines of their own."""
    draw, due = np.random.default_rng(0), {}
    with open(path, "w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["id", "a", "b", "y"])
        for t in range(count):
            a, b, noise = draw.normal(size=3)
            lines.writerow([f"r{t}", f"{a:.4f}", f"{b:.4f}", ""])
            comes = draw.uniform() >= NEVER if is_flat else t < TOLD
            late = int(draw.integers(LATEST + 1)) if is_flat else 0
            if comes:
                due.setdefault(t + late, []).append((t, f"{2 * a - b + noise / 2:.4f}"))
            for row, label in due.pop(t, ()):
                lines.writerow([f"r{row}", "", "", label])


if __name__ == "__main__":
    ledger.run(__doc__, "waiting", cells, measure)
