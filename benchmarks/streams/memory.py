"""A memory learned by the second-order step, beside untrained ones, other steps and other models.

    python -m benchmarks.streams.memory --methods learned frozen --seeds 2 3 4 5 6

24 modules of one layer (eight set/reset units, eight without products, eight rotations), least
squares on inputs and outputs of all modules, one setting for all streams. Each row is predicted
before it is learned; each fifth of a made stream and each tenth of a real one (`held.py`) has a
label, revealed at once, but no label is among the inputs: so the last one, which says nearly all on
most of these streams, is no way around the memory. Methods:

    learned           ONLINE and ft.kalman
    frozen            the same modules, not trained
    learned, 72       three times as many modules
    learned, write    three times as many that write (set/reset)
    frozen, 72        three times as many modules, not trained
    reservoir 300     150 rotations (300 numbers), not trained
    one-step          ft.kalman on the one-step truncated rule
    no correction     ft.kalman without the correction of the states
    adam, rmsprop     ONLINE and an optimiser of optax, at three rates
    GRU 32            one GRU layer, BPTT in chunks of 20 rows, Adam at three rates
    rolling 16        a GRU of 16 units, BPTT over the last 20 rows of each label, Adam likewise
    river ...         with the features of the ten rows before, at river's documented defaults
    deep-river ...    where it is installed (`deep_river.py`)

The page takes the best rate of each stream. Scores are accuracy in per cent
for classes and mean absolute error for numbers, of the whole stream and of its last 30 %. Times are
CPU time of the process for each row, compilation left out; they mean something on an idle machine
only.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import loss_of, module_learner, modules
from benchmarks.rolling import Rolling
from benchmarks.streams import peers
from benchmarks.streams.deep_river import Filled
from benchmarks.streams.held import SPACING, rows_of
from benchmarks.streams.made import MADE

CHUNK = 20
"""Rows that backpropagation through time goes back at most."""
LAGS = 10
"""Rows before, whose features river's models see."""
RATES = (1e-2, 3e-3, 1e-3)


FROZEN = (ft.RESERVOIR, optax.set_to_zero())
MODULES = {
    "learned": (modules(8), ft.ONLINE, ft.kalman()),
    "learned, 72": (modules(24), ft.ONLINE, ft.kalman()),
    "learned, write": (
        (ft.SetReset.factory(state_size=24), *modules(8)[1:]),
        ft.ONLINE,
        ft.kalman(),
    ),
    "frozen": (modules(8), *FROZEN),
    "frozen, 72": (modules(24), *FROZEN),
    "reservoir 300": ((ft.Rotation.factory(state_size=150),), *FROZEN),
    "one-step": (modules(8), ft.TRUNCATED, ft.kalman()),
    "no correction": (modules(8), ft.ONLINE, ft.kalman(state_correction=None)),
}
MODULES |= {f"adam {rate:g}": (modules(8), ft.ONLINE, optax.adam(rate)) for rate in RATES}
MODULES |= {f"rmsprop {rate:g}": (modules(8), ft.ONLINE, optax.rmsprop(rate)) for rate in RATES}
LAYERS = {f"GRU 32 {rate:g}": (32, rate) for rate in RATES}
ROLLING = {f"rolling 16 {rate:g}": (16, rate) for rate in RATES}


def cells(
    streams=tuple(MADE), methods=("learned", "frozen"), rows=20_000, seeds=(2, 3, 4), stream_seed=0
):
    """Return the cells."""
    settings = {"rows": rows, "seed": seeds, "stream_seed": stream_seed}
    return ledger.grid(stream=streams, method=methods, **settings)


def measure(cell):
    """Return the scores of one method on one stream."""
    xs, ys, classes = rows_of(cell["stream"], cell["stream_seed"], cell["rows"])
    if cell["method"].startswith(("river", "deep-river")):
        return peer(cell, xs, ys, classes)
    right, spent = network(cell, xs, ys, classes)
    last = right[int(0.7 * len(right)) :]
    return {
        "score": "accuracy" if classes else "error",
        "whole": round(float(right.mean()), 4),
        "last 30 %": round(float(last.mean()), 4),
        "us a row": round(1e6 * spent / len(xs), 1),
    }


