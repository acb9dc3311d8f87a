"""The default mixture with and without the experts that remember: `memory`, `reservoir`, `distant`.

    FORETRACE_DATA=... python -m benchmarks.streams.guarded [--made] [--real]
        [--streams hold co2]

Each row is predicted before it is learned. The mixture without these experts is a part of the one
with them, and makes its own prediction of each row: one run scores both. Made streams have a label
on each fifth row, which is no input, and at least four columns, the last ones noise. The guard's
two settings were chosen on seeds 0 and 1 of flipflop, toggle, hold, alarm and gear, and on elec2,
bananas, ETTh1 and sunspots.

Scores are accuracy in per cent for classes and mean absolute error for numbers, of the whole stream
and of the last 30 % of its labels.
"""

import csv
import tempfile
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ledger
from benchmarks.pages import memory as pages
from benchmarks.streams import rows as real
from benchmarks.streams.followed import follow
from benchmarks.streams.held import EACH as HELD_EACH
from benchmarks.streams.held import HELD
from benchmarks.streams.made import EACH, MADE
from foretrace._experts.mixture import Mixture
from foretrace._experts.rows import pack
from foretrace.stream._model_config import AUTO

FILE = ledger.RECORDS / "guarded.jsonl"
REAL = [
    name
    for name in (*real.STREAMS, *real.PACKAGED, *real.UNSEEN, "heart", "narma")
    if name not in real.TEXTS
]
CHUNK = 500
ALONE = ("memory", "reservoir", "distant")


class Both(Mixture):
    """The default mixture, with predictions and scores' needs instead of experts' errors."""

    def _learned(self, state, row, old, features, newest, carried):
        state, mixed = super()._learned(state, row, old, features, newest, carried)
        place, count = self.mixture.without.num_candidates, self.mixture.joint.experts - 1
        known = row.known & carried.has_row
        mean, scale = old.seen.moments
        # The prediction without the experts that remember, then theirs alone.
        found = jnp.concatenate([old.candidates.T[place][None], old.predicted.T[-count:]])
        found = found if self.shape.classes else mean + scale * found
        found = jnp.concatenate([old.mixed[None], found])
        if self.shape.classes:
            errors = 100.0 * (found.argmax(axis=1) == row.label[0])
        else:
            errors = jnp.abs(found - row.label[None]).mean(axis=1)
        return state, mixed._replace(errors=jnp.append(errors, known))


mixture_of = cache(lambda shape: Both(shape, AUTO))


def measure(cell):
    """Return the scores of one stream."""
    classes, found = errors(cell)
    if not found:
        return {"left out": True}
    labels = len(found["with"])
    return {
        "score": "accuracy" if classes else "error",
        "labels": labels,
        "whole": {who: round(float(each.mean()), 5) for who, each in found.items()},
        "last 30 %": {
            who: round(float(each[int(0.7 * labels) :].mean()), 5) for who, each in found.items()
        },
    }


def errors(cell):
    """Return the number of classes, and the score of each label under each model.

    The models are the mixture with the experts that remember, the one without, and each expert;
    none if these experts would be too large for the stream.
    """
    with tempfile.TemporaryDirectory() as folder:
        shape, rows = packed_rows(cell, Path(folder))
    mixture = mixture_of(shape)
    if not mixture.guarded:
        return shape.classes, {}
    # Equal chunks are one program.
    missing = pack(shape, [], -len(rows) % CHUNK)
    state, found = mixture.init(), []
    for chunk in np.split(np.concatenate([rows, missing]), (len(rows) + len(missing)) // CHUNK):
        state, step = mixture.step(state, chunk)
        found.append(np.asarray(step.errors))
    found = np.concatenate(found)
    found = found[found[:, -1] > 0, :-1]
    return shape.classes, dict(zip(("with", "without", *mixture.guarded), found.T, strict=True))


def packed_rows(cell, folder):
    """Return a stream's shape, and its rows as a run of the baselines packs them."""
    if cell["stream"] in MADE:
        options = made(cell, folder)
    elif cell["stream"] in HELD:
        options = held(cell, folder)
    else:
        work = Path(tempfile.gettempdir()) / "foretrace-streams"
        options = real.options(cell["stream"], real.prepare(cell["stream"], work))
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


def made(cell, folder):
    """Write a made stream; return how it is read."""
    random = np.random.default_rng(cell["seed"])
    xs, ys, classes = MADE[cell["stream"]](random, cell["rows"])
    # Noise up to four columns: most of these streams then share one program.
    xs = np.concatenate([xs, random.normal(size=(len(xs), max(4 - xs.shape[1], 0)))], axis=1)
    columns = {f"x{i}": x for i, x in enumerate(xs.T)}
    path = written(folder, columns, ys, EACH)
    task = "classification" if classes else "regression"
    return {"source": path, "target": "y", "task": task, "previous": False, "chunk": 20}


def held(cell, folder):
    """Write a real stream whose rows leave something behind; return how it is read."""
    columns, ys, classes = HELD[cell["stream"]](np.random.default_rng(cell["seed"]), cell["rows"])
    path = written(folder, columns, ys, HELD_EACH)
    return {"source": path, "target": "y", "task": "classification" if classes else "regression"}


def written(folder, columns, ys, each):
    """Write columns by name, and a label at regular rows; return the path."""
    with open(path := folder / "rows.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*columns, "y"])
        texts = [
            [f"{value:.5g}" if values.dtype.kind == "f" else str(value) for value in values]
            for values in columns.values()
        ]
        for i, (*row, y) in enumerate(zip(*texts, ys.tolist(), strict=True)):
            out.writerow([*row, y if i % each == each - 1 else ""])
    return str(path)


if __name__ == "__main__":
    parser = ledger.parser(__doc__)
    parser.add_argument("--made", action="store_true", help="all made streams")
    parser.add_argument("--real", action="store_true", help="real streams, their first rows")
    parser.add_argument("--streams", nargs="+", default=[], choices=[*MADE, *HELD, *REAL])
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[2, 3],
        help="of streams that are not read from the start",
    )
    parser.add_argument(
        "--rows",
        type=int,
        help="rows of a stream. Default: 20,000 of a made one, 5,000 of a real one",
    )
    asked = parser.parse_args()
    names = [*asked.streams, *(MADE if asked.made else ()), *(REAL if asked.real else ())]
    cells = [
        {"stream": name, "rows": asked.rows or 20_000, "seed": seed}
        for name in names
        if name in MADE or name in HELD
        for seed in asked.seeds
    ]
    cells += [{"stream": name, "rows": asked.rows or 5_000} for name in names if name in REAL]
    with jax.enable_x64(False):
        ledger.each(FILE, cells, measure)
    for streams in (pages.STREAMS, pages.ONCE, pages.HELD, pages.REAL):
        print(pages.mixture(streams))
