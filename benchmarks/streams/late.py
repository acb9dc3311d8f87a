"""Labels that come late: after a constant number of rows, or by id, whenever they come.

    python -m benchmarks.streams.late [--streams elec2 ...] [--labels 10 "any 200" ...]

The default model on the first 5,000 rows of eight real streams. `10` is `--delay 10`; `any 200`:
each label comes after 0 to 200 rows, drawn with seed 0, in whatever order, as a line of its own.
The score is that of the prediction of each row, made when the row came.
"""

import csv
import tempfile

import numpy as np

from benchmarks import ledger
from benchmarks.streams import rows as streams
from benchmarks.streams.followed import follow
from foretrace.stream.read.scores import BASELINES

NAMES = (
    "elec2",
    "airport_wind",
    "bananas",
    "cycling",
    "glucose",
    "late_flights",
    "phishing",
    "sea",
)
LABELS = (0, 1, 10, 100, 200, "any 200", "any 5000")


def cells(streams=NAMES, labels=LABELS, rows=5000):
    """Return the cells: stream and when its labels come."""
    return [cell | {"rows": rows} for cell in ledger.grid(stream=streams, labels=labels)]


def measure(cell):
    """Return the score over all rows, and the scores of the baselines under the same lateness."""
    options, when = streams.options(cell["stream"]), str(cell["labels"]).split()
    score = "accuracy" if options["task"] == "classification" else "mae"
    if when[0] != "any":
        found = follow({}, rows=cell["rows"], **options | {"delay": int(when[0])})
        return _scores(found.lines[-1], score)
    most = int(when[1])
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/events.csv"
        write_events(path, options["source"], cell["rows"], most)
        more = {"source": path, "id": "row's id", "waiting": most + 1}
        last = follow({}, **options | more).lines[-1]
    return _scores(last, score) | {"counts": last["counts"]}


def _scores(last, score):
    """Return the score of a run, those of the baselines, and the number of rows with a label."""
    baselines = {name: last[name] for prefix in BASELINES if (name := prefix + score) in last}
    return {score: last[score], "scored": last["scored"]} | baselines


def write_events(path, source, count, most):
    """Write rows without their targets, and each target in a line of its own, up to `most` later.

    After the last row the labels that are left come, in the order in which they are due.
    """
    draw, due = np.random.default_rng(0), {}
    with open(source, newline="") as file, open(path, "w", newline="") as out:
        table = csv.DictReader(file)
        names = ["row's id", *table.fieldnames]
        lines = csv.DictWriter(out, names, lineterminator="\n")
        lines.writeheader()
        for t, row in zip(range(count), table, strict=False):
            target = row.pop("target")
            lines.writerow({"row's id": t} | row)
            due.setdefault(t + int(draw.integers(most + 1)), []).append((t, target))
            for id, label in due.pop(t, ()):
                lines.writerow({"row's id": id, "target": label})
        for _, labels in sorted(due.items()):
            for id, label in labels:
                lines.writerow({"row's id": id, "target": label})


if __name__ == "__main__":
    ledger.run(__doc__, "late", cells, measure)
