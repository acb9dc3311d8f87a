"""A dependency many rows back: who learns it, at which time and memory, in one table.

    python -m benchmarks.streams.reach [--delays 1000 100 20] [--tasks copy xor select]
        [--only online]

One cue is in flight at a time: every `delay` rows a cue row brings random bits and asks for the bit
of the cue row before, `delay` rows back. All other rows are silent and have no label.

    copy    inputs (cue, bit, 0); label: the bit of the cue row before
    xor     inputs (cue, bit, other bit); label: whether these two of the cue row before differ
    select  copy with 24 more bits in every cue row that mean nothing, and 8 modules a layer: too
            few to keep all of them, so the network must learn which to write

Scores are progressive, over tenths of the labels; chance is 0.5. The networks learn in chunks of
`delay` rows with the cue row last: each label is scored before it is learned, as without chunks.
"""

import tempfile
import time
from functools import cache

import equinox
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import classifier, lru_network
from benchmarks.rolling import Rolling
from benchmarks.streams import peers
from benchmarks.streams.cues import INPUTS, LABELS, as_rows, make
from benchmarks.streams.deep_river import Filled
from benchmarks.streams.followed import follow, write

MODULES = {"copy": 32, "xor": 32, "select": 8}
DEPTH, MODEL_SIZE, RATE = 2, 32, 3e-3
LAGS = (10, 1010)

WAYS = {
    "mixture of experts (default)": {"mixture": True},
    "online": {"rule": "ONLINE"},
    "spatial": {"rule": "SPATIAL"},
    "truncated": {"rule": "TRUNCATED"},
    "rolling BPTT, equal memory": {"reach": "equal memory"},
    "rolling BPTT, the whole reach": {"reach": "whole"},
    "online, input gain x 10": {"rule": "ONLINE", "gain": 10.0},
    "spatial, input gain x 10": {"rule": "SPATIAL", "gain": 10.0},
    "online, factor 0.5": {"rule": "ONLINE", "factor": 0.5},
    "online, ring 0 to 1, factor 0.5": {"rule": "ONLINE", "factor": 0.5, "ring": (0.0, 1.0)},
}
"""Ways to train one network; the last is how `foretrace stream` begins.

Unless said otherwise |lam| is drawn from 1 - 1/delay to 1 - 1/(10 delay), and eigenvalues and input
gains learn at 1/delay of the rate (their factor). The encoder is trained under every rule.
"""


def cells(tasks=LABELS, delays=(1000, 100, 20), labels=None, seeds=(0,), limit=900):
    """Return the cells.

    Args:
        labels: labels of a stream, whose rows are that times the delay.
        limit: CPU seconds for a cell of a peer.
    """
    found = []
    for cell in ledger.grid(task=tasks, delay=delays):
        cell |= {"labels": labels or LABELS[cell["task"]], "seed": seeds}
        # A peer sees only so many rows back: fewer than the delay, and, where it can pay, more.
        lags = [n for n in LAGS if n == LAGS[0] or n > cell["delay"]]
        found += ledger.grid(**cell, way=WAYS)
        found += ledger.grid(**cell, way=peers.river_models(True), lags=lags, limit=limit)
        found += ledger.grid(**cell, way=peers.deep_river_models(True), limit=limit)
    return found


def measure(cell):
    """Return accuracy over tenths, time and memory of a cell."""
    stream = make(cell["task"], cell["delay"], cell["labels"], cell["seed"])
    if cell["way"] not in WAYS:
        return peer(cell, *stream)
    return (mixture if "mixture" in WAYS[cell["way"]] else network)(cell, *stream)


