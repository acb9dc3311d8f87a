"""Streams in which what matters lies hundreds of rows back: where does the network overtake the mixture without it?

    FORETRACE_DATA=... python benchmarks/long_streams.py [--rows 50000] [--streams heart pixels] [--only default]

All ways learn in chunks of 32 rows, progressive validation, scores of each tenth of the rows. Nothing is chosen by
stream.
"""

import argparse
import csv
import lzma
import os
import tempfile
from itertools import islice
from pathlib import Path

import ledger
import numpy as np
import rows
import streams

FILE = ledger.RECORDS / "long_streams.jsonl"
ALL = (*streams.EXPERTS, "events")
CHUNK = {"chunk": 32}
WAYS = {
    "mixture of experts (default)": {"size": "auto", **CHUNK},
    "mixture of experts and network": {"size": "auto", "experts": [*ALL, "network"], **CHUNK},
    "network alone, small": {"size": "small", **CHUNK},
    "network alone, medium": {"size": "medium", **CHUNK},
}
STREAMS = {
    "heart": rows.Stream(
        "mitbih_100_signal.parquet",
        "a heart beat within the next 0.2 s, from the signal, 360 rows/s: the last beat is 300 rows back",
        classes=True,
        delay=72,
        previous=False,
    ),
    "pixels": rows.Stream(
        "mnist",
        "a handwritten digit from its pixels, one a row, 196 rows a digit; a label with the last one",
        classes=True,
        previous=False,
    ),
    "pixels, columns first": rows.Stream(
        "mnist",
        "the same, a column of the picture after the other",
        classes=True,
        previous=False,
    ),
    "war_and_peace": rows.STREAMS["war_and_peace"],
    "narma": rows.Stream("generated", "NARMA-10: a product of inputs and outputs up to ten rows back", classes=False),
}
_SOON = 72


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="first rows of each stream")
    parser.add_argument("--streams", nargs="+", choices=list(STREAMS), default=list(STREAMS))
    parser.add_argument("--only", nargs="+", help="words, one of which the name of a way has to contain")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    asked = parser.parse_args()
    cells = [{"stream": name, "way": way, "rows": asked.rows} for name in asked.streams for way in WAYS]
    if asked.only:
        cells = [cell for cell in cells if any(word in cell["way"] for word in asked.only)]
    ledger.each(FILE, cells, lambda cell: measure(cell, asked.work))


def measure(cell, work):
    """Return the scores of a cell."""
    return streams.network(cell, STREAMS[cell["stream"]], prepare(cell["stream"], work), cell["rows"], WAYS)


def prepare(name, work):
    """Write the file of a stream unless it is there; return its path."""
    if name == "war_and_peace":
        return rows.prepare(name, work)
    path = Path(work) / f"long {name}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        root, torn = Path(os.environ.get("FORETRACE_DATA", "")), path.with_suffix(".part")
        if name == "narma":
            header, lines = _narma()
        else:
            header, lines = _heart(root) if name == "heart" else _pixels(root, columns_first="columns" in name)
        with open(torn, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *islice(lines, 500_000)])
        torn.rename(path)
    return path


def _heart(root):
    from pyarrow import parquet

    folder = root / "streams"
    signal = parquet.read_table(folder / "mitbih_100_signal.parquet")["MLII"].to_numpy()
    notes = parquet.read_table(folder / "mitbih_100_annotations.parquet").to_pylist()
    beats = np.array([note["sample"] for note in notes if note["symbol"] != "+"])
    following = np.append(beats, 10**9)[np.searchsorted(beats, np.arange(len(signal)), side="right")]
    soon = (following <= np.arange(len(signal)) + _SOON).astype(int)
    return ["MLII", "target"], zip(signal.tolist(), soon.tolist(), strict=True)


def _pixels(root, columns_first):
    """Return the rows of the digits in their order, each pixel the mean of four: a pixel, and 1 at a digit's start."""
    images = _idx(root / "mnist" / "train-images-idx3-ubyte.xz", 3)
    labels = _idx(root / "mnist" / "train-labels-idx1-ubyte.xz", 1)
    small = images.reshape(-1, 14, 2, 14, 2).mean((2, 4))
    small = small.transpose(0, 2, 1) if columns_first else small

    def lines():
        for image, label in zip(small.reshape(-1, 196).tolist(), labels.tolist(), strict=True):
            for i, pixel in enumerate(image):
                yield pixel, int(i == 0), f"digit {label}" if i == 195 else ""

    return ["pixel", "start", "target"], lines()


def _narma(count=100_000):
    """Return a series of Atiya and Parlos, IEEE Transactions on Neural Networks 11, 2000, eq. 86, and its input."""
    u, y = np.random.default_rng(0).uniform(0, 0.5, count), np.zeros(count)
    for t in range(9, count - 1):
        y[t + 1] = 0.3 * y[t] + 0.05 * y[t] * y[t - 9 : t + 1].sum() + 1.5 * u[t - 9] * u[t] + 0.1
    return ["u", "target"], zip(u[9:-1].tolist(), y[10:].tolist(), strict=True)


def _idx(path, axes):
    data = lzma.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


if __name__ == "__main__":
    main()
