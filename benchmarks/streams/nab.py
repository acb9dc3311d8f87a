"""The Numenta anomaly benchmark 1.1: the surprise of each value under the forecaster's interval.

    FORETRACE_DATA=... python -m benchmarks.streams.nab

Written down before the first run:

- Each of the 58 files is a run of `foretrace stream` on its columns `timestamp` and `value`, with
  nothing set but intervals that hold 99 %.
- *foretrace* is the surprise of a value, minus the logarithm of its tail probability. The tail is
  exponential from the prediction on, and has 1 / 200 beyond either end of the interval. No surprise
  is above 10,000.
- *mean of ten* is the mean of the surprise of the last ten rows.
- The benchmark's scorer is used as it is: standard profile, the first 15 % of a file not scored,
  and one threshold for all files, the one with the best score, as for all published scores.

The surprise of a file is kept in a temporary folder: a stopped run continues with the next file.
"""

import csv
import json
import sys
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks import ledger
from benchmarks.streams import sources
from foretrace.stream import StreamConfig, run

WORK = Path(tempfile.gettempdir()) / "foretrace-nab"
ENDS = ("", "_low", "_high")
MOST = 1e4
WAYS = {"foretrace": 1, "foretrace, mean of ten": 10}


def cells():
    """Return the cells."""
    return ledger.grid(board="NAB", stream="standard profile", way=WAYS)


def measure(cell):
    """Return the normalised score of a way over all files."""
    WORK.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sources.data() / "boards" / "nab.tar.xz") as archive:
        archive.extractall(WORK, filter="data")
    folder, span = WORK / "nab", WAYS[cell["way"]]
    sys.path.insert(0, str(folder))
    from nab.sweeper import Sweeper

    costs = json.loads((folder / "config" / "profiles.json").read_text())["standard"]["CostMatrix"]
    windows = json.loads((folder / "labels" / "combined_windows.json").read_text())
    sweeper, points = Sweeper(probationPercent=0.15, costMatrix=costs), []
    for name, limits in sorted(windows.items()):
        path = folder / "data" / name
        kept = WORK / (name.replace("/", " ") + ".npy")
        if not kept.exists():
            np.save(kept, surprises(path))
        sums = np.cumsum(np.concatenate([np.zeros(span), np.load(kept)]))
        found = (sums[span:] - sums[:-span]) / span
        limits = [[datetime.fromisoformat(text) for text in pair] for pair in limits]
        times, _ = series(path)
        points += sweeper.calcSweepScore(times, (found / (1 + found)).tolist(), limits, name)
    best = max(sweeper.calcScoreByThreshold(points), key=lambda one: one.score)
    count = sum(map(len, windows.values()))
    low, high = -count * costs["fnWeight"], count * costs["tpWeight"]
    names = {point.windowName for point in points if point.anomalyScore >= best.threshold}
    return {
        "score": 100 * (best.score - low) / (high - low),
        "threshold": best.threshold / (1 - best.threshold),
        "files": len(windows),
        "windows": count,
        "windows found": len(names - {None, "probationary"}),
        "false rows": best.fp,
    }


def series(path):
    """Return the times and the values of a file."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["timestamp"]) for row in rows]
    return times, [float(row["value"]) for row in rows]


def surprises(path):
    """Return the surprise of each value of a file, before it is learned."""
    found = []
    options = {"target": "value", "task": "regression", "time": ("timestamp",)}
    with tempfile.TemporaryDirectory() as folder:
        run(
            StreamConfig(str(path), coverage=0.99, **options),
            f"{folder}/run",
            on_prediction=found.append,
        )
    said, low, high = (np.array([row[f"value{end}"] for row in found]) for end in ENDS)
    values = np.array(series(path)[1])
    reach = np.where(values > said, high - said, said - low)
    # The first row has no prediction, and around exact ones an interval has no reach.
    found = np.nan_to_num(np.log(200) * np.abs(values - said) / np.maximum(reach, 1e-12))
    return np.minimum(found, MOST)


if __name__ == "__main__":
    ledger.run(__doc__, "boards", cells, measure)