def mixture(cell, xs, ys, asked):
    """Score `foretrace stream`'s default; compilation included."""
    columns = {f"x{i}": x for i, x in enumerate(xs.astype(int).T)}
    labels = np.where(asked, ys.astype(str), "")
    with tempfile.TemporaryDirectory() as folder:
        given = {"source": write(f"{folder}/cues.csv", **columns, target=labels)}
        given |= {"target": "target", "task": "classification", "previous": False}
        found = follow({}, log_every=len(xs) // 10, **given)
    scored = found.scored("accuracy", len(xs))
    parts = [round(part, 4) for part in scored["parts"][:10]]
    return {"accuracy": found.result.scores["accuracy"], **scored, "parts": parts}


def peer(cell, xs, ys, asked):
    """Score a peer; it learns from rows with a label, and sees the rows before as features."""
    way, lags = cell["way"], cell.get("lags", 0)
    data = peers.Data(as_rows(xs, ys, asked), True, len(xs), lags)
    if way.startswith("river"):
        model = peers.river_models(True)[way](data)
    else:
        names = [f"x{j}" for j in range(xs.shape[1])]
        model = Filled(way.removeprefix("deep-river "), names, True, scale=False)
    found = peers.progressive(model, data, cell["limit"])
    found["state_kib"] += lags * xs.shape[1] * 8 / 2**10  # the rows before
    return found


def network(cell, xs, ys, asked):
    """Score a network."""
    chunk, count = cell["delay"], len(xs) // cell["delay"]
    reach = None
    if "reach" in (way := WAYS[cell["way"]]):
        reach = equal_reach(cell["task"]) if way["reach"] == "equal memory" else cell["delay"] + 1
    learner = make_learner(cell, reach, chunk)

    def one(state, now):
        xs, ys, asked = now
        state, info = learner.step(state, xs, ys, mask=asked)
        return state, jnp.argmax(info.outputs, -1)

    data = xs.astype(np.float32), ys, asked
    cut = [jnp.asarray(v).reshape(count, chunk, *v.shape[1:]) for v in data]
    state = learner.init()
    run = jax.jit(lambda state, data: lax.scan(one, state, data)).lower(state, cut).compile()
    began = time.process_time()
    _, said = jax.block_until_ready(run(state, cut))
    seconds = time.process_time() - began
    right = (np.asarray(said).ravel() == ys)[asked]
    kept, working = memory_kib(cell["way"], cell["task"], reach)
    return {
        "accuracy": float(right.mean()),
        "parts": [round(float(part.mean()), 4) for part in np.array_split(right, 10)],
        "rows": len(xs),
        "scored": len(right),
        "cpu_us_per_row": 1e6 * seconds / len(xs),
        "state_kib": kept,
        "working_kib": working,
        **({} if reach is None else {"reach": reach}),
    }


def make_learner(cell, reach, chunk):
    """Return what learns."""
    way, delay, task = WAYS[cell["way"]], cell["delay"], cell["task"]
    r_min, r_max = way.get("ring", (1 - 1 / delay, 1 - 0.1 / delay))
    sizes = {"size": MODEL_SIZE, "depth": DEPTH, "modules": MODULES[task]}
    ring = {"r_min": r_min, "r_max": r_max}
    net = lru_network(INPUTS[task], 2, **sizes, key=jax.random.key(cell["seed"]), **ring)
    if "gain" in way:
        net = equinox.tree_at(
            lambda net: net.blocks.cell.gamma_log,
            net,
            replace_fn=lambda log: log + np.log(way["gain"]),
        )
    optimizer = ft.adamw(RATE, recurrent_factor=way.get("factor", 1 / delay))
    if reach is None:
        return classifier(net, way["rule"], optimizer=optimizer, train_encoder=True)
    loss = ft.losses.softmax_cross_entropy
    return Rolling(net, optimizer=optimizer, loss=loss, reach=reach, chunk=chunk)


@cache
def memory_kib(way, task, reach):
    """Return KiB kept between rows, and a compiled step's needs, when learning by row."""
    learner = make_learner({"way": way, "delay": 1000, "task": task, "seed": 0}, reach, 1)

    def step(state, xs, ys, mask):
        return learner.step(state, xs, ys, mask=mask)

    row = jnp.zeros((1, INPUTS[task])), jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
    state = learner.init()
    memory = jax.jit(step, donate_argnums=0).lower(state, *row).compile().memory_analysis()
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return kept / 2**10, memory.temp_size_in_bytes / 2**10


@cache
def equal_reach(task):
    """Return the reach of a rolling window with the online rule's memory, by interpolation."""
    online = sum(memory_kib("online", task, None))
    short, long, way = 16, 272, "rolling BPTT, the whole reach"
    at_short, at_long = (sum(memory_kib(way, task, reach)) for reach in (short, long))
    return max(1, round(short + (online - at_short) / (at_long - at_short) * (long - short)))


if __name__ == "__main__":
    ledger.run(__doc__, peers.record_of("reach"), cells, measure)
