"""The real streams of the comparison, each as one plain CSV file that every peer reads: same rows, order and target.

`prepare(name, folder)` writes `NAME.csv` (for a text, `NAME.txt`), with the inputs of a row and its `target`; it needs
`FORETRACE_DATA`. Standard library only, but for the parquet files of the ECG and the streams of packages.
"""

import bisect
import csv
import gzip
import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import packaged


class Stream(NamedTuple):
    """One stream.

    Args:
        file: in the folder `streams` of the data.
        what: what is predicted, for the table.
        target: column of the file; ahead: rows ahead at which it is read.
        classes: whether the target is a class.
        delay: rows after which the label of a row is known.
        previous: give the last known label as an input; all get it, or none.
        ignore: columns that are left out; categories: columns of categories; clock: columns of times.
    """

    file: str
    what: str
    target: str = ""
    ahead: int = 0
    classes: bool = False
    delay: int = 0
    previous: bool = True
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()


STREAMS = {
    "elec2": Stream("elec2.csv.gz", "price up or down, from the row", "class", classes=True),
    "noaa_weather": Stream("noaa_weather.csv.gz", "rain or none, from the row", "target", classes=True),
    "beijing_pm25": Stream(
        "beijing_pm25.csv.gz", "PM2.5 of the row, from the weather", "pm2.5", ignore=("No",), categories=("cbwd",)
    ),
    "ETTh1": Stream("ETTh1.csv.gz", "oil temperature 24 hours ahead", "OT", ahead=24, delay=24, clock=("date",)),
    "nab_taxi": Stream("nab_nyc_taxi.csv.gz", "taxi passengers of the half hour", "value", clock=("timestamp",)),
    "ecg": Stream(
        "mitbih_100_signal.parquet",
        "a heart beat within the next 0.2 s, from the signal, 90 rows/s",
        classes=True,
        delay=18,
        previous=False,
    ),
    "shakespeare": Stream("tinyshakespeare.txt.gz", "next character, tiny Shakespeare", classes=True),
    "war_and_peace": Stream("war_and_peace.txt.gz", "next character, War and Peace", classes=True),
}

# Those that ship inside Python packages (`packaged.py`); every label is known before the next row.
PACKAGED = {
    name: Stream("", one.what, classes=one.classes, clock=one.clock, categories=one.categories)
    for name, one in packaged.PACKAGED.items()
}
ANY = STREAMS | PACKAGED

# Rows of a season, for the peers that ask for it: a day; of months or weeks a year.
SEASON = {"nab_taxi": 48, "airline": 12, "el_nino": 12, "co2": 52, "sunspots": 11}

TEXTS = ("shakespeare", "war_and_peace")
_EVERY, _SOON = 4, 18


def prepare(name, folder):
    """Write the file of a stream unless it is there; return its path."""
    stream, root = ANY[name], os.environ.get("FORETRACE_DATA")
    path = Path(folder) / f"{name}.{'txt' if name in TEXTS else 'csv'}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.with_suffix(".part")
    if name in PACKAGED:
        with open(torn, "w", newline="") as file:
            packaged.write(name, file)
        torn.rename(path)
        return path
    if not root:
        raise SystemExit("name the data directory, which holds the folder `streams`: FORETRACE_DATA=...")
    source = Path(root) / "streams" / stream.file
    if name in TEXTS:
        torn.write_bytes(gzip.decompress(source.read_bytes()))
    else:
        header, lines = _ecg(source) if name == "ecg" else _table(source, stream)
        with open(torn, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *lines])
    torn.rename(path)
    return path


def read(name, path, count):
    """Yield the first rows for a peer: inputs as numbers, and the target; both None where missing."""
    stream = ANY[name]
    if name in TEXTS:
        text = Path(path).read_text()[: count + 1]
        for now, following in zip(text, text[1:], strict=False):
            yield {f"is {now!r}": 1.0}, following
        return
    with open(path, newline="") as file:
        for row in islice(csv.DictReader(file), count):
            target = row.pop("target")
            x = {}
            for column, value in row.items():
                if column in stream.categories:
                    x[f"{column} is {value}"] = 1.0
                elif column in stream.clock:
                    x |= _clock(value)
                else:
                    x[column] = float(value) if value not in ("", "NA") else None
            known = target not in ("", "NA")
            yield x, (target if stream.classes else float(target)) if known else None


def _table(source, stream):
    with gzip.open(source, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    # The target of the row itself is no input; one ahead may be predicted from all of the row.
    names = [n for n in rows[0] if n not in stream.ignore and (stream.ahead or n != stream.target)]
    pairs = zip(rows, rows[stream.ahead :], strict=False)
    return [*names, "target"], [[*(row[n] for n in names), later[stream.target]] for row, later in pairs]


def _ecg(source):
    from pyarrow import parquet

    signal = parquet.read_table(source)["MLII"].to_numpy()
    signal = signal[: len(signal) // _EVERY * _EVERY].reshape(-1, _EVERY).mean(1)
    notes = parquet.read_table(source.with_name("mitbih_100_annotations.parquet")).to_pylist()
    beats = [note["sample"] // _EVERY for note in notes if note["symbol"] != "+"]
    lines = []
    for i, value in enumerate(signal.tolist()):
        at = bisect.bisect_right(beats, i)
        lines.append([value, int(at < len(beats) and beats[at] <= i + _SOON)])
    return ["MLII", "target"], lines


def _clock(text):
    from datetime import datetime

    now = datetime.fromisoformat(text)
    return {"hour": now.hour + now.minute / 60, "weekday": float(now.weekday()), "day": float(now.timetuple().tm_yday)}
