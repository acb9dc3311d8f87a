"""Coverage and width of prediction intervals, and calibration, scored before each label.

    FORETRACE_DATA=... python -m benchmarks.streams.intervals [--rows 5000] [--only ETTh1]
        [--size auto small]

The intervals are to hold 90 % of the labels. A series named `FILE.COLUMN` is the next number of
that column, from all columns of the rows so far. `relative width` is the mean width over the mean
absolute error: 4.1 for normal errors and 4.6 for Laplace's, where the size of errors never changes.
"""

import tempfile
from pathlib import Path

from benchmarks import ledger
from benchmarks.streams import rows, sources
from benchmarks.streams.followed import follow

FILE = ledger.RECORDS / "intervals.jsonl"
COLUMNS = {
    "ETTh1": ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    "ETTh2": ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    "beijing_pm25": ("DEWP", "TEMP", "PRES", "Iws"),
    "nab_machine_temperature": ("value",),
    "elec2": ("nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"),
}
AHEAD = {"ETTh1, 24 steps": ("ETTh1", "OT", 24), "ETTh2, 24 steps": ("ETTh2", "OT", 24)}
AHEAD |= {"nab_taxi, 48 steps": ("nab_nyc_taxi", "value", 48)}


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument(
        "--rows", type=int, default=5_000, help="first rows of each series; 0 for all"
    )
    parser.add_argument(
        "--only", nargs="+", help="words, one of which the name of a series has to contain"
    )
    parser.add_argument(
        "--size", nargs="+", default=["auto"], help="what learns: auto, fast, or a network alone"
    )
    parser.add_argument("--chunk", type=int, default=1, help="rows in a step")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams"
    )
    asked = parser.parse_args()
    singles = {
        f"{file}.{column}": (file, column, 1)
        for file, columns in COLUMNS.items()
        for column in columns
    }
    cells = [
        {"stream": name, "rows": asked.rows, "size": size, "chunk": asked.chunk}
        for name in (*rows.STREAMS, *AHEAD, *singles, "ecg.MLII")
        for size in asked.size
        if not asked.only or any(word in name for word in asked.only)
    ]
    ledger.each(FILE, cells, lambda cell: measure(cell, asked.work, AHEAD | singles))


def measure(cell, work, series):
    """Return the scores of a series."""
    given = options(cell["stream"], work, series)
    result, lines, *_ = follow(
        {"size": cell["size"]}, rows=cell["rows"] or None, chunk=cell["chunk"], **given
    )
    wanted = ("accuracy", "log_loss", "calibration_error", "mae", "coverage", "width")
    found = {key: result.scores[key] for key in wanted if key in result.scores}
    if "width" in found:
        windows = [line["coverage"] for line in lines if line["kind"] == "stream"]
        relative = found["width"] / found["mae"] if found["mae"] else float("nan")  # of a constant
        found |= {"relative width": relative, "lowest 1,000": min(windows)}
    return found


def options(name, work, series):
    """Return the source of a series and how it is read."""
    if name in rows.STREAMS:
        return rows.options(name, rows.prepare(name, work))
    if name == "ecg.MLII":
        return {
            "source": str(rows.prepare("ecg", work)),
            "target": "MLII",
            "ignore": ("target",),
            "horizon": 1,
        }
    file, column, ahead = series[name]
    return {
        "source": str(sources.data() / "streams" / f"{file}.csv.gz"),
        "target": column,
        "horizon": ahead,
    }


if __name__ == "__main__":
    main()
