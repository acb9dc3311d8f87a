"""Predictions of another model in a column of the row: as an expert, as an input, and without it.

    FORETRACE_DATA=... python -m benchmarks.streams.outside [--rows 3000] [--only water_flow]

The target of `made` is a random number, which the column holds without noise in a half of the rows;
it holds another random number in the others. The columns of the other streams are the target of a
week ago, and the forecast of the next value by the pretrained model Fracast-0 from up to 2,048
targets; the package `fracast` holds its weights. `alone` is the mean absolute error of the column
in the rows that have it.
"""

import csv
import tempfile
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks import ledger
from benchmarks.streams import rows as real
from benchmarks.streams.followed import follow, write

WEEKS = {"nab_taxi": 336, "water_flow": 168}
HALF = ("right in half of the rows", "right in every second block of 250")


def cells(rows=3000):
    """Return the cells.

    Args:
        rows: first rows of each stream.
    """
    pairs = [("made", column) for column in HALF]
    pairs += [(stream, column) for stream in WEEKS for column in ("a week ago", "Fracast-0")]
    found = [(*pair, way) for pair in pairs for way in ("expert", "input")]
    found += [(stream, "", "without") for stream in ("made", *WEEKS)]
    return [dict(zip(("stream", "column", "way"), one, strict=True), rows=rows) for one in found]


@cache
def table(stream, rows):
    """Return the columns of a stream by name, the target among them."""
    if stream == "made":
        draw = np.random.default_rng(0)
        y, other, noise = draw.normal(size=(3, rows)) * [[5], [5], [1]]
        every = np.where(draw.uniform(size=rows) < 0.5, y, other)
        blocks = np.where(np.arange(rows) // 250 % 2 == 0, y, other)
        return {"target": y + noise, HALF[0]: every, HALF[1]: blocks}
    with open(real.prepare(stream), newline="") as file:
        lines = list(islice(csv.DictReader(file), rows))
    return {name: [line[name] for line in lines] for name in lines[0]}


@cache
def predictions(stream, column, rows):
    """Return the column; NaN where there is no prediction."""
    found = table(stream, rows)
    y = np.array(found["target"], float)
    if column in found:
        return found[column]
    if column == "a week ago":
        return np.concatenate([np.full(WEEKS[stream], np.nan), y])[: len(y)]
    from fracast.inference import FracastModel

    model, first = FracastModel.from_pretrained(weights="fp32"), 8  # its shortest context
    medians = [model.forecast(y[:row], horizon=1)[0, 4] for row in range(first, len(y))]
    return np.concatenate([np.full(first, np.nan), medians])


def measure(cell):
    """Return the scores of a run, the weight of the column after it, and the column's error."""
    stream, column, way, rows = cell.values()
    found = {name: values for name, values in table(stream, rows).items() if name not in HALF}
    options = {"target": "target", "task": "regression"}
    alone = None
    if column:
        given = predictions(stream, column, rows)
        alone = float(np.nanmean(np.abs(given - np.array(found["target"], float))))
        found = {"given": ["" if np.isnan(one) else one for one in given], **found}
        options["expert_column"] = ("given",) if way == "expert" else ()
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder) / "rows.csv", **found)
        result = follow({}, source=source, **options).result
    return {
        "mae": result.scores["mae"],
        "coverage": result.scores["coverage"],
        "weight": result.weights.get("column given"),
        "alone": alone,
    }


if __name__ == "__main__":
    ledger.run(__doc__, "outside", cells, measure)
