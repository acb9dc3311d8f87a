"""The Numenta anomaly benchmark 1.1: the surprise of each value under the forecaster's interval.

    FORETRACE_DATA=... python -m benchmarks.streams.nab

Written down before the first run:

- Each of the 58 files has a model of its own, `ft.stream.Regressor` with nothing set, on the
  columns `timestamp` and `value`. Each value is predicted, then learned.
- *surprise* is minus the logarithm of the tail probability of the value, with the ends of the 90 %
  and the 99 % interval as its quantiles: linear from the middle to the end at 90 %, and beyond it
  linear through the end at 99 %, which is an exponential tail.
- *mean of ten* is the mean of the surprise of the last ten rows.
- The benchmark's scorer is used as it is: standard profile, the first 15 % of a file not scored,
  and one threshold for all files, the one with the best score, as for all published scores.

The surprise of a file is kept in --work, so that a stopped run continues with the next file.
"""

import csv
import io
import json
import math
import sys
import tarfile
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import ledger
from benchmarks.streams import sources

FILE = ledger.RECORDS / "boards.jsonl"
WAYS = {"foretrace": 1, "foretrace, mean of ten": 10}


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-nab")
    work = parser.parse_args().work
    cells = [{"board": "NAB", "stream": "standard profile", "way": way} for way in WAYS]
    ledger.each(FILE, cells, partial(measure, work=work))


def measure(cell, work):
    """Return the normalised score of a way over all files."""
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sources.data() / "boards" / "nab.tar.xz") as archive:
        archive.extractall(work, filter="data")
    folder, span = work / "nab", WAYS[cell["way"]]
    sys.path.insert(0, str(folder))
    from nab.sweeper import Sweeper

    costs = json.loads((folder / "config" / "profiles.json").read_text())["standard"]["CostMatrix"]
    windows = json.loads((folder / "labels" / "combined_windows.json").read_text())
    sweeper, points = Sweeper(probationPercent=0.15, costMatrix=costs), []
    for name, limits in sorted(windows.items()):
        times, values = series((folder / "data" / name).read_text())
        kept = work / (name.replace("/", " ") + ".npy")
        if not kept.exists():
            np.save(kept, surprises(times, values))
        sums = np.cumsum(np.concatenate([np.zeros(span), np.load(kept)]))
        found = (sums[span:] - sums[:-span]) / span
        limits = [[datetime.fromisoformat(text) for text in pair] for pair in limits]
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


def series(text):
    """Return the times and the values of a file."""
    rows = list(csv.DictReader(io.StringIO(text)))
    times = [datetime.fromisoformat(row["timestamp"]) for row in rows]
    return times, [float(row["value"]) for row in rows]


def surprises(times, values):
    """Return the surprise of each value, before it is learned."""
    from foretrace.stream import Regressor

    model, found = Regressor(), []
    for time, value in zip(times, values, strict=True):
        row = {"timestamp": time}
        answer = model._answer(row)  # one prediction for both intervals
        ends = [
            (-math.inf, math.inf)
            if answer is None
            else model._intake.target.interval(answer[0], coverage=coverage)[:, 0].tolist()
            for coverage in (0.9, 0.99)
        ]
        found.append(surprise(value, *ends))
        model.learn_one(row, value)
    return np.array(found)


def surprise(value, usual, wide):
    """Return minus the logarithm of a value's tail probability, of the ends of two intervals."""
    middle, side = (usual[0] + usual[1]) / 2, int(value > (usual[0] + usual[1]) / 2)
    if not math.isfinite(middle):  # nothing was learned yet
        return 0.0
    least = 1e-9 * (abs(middle) + 1)
    reach = max(abs(usual[side] - middle), least)
    beyond = abs(value - middle) - reach
    if beyond <= 0:
        return math.log(20) * (1 + beyond / reach)
    return math.log(20) + math.log(10) * beyond / max(abs(wide[side] - usual[side]), least)


if __name__ == "__main__":
    main()
