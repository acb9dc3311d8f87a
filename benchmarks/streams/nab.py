"""The Numenta anomaly benchmark 1.1: alarms by the surprise of each value.

    FORETRACE_DATA=... python -m benchmarks.streams.nab

Written down before the first run:

- Each of the 58 files is a run of `foretrace stream` on its columns `timestamp` and `value`, with
  nothing set. *foretrace* is its column `surprise`; a value without one has 0.
- An alarm is a value whose surprise reaches the threshold, unless one of the 200 values before it
  was an alarm, as `--unusual` has it.
- The benchmark's scorer is used as it is: standard profile, the first 15 % of a file not scored,
  and one threshold for all files, the one with the best score, as for all published scores.

The surprise of a file is kept in a temporary folder: a stopped run continues with the next file.
The two ways by the distance from an interval, of an earlier definition, are records alone.
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
from foretrace.stream.runs.monitors import QUIET

WORK = Path(tempfile.gettempdir()) / "foretrace-nab-surprise"
THRESHOLDS = np.arange(1, 10, 0.1)


def cells():
    """Return the cells."""
    return ledger.grid(board="NAB", stream="standard profile", way=["foretrace"])


def measure(cell):
    """Return the normalised score over all files."""
    WORK.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sources.data() / "boards" / "nab.tar.xz") as archive:
        archive.extractall(WORK, filter="data")
    folder = WORK / "nab"
    sys.path.insert(0, str(folder))
    from nab.sweeper import Sweeper

    costs = json.loads((folder / "config" / "profiles.json").read_text())["standard"]["CostMatrix"]
    windows = json.loads((folder / "labels" / "combined_windows.json").read_text())
    sweeper, points, found = Sweeper(probationPercent=0.15, costMatrix=costs), [], []
    for name, limits in sorted(windows.items()):
        path = folder / "data" / name
        kept = WORK / (name.replace("/", " ") + ".npy")
        if not kept.exists():
            np.save(kept, surprises(path))
        found.append(np.load(kept))
        limits = [[datetime.fromisoformat(text) for text in pair] for pair in limits]
        points += sweeper.calcSweepScore(series(path), [0.0] * len(found[-1]), limits, name)
    # Of the rows without an alarm, one of each window: the scorer must know that it was missed.
    missed = {one.windowName: one for one in points}
    missed = [one for name, one in missed.items() if name not in (None, "probationary")]
    ways = [(scored(sweeper, points, missed, found, one), one) for one in THRESHOLDS]
    (best, names), threshold = max(ways, key=lambda way: way[0][0].score)
    count = sum(map(len, windows.values()))
    low, high = -count * costs["fnWeight"], count * costs["tpWeight"]
    return {
        "score": 100 * (best.score - low) / (high - low),
        "threshold": round(threshold, 1),
        "files": len(windows),
        "windows": count,
        "windows found": len(names),
        "false rows": best.fp,
    }


def scored(sweeper, points, missed, found, threshold):
    """Return the score of the alarms at a threshold, and the windows that they hit."""
    is_alarm = np.concatenate([alarms(one, threshold) for one in found])
    marked = [points[at]._replace(anomalyScore=1.0) for at in np.nonzero(is_alarm)[0]]
    hit = {one.windowName for one in marked} - {None, "probationary"}
    ways = sweeper.calcScoreByThreshold([*marked, *missed])
    return next((one for one in ways if one.threshold == 1), ways[0]), hit


def alarms(surprise, threshold):
    """Return which values of a file are alarms."""
    found, last = np.zeros(len(surprise), bool), -QUIET - 1
    for at in np.nonzero(surprise >= threshold)[0]:
        if at - last > QUIET:
            found[at], last = True, at
    return found


def series(path):
    """Return the times of the values of a file."""
    with open(path, newline="") as file:
        return [datetime.fromisoformat(row["timestamp"]) for row in csv.DictReader(file)]


def surprises(path):
    """Return the surprise of each value of a file."""
    found = []
    options = {"target": "value", "task": "regression", "time": ("timestamp",)}
    with tempfile.TemporaryDirectory() as folder:
        run(StreamConfig(str(path), **options), f"{folder}/run", on_prediction=found.append)
    return np.array([row["surprise"] or 0.0 for row in found])


if __name__ == "__main__":
    ledger.run(__doc__, "boards", cells, measure)
