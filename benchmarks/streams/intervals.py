"""Coverage and width of prediction intervals, and calibration, scored before each label.

    FORETRACE_DATA=... python -m benchmarks.streams.intervals [--rows 5000] [--only ETTh1]

The intervals are to hold 90 % of the labels. A series named `FILE.COLUMN` is the next number of
that column, from all columns of the rows so far. `relative width` is the mean width over the mean
absolute error: 4.1 for normal errors and 4.6 for Laplace's, where the size of errors never changes.
"""

from benchmarks import ledger
from benchmarks.streams import rows as real
from benchmarks.streams import sources
from benchmarks.streams.followed import follow

COLUMNS = {
    "ETTh1": ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    "ETTh2": ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    "beijing_pm25": ("DEWP", "TEMP", "PRES", "Iws"),
    "nab_machine_temperature": ("value",),
    "elec2": ("nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"),
}
SERIES = {
    "ETTh1, 24 steps": ("ETTh1", "OT", 24),
    "ETTh2, 24 steps": ("ETTh2", "OT", 24),
    "nab_taxi, 48 steps": ("nab_nyc_taxi", "value", 48),
}
SERIES |= {f"{file}.{name}": (file, name, 1) for file, names in COLUMNS.items() for name in names}


def cells(rows=5_000, size=("auto",)):
    """Return the cells: the series in the order of the page.

    Args:
        rows: first rows of each series; 0 for all.
        size: what learns: auto, fast, or a network alone.
    """
    streams = [*real.STREAMS, *SERIES, "ecg.MLII"]
    return ledger.grid(stream=streams, rows=rows, size=size)


def measure(cell):
    """Return the scores of a series."""
    given = options(cell["stream"])
    result, lines, *_ = follow({"size": cell["size"]}, rows=cell["rows"] or None, **given)
    wanted = ("accuracy", "log_loss", "calibration_error", "mae", "coverage", "width")
    found = {key: result.scores[key] for key in wanted if key in result.scores}
    if "width" in found:
        windows = [line["coverage"] for line in lines if line["kind"] == "stream"]
        relative = found["width"] / found["mae"] if found["mae"] else float("nan")  # of a constant
        found |= {"relative width": relative, "lowest 1,000": min(windows)}
    return found


def options(name):
    """Return the source of a series and how it is read."""
    if name in real.STREAMS:
        return real.options(name)
    if name == "ecg.MLII":
        source = str(real.prepare("ecg"))
        return {"source": source, "target": "MLII", "ignore": ("target",), "horizon": 1}
    file, column, ahead = SERIES[name]
    source = str(sources.data() / "streams" / f"{file}.csv.gz")
    return {"source": source, "target": column, "horizon": ahead}


if __name__ == "__main__":
    ledger.run(__doc__, "intervals", cells, measure)
