"""The default mixture with and without the experts that remember: `memory`, `reservoir`, `distant`.

    FORETRACE_DATA=... python -m benchmarks.streams.guarded [--streams hold co2]

Each row is predicted before it is learned. The mixture without these experts is a part of the one
with them, and makes its own prediction of each row: one run scores both. Made streams have a label
on each fifth row, which is no input, and at least four columns, the last ones noise. The guard's
two settings were chosen on seeds 0 and 1 of flipflop, toggle, hold, alarm and gear, and on elec2,
bananas, ETTh1 and sunspots.

Scores are accuracy in per cent for classes and mean absolute error for numbers, of the whole stream
and of the last 30 % of its labels.
"""

import tempfile
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ledger
from benchmarks.streams import rows as real
from benchmarks.streams.followed import follow, write
from benchmarks.streams.held import HELD, SPACING
from benchmarks.streams.made import MADE
from foretrace._experts.mixture import Mixture
from foretrace._experts.rows import pack
from foretrace.stream._model_config import AUTO

REAL = [
    name
    for name in (*real.STREAMS, *real.PACKAGED, *real.UNSEEN, "heart", "narma")
    if name not in real.TEXTS
]
CHUNK = 500
ALONE = ("memory", "reservoir", "distant")


class Both(Mixture):
    """The default mixture, with predictions and scores' needs instead of experts' errors."""

    def _learned(self, state, row, old, features, experts, has_row):
        state, carries, scored = super()._learned(state, row, old, features, experts, has_row)
        place, count = self.mixture.without.num_candidates, self.mixture.joint.experts - 1
        known = row.known & has_row
        mean, scale = old.seen.moments
        # The prediction without the experts that remember, then theirs alone.
        found = jnp.concatenate([old.candidates.T[place][None], old.predicted.T[-count:]])
        found = found if self.shape.classes else mean + scale * found
        found = jnp.concatenate([old.mixed[None], found])
        if self.shape.classes:
            errors = 100.0 * (found.argmax(axis=1) == row.label[0])
        else:
            errors = jnp.abs(found - row.label[None]).mean(axis=1)
        return state, carries, scored | {"errors": jnp.append(errors, known)}


mixture_of = cache(lambda shape: Both(shape, AUTO))


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
        options = {"previous": False, "chunk": 20}
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
    ledger.run(__doc__, "guarded", cells, measure)
