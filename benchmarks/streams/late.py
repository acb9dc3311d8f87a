"""Late labels of river's protocol beside `foretrace stream --delay`: the same predictions?

    FORETRACE_DATA=... python -m benchmarks.streams.late [--rows 1500] [--streams nab_taxi]

The estimator with `delay` gets rows and late labels from river's `simulate_qa`, the command the
same rows as a file, both with the same width and columns in the same order, by name. Rows without a
label are left out. Of a text, a row is a character and its label the next one.
"""

import csv
import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import ledger
from benchmarks.streams import rows

FILE = ledger.RECORDS / "late.jsonl"
DELAYS = {
    "noaa_weather": 7,
    "beijing_pm25": 24,
    "nab_taxi": 48,
    "shakespeare": 5,
    "war_and_peace": 5,
}


def table(name, path, count):
    """Return pairs of a row, its columns by name, and its label; none without a label."""
    stream = rows.ANY[name]
    if name in rows.TEXTS:
        codes = [f"c{ord(character)}" for character in Path(path).read_text()[: count + 1]]
        return [({"character": now}, after) for now, after in zip(codes, codes[1:], strict=False)]
    texts, found = (*stream.categories, *stream.clock), []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            y = row.pop("target")
            x = {c: v if c in texts else _number(v) for c, v in sorted(row.items())}
            if y not in ("", "NA"):
                found.append((x, y if stream.classes else float(y)))
    return found[:count]


def _number(text):
    return None if text in ("", "NA") else float(text)


def of_command(cell, stream, found, folder):
    """Return the command's prediction of each row, and the stream's width and number of classes."""
    from foretrace._experts.mixture import Mixture
    from foretrace.stream import StreamConfig, run

    path, lines, shapes = folder / "rows.jsonl", [], []
    path.write_text("".join(json.dumps(x | {"y": y}) + "\n" for x, y in found))
    task, first = "classification" if stream.classes else "regression", found[0][0]
    texts = (*stream.categories, *stream.clock)
    kinds = {
        "numeric": tuple(c for c in first if c not in texts and not isinstance(first[c], str)),
        "categorical": tuple(
            c for c in first if isinstance(first[c], str) and c not in stream.clock
        ),
        "time": stream.clock,
    }
    config = StreamConfig(str(path), target="y", task=task, delay=cell["delay"], **kinds)
    step = Mixture.step

    def watched(self, state, packed):
        shapes.append(self.shape)
        return step(self, state, packed)

    Mixture.step = watched
    try:
        run(config, folder / "run", on_prediction=lines.append)
    finally:
        Mixture.step = step
    return lines, shapes[0]


def measure(cell):
    """Return how far the estimator's predictions are from the command's."""
    from river import stream as river_stream

    from foretrace.stream import Classifier, Regressor

    stream = rows.ANY[cell["stream"]]
    path = rows.prepare(cell["stream"], Path(tempfile.gettempdir()) / "foretrace-streams")
    found = table(cell["stream"], path, cell["rows"])
    with tempfile.TemporaryDirectory() as folder:
        lines, shape = of_command(cell, stream, found, Path(folder))
    options = {"classes": shape.outputs} if stream.classes else {}
    kind = Classifier if stream.classes else Regressor
    model = kind(features=shape.inputs, delay=cell["delay"], **options)
    mine = [None] * len(found)
    for i, x, y in river_stream.simulate_qa(found, None, cell["delay"]):
        if y is not None:
            model.learn_one(x, y)
        else:
            mine[i] = model.predict_proba_one(x) if stream.classes else model.predict_one(x)
    if stream.classes:
        theirs = [line["probabilities"] for line in lines]
        pairs = list(zip(mine, theirs, strict=True))
        apart = [max((abs(a.get(k, 0) - b.get(k, 0)) for k in a | b), default=0) for a, b in pairs]
        scores = [
            [
                bool(one) and max(one, key=one.get) == y
                for one, (_, y) in zip(said, found, strict=True)
            ]
            for said in (mine, theirs)
        ]
    else:
        said = np.array([mine, [line["y"] for line in lines]], float)
        apart = np.abs(said[0] - said[1])
        scores = np.abs(said - [y for _, y in found])
    return {
        "score": "accuracy" if stream.classes else "mae",
        "command": float(np.mean(scores[1])),
        "estimator": float(np.mean(scores[0])),
        "largest difference": float(np.max(apart)),
        "rows that differ": int(np.sum(np.asarray(apart) > 0)),
        "rows": len(found),
    }


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1500, help="first rows of each stream")
    parser.add_argument("--streams", nargs="+", choices=list(DELAYS), default=list(DELAYS))
    asked = parser.parse_args()
    cells = [{"stream": s, "delay": DELAYS[s], "rows": asked.rows} for s in asked.streams]
    ledger.each(FILE, cells, measure)


if __name__ == "__main__":
    main()
