"""The default mixture with and without the experts that remember, `memory` and `distant`.

    FORETRACE_DATA=... python -m benchmarks.streams.remembering [--streams hold co2]

Each row is predicted before it is learned. Made streams have a label on each fifth row, which is no
input, and at least four columns, the last ones noise.

Scores are accuracy in per cent for classes and mean absolute error for numbers, of the whole stream
and of the last 30 % of its labels.
"""

import tempfile
from pathlib import Path

import jax
import numpy as np

from benchmarks import ledger
from benchmarks.streams import rows as real
from benchmarks.streams.followed import follow, write
from benchmarks.streams.held import HELD, SPACING
from benchmarks.streams.made import MADE
from foretrace.stream.model.mixture import Mixture, mixture
from foretrace.stream.model.model_config import AUTO
from foretrace.stream.model.rows import pack

REAL = [
    name
    for name in (*real.STREAMS, *real.PACKAGED, *real.UNSEEN, "heart", "narma")
    if name not in real.TEXTS
]
CHUNK = 500
ALONE = ("memory", "distant")


def cells(streams=(*MADE, *HELD, *REAL), seeds=(2, 3), rows=None):
    """Return the cells.

    Args:
        seeds: seeds of streams that are not read from the start.
        rows: rows of a stream; by default 20,000 of a made or held one, 5,000 of a real one.
    """
    found = []
    for name in streams:
        if name in SPACING:
            found += ledger.grid(stream=name, rows=rows or 20_000, seed=seeds)
        else:
            found.append({"stream": name, "rows": rows or 5_000})
    return found


def measure(cell):
    """Return the scores of one stream."""
    with jax.enable_x64(False):
        classes, found = errors(cell)
    if not found:
        return {"left out": True}
    labels = len(found["with"])
    parts = {"whole": 0, "last 30 %": int(0.7 * labels)}
    return {"score": "accuracy" if classes else "error", "labels": labels} | {
        part: {who: round(float(each[start:].mean()), 5) for who, each in found.items()}
        for part, start in parts.items()
    }


def errors(cell):
    """Return the number of classes, and the score of each label under each model.

    The models are the mixture with the experts that remember, the one without, and each expert;
    none if these experts would be too large for the stream.
    """
    with tempfile.TemporaryDirectory() as folder:
        shape, rows = packed_rows(cell, Path(folder))
    found, ways = {}, {"with": AUTO, "without": tuple(name for name in AUTO if name not in ALONE)}
    # Equal chunks are one program.
    missing = pack(shape, [], -len(rows) % CHUNK)
    chunks = np.split(np.concatenate([rows, missing]), (len(rows) + len(missing)) // CHUNK)
    for way, experts in ways.items():
        model = mixture(shape, experts)
        if way == "with" and not set(ALONE) & set(model.pure.names):
            return shape.classes, {}
        state, steps = model.init(), []
        for chunk in chunks:
            state, step = model.step(state, chunk)
            steps.append(np.column_stack([step.scores[:, 0], step.errors]))
        scores, *wrong = np.concatenate(steps).T
        known = np.isfinite(scores)
        found[way] = 100 * scores[known] if shape.classes else scores[known]
        for name, each in zip(model.pure.names, wrong, strict=True):
            if name in ALONE:
                found[name] = 100 * (1 - each[known]) if shape.classes else each[known]
    return shape.classes, found


def packed_rows(cell, folder):
    """Return a stream's shape, and its rows as a run of the baselines packs them."""
    name = cell["stream"]
    options = written(cell, folder) if name in SPACING else real.options(name)
    taken, step = [], Mixture.step

    def taking(self, state, rows):
        taken.append((self.shape, np.array(rows)))
        return step(self, state, rows)

    Mixture.step = taking
    try:
        follow({"experts": ("baselines",)}, rows=cell["rows"], **options)
    finally:
        Mixture.step = step
    return taken[0][0], np.concatenate([rows for _, rows in taken])


def written(cell, folder):
    """Write a made stream, or a real one whose rows leave something behind; return its options."""
    name, random, options = cell["stream"], np.random.default_rng(cell["seed"]), {}
    if name in HELD:
        columns, ys, classes = HELD[name](random, cell["rows"])
    else:
        xs, ys, classes = MADE[name](random, cell["rows"])
        # Noise up to four columns: most of these streams then share one program.
        xs = np.concatenate([xs, random.normal(size=(len(xs), max(4 - xs.shape[1], 0)))], axis=1)
        columns = {f"x{i}": x for i, x in enumerate(xs.T)}
        options = {"previous": False}
    texts = {
        column: [f"{value:.5g}" for value in values] if values.dtype.kind == "f" else values
        for column, values in columns.items()
    }
    labels = [
        y if i % SPACING[name] == SPACING[name] - 1 else "" for i, y in enumerate(ys.tolist())
    ]
    path = write(folder / "rows.csv", **texts, y=labels)
    task = "classification" if classes else "regression"
    return {"source": path, "target": "y", "task": task, **options}


if __name__ == "__main__":
    ledger.run(__doc__, "remembering", cells, measure)
