"""The twenty series of touchstone-rs: ROC-AUC of the surprise of each row.

    TOUCHSTONE=.../touchstone-rs/benchmark python -m benchmarks.streams.touchstone

The folder is `benchmark` of https://github.com/wenig/touchstone-rs (MIT), commit f7c01ed1. Written
down before the first run on a long series:

- Each column of a series is a run of `foretrace stream` on this column alone, with nothing set.
  Numbers are in float32, as detectors get them there.
- The score of a row is the largest, over the columns, of the mean of a column's last 30 surprises;
  a value without one has 0.
- Sizes `auto` and `fast` and the experts `lags`, the largest or the mean over the columns, and 1,
  10, 30, 100 or 200 rows were compared on the ten series of 10,000 rows or fewer. These had been
  looked at before; the ten longer ones had not.
- Their public results (leaderboard, mean ROC-AUC over all twenty): k-means .699, Toto .657, Stumpi
  .642.

The surprises of a column are kept in a temporary folder: a stopped run continues with the next one.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import rankdata

from benchmarks import ledger
from foretrace.stream import StreamConfig, run

WORK = Path(tempfile.gettempdir()) / "foretrace-touchstone"
SHORT, ROWS = 10_000, 30


def folder():
    """Return the folder of the series."""
    if "TOUCHSTONE" not in os.environ:
        raise SystemExit("name the folder of the series: TOUCHSTONE=.../touchstone-rs/benchmark")
    return Path(os.environ["TOUCHSTONE"])


def cells():
    """Return a cell for each series, the shortest first."""
    series = sorted(folder().glob("*.parquet"), key=lambda path: pq.read_metadata(path).num_rows)
    return ledger.grid(board="touchstone", stream=[one.stem for one in series], way=["foretrace"])


def measure(cell):
    """Return the ROC-AUC of a series."""
    WORK.mkdir(parents=True, exist_ok=True)
    table = pq.read_table(folder() / f"{cell['stream']}.parquet")
    found = []
    for name in table.column_names[1:-1]:
        kept = WORK / f"{cell['stream']} {name.replace('/', ' ')}.npy"
        if not kept.exists():
            np.save(kept, surprises(table[name].to_numpy()))
        found.append(smooth(np.load(kept)))
    score, label = np.max(found, axis=0), table["is_anomaly"].to_numpy() > 0
    return {
        "score": auc(score, label),
        "rows": len(label),
        "columns": len(found),
        "was looked at": len(label) <= SHORT,
    }


def surprises(values):
    """Return the surprise of each value of a column."""
    found = []
    options = {"target": "value", "task": "regression"}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "column.csv"
        numbers = values.astype(np.float32).astype(float).tolist()
        path.write_text("value\n" + "".join(f"{value!r}\n" for value in numbers))
        run(StreamConfig(str(path), **options), Path(place) / "run", on_prediction=found.append)
    return np.array([row["surprise"] or 0.0 for row in found])


def smooth(values):
    """Return the mean of the last values at each row."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    return (sums[ends] - sums[np.maximum(ends - ROWS, 0)]) / np.minimum(ends, ROWS)


def auc(score, label):
    """Return the area under the ROC curve: the share of pairs in the right order."""
    ranks, positive = rankdata(score), label.sum()
    least = positive * (positive + 1) / 2
    return float((ranks[label].sum() - least) / (positive * (len(label) - positive)))


if __name__ == "__main__":
    ledger.run(__doc__, "boards", cells, measure)
