"""Coverage and width of prediction intervals, and calibration of probabilities, scored row by row before each label.

    FORETRACE_DATA=... python benchmarks/intervals.py [--rows 5000] [--only ETTh1] [--size auto small] [--save]

The intervals are to hold 90 % of the labels. A series named `FILE.COLUMN` is the next number of that column, from all
columns of the rows so far. `relative width` is the mean width over the mean absolute error: 4.1 for normal errors and
4.6 for Laplace's, where the size of errors never changes. `--save` writes records.
"""

import argparse
import json
import tempfile
from pathlib import Path

import ledger
import rows

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000, help="first rows of each series; 0 for all")
    parser.add_argument("--only", nargs="+", help="words, one of which the name of a series has to contain")
    parser.add_argument("--size", nargs="+", default=["auto"], help="what learns: auto, fast, or a network alone")
    parser.add_argument("--chunk", type=int, default=1, help="rows in a step")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    parser.add_argument("--save", action="store_true", help=f"write records to {FILE.name}")
    asked = parser.parse_args()
    singles = {f"{file}.{column}": (file, column, 1) for file, columns in COLUMNS.items() for column in columns}
    names = [*rows.STREAMS, *AHEAD, *singles, "ecg.MLII"]
    for name in names:
        if asked.only and not any(word in name for word in asked.only):
            continue
        for size in asked.size:
            cell = {"stream": name, "rows": asked.rows, "size": size, "chunk": asked.chunk}
            found = measure(cell, asked.work, AHEAD | singles)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            print(f"{name} ({size}): {shown}", flush=True)
            if asked.save:
                ledger.append(FILE, cell, found)


def measure(cell, work, series):
    """Return the scores of a series."""
    from foretrace import stream
    from foretrace.stream._model_config import ModelConfig

    config = {"chunk": cell["chunk"], "model": ModelConfig(size=cell["size"])} | options(cell["stream"], work, series)
    with tempfile.TemporaryDirectory() as folder:
        result = stream.run(stream.StreamConfig(**config), Path(folder) / "run", rows=cell["rows"] or None)
        lines = [json.loads(line) for line in result.run.metrics.read_text().splitlines()]
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
        stream, path = rows.STREAMS[name], rows.prepare(name, work)
        columns = {"time": stream.clock, "categorical": stream.categories, "delay": stream.delay}
        if path.suffix == ".txt":
            return {"source": str(path)}
        task = "classification" if stream.classes else "regression"
        return {"source": str(path), "target": "target", "previous": stream.previous, "task": task, **columns}
    if name == "ecg.MLII":
        return {"source": str(rows.prepare("ecg", work)), "target": "MLII", "ignore": ("target",), "horizon": 1}
    import os

    file, column, ahead = series[name]
    source = Path(os.environ["FORETRACE_DATA"]) / "streams" / f"{file}.csv.gz"
    return {"source": str(source), "target": column, "horizon": ahead}


if __name__ == "__main__":
    main()