def labelled(cell):
    """Return which rows of a cell's stream have a label (T,)."""
    each = SPACING[cell["stream"]]
    return np.arange(cell["rows"]) % each == each - 1


def scores(outputs, ys, classes):
    """Return the score of each label: 0 or 100 for classes, the absolute error for numbers."""
    return 100.0 * (outputs.argmax(axis=1) == ys) if classes else np.abs(outputs[:, 0] - ys)


def network(cell, xs, ys, classes):
    """Follow a stream with a network; return the scores of the rows with a label, and seconds."""
    mask, method, each = labelled(cell), cell["method"], SPACING[cell["stream"]]
    targets = ys if classes else np.asarray(ys, np.float32)[:, None]
    make = make_modules if method in MODULES else partial(make_layer, each)
    learner = make(xs.shape[1], classes, method, cell["seed"])
    # Modules learn each row by itself, whatever the chunk.
    chunk = len(xs) if method in MODULES else each if method in ROLLING else CHUNK
    arguments = learner.init(), jax.tree.map(jnp.asarray, (xs, targets, mask))
    program = jax.jit(partial(by_chunk, learner, chunk)).lower(*arguments).compile()
    began = time.process_time()
    outputs, accepted = jax.block_until_ready(program(*arguments))
    spent = time.process_time() - began
    assert bool(jnp.all(accepted)), cell
    return scores(np.asarray(outputs)[mask], ys[mask], classes), spent


def by_chunk(learner, chunk, state, rows):
    """Learn chunks, one behind the other; return all outputs, and whether all was accepted."""

    def step(state, part):
        state, info = learner.step(state, part[0], part[1], mask=part[2])
        return state, (info.outputs, info.accepted)

    cut = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk, *leaf.shape[1:]), rows)
    outputs, accepted = jax.lax.scan(step, state, cut)[1]
    return outputs.reshape(-1, outputs.shape[-1]), accepted


def make_modules(inputs, classes, method, seed):
    """Return the learner of a layer of modules under least squares."""
    cells, rule, optimizer = MODULES[method]
    return module_learner(inputs, classes, cells, optimizer, rule, seed=seed)


def make_layer(each, inputs, classes, method, seed):
    """Return the learner of a GRU by backpropagation in chunks, or through a rolling window."""
    size, rate = (LAYERS | ROLLING)[method]
    sizes = {"model_size": size, "depth": 1, "cell": ft.GRU.factory()}
    found = ft.Network(inputs, classes or 1, **sizes, key=jax.random.key(seed))
    options = {"optimizer": optax.adam(rate), "loss": loss_of(classes)}
    if method in ROLLING:
        return Rolling(found, reach=CHUNK, chunk=each, **options)
    return ft.Learner(found, rule=ft.BPTT, warn=False, **options)


def peer(cell, xs, ys, classes):
    """Return the scores of a model of another library, of the whole and of the last 30 %."""
    library, kind = cell["method"].split(" ", 1)
    names = [f"x{k}" for k in range(xs.shape[1])]
    labels = [y if known else None for y, known in zip(ys.tolist(), labelled(cell), strict=True)]
    found = zip((dict(zip(names, x, strict=True)) for x in xs.tolist()), labels, strict=True)
    data = peers.Data(found, bool(classes), len(xs), lags=LAGS if library == "river" else 0)
    if library == "river":
        linear = "logistic regression" if classes else "Bayesian linear regression"
        kind = linear if kind == "linear" else kind
        model = peers.river_models(classes)[f"river {kind}"](data)
    else:
        model = Filled(kind, names, classes)
    scored, unit = peers.progressive(model, data), 100.0 if classes else 1.0
    return {
        "score": "accuracy" if classes else "error",
        "whole": round(unit * scored["accuracy" if classes else "mae"], 4),
        "last 30 %": round(unit * sum(scored["parts"][7:]) / 3, 4),
        "us a row": round(scored["cpu_us_per_row"], 1),
    }


if __name__ == "__main__":
    ledger.run(__doc__, "memory", cells, measure)
