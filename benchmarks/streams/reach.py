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

import csv
import tempfile
import time
from functools import cache

import numpy as np

from benchmarks import ledger
from benchmarks.rolling import Rolling
from benchmarks.streams import peers
from benchmarks.streams.cues import INPUTS, LABELS, as_rows, make
from benchmarks.streams.followed import follow

FILE = ledger.RECORDS / "reach.jsonl"
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


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--delays", type=int, nargs="+", default=[1000, 100, 20])
    parser.add_argument("--tasks", nargs="+", choices=list(LABELS), default=list(LABELS))
    parser.add_argument(
        "--labels", type=int, help="of a stream, whose rows are that times the delay"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--only", nargs="+", help="words, one of which the name of a way has to contain"
    )
    parser.add_argument("--limit", type=float, default=900, help="CPU seconds for a cell of a peer")
    asked = parser.parse_args()
    cells = []
    for task in asked.tasks:
        for delay in asked.delays:
            for way in (*WAYS, *peers.river_models(True)):
                # A peer sees only so many rows back: fewer than the delay, and, where it can pay,
                # more.
                for lags in (
                    (None,) if way in WAYS else tuple(n for n in LAGS if n == LAGS[0] or n > delay)
                ):
                    for seed in asked.seeds:
                        cell = {
                            "task": task,
                            "delay": delay,
                            "way": way,
                            "labels": asked.labels or LABELS[task],
                            "seed": seed,
                        }
                        cells.append(
                            cell | ({} if lags is None else {"lags": lags, "limit": asked.limit})
                        )
    if asked.only:
        cells = [cell for cell in cells if any(word in cell["way"] for word in asked.only)]
    ledger.each(FILE, cells, measure)


def measure(cell):
    """Return accuracy over tenths, time and memory of a cell."""
    stream = make(cell["task"], cell["delay"], cell["labels"], cell["seed"])
    if "mixture" in WAYS.get(cell["way"], {}):
        return mixture(cell, *stream)
    return network(cell, *stream) if cell["way"] in WAYS else river(cell, *stream)


def mixture(cell, xs, ys, asked):
    """Score `foretrace stream`'s default in chunks of 10 or 50 rows; compilation included."""
    with tempfile.TemporaryDirectory() as folder:
        with open(path := f"{folder}/cues.csv", "w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow([*(f"x{i}" for i in range(xs.shape[1])), "target"])
            for x, y, known in zip(
                xs.astype(int).tolist(), ys.tolist(), asked.tolist(), strict=True
            ):
                out.writerow([*x, y if known else ""])
        given = {"source": path, "target": "target", "task": "classification", "previous": False}
        found = follow({}, chunk=10 if cell["delay"] < 50 else 50, log_every=len(xs) // 10, **given)
    return {
        "accuracy": found.result.scores["accuracy"],
        "parts": [round(line["accuracy"], 4) for line in found.lines if line["kind"] == "stream"][
            :10
        ],
        "rows": len(xs),
        "scored": found.lines[-1]["scored"],
        "cpu_us_per_row": 1e6 * found.seconds / len(xs),
        "state_kib": found.state_kib,
    }


def river(cell, xs, ys, asked):
    """Score a peer; it learns from rows with a label, and sees the rows before as features."""
    found = peers.progressive(
        peers.river_models(True)[cell["way"]](),
        as_rows(xs, ys, asked),
        count=len(xs),
        classes=True,
        lags=cell["lags"],
        previous=False,
        limit=cell["limit"],
    )
    found["state_kib"] += cell["lags"] * xs.shape[1] * 8 / 2**10  # the rows before
    return found


def network(cell, xs, ys, asked):
    """Score a network."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    chunk, count = cell["delay"], len(xs) // cell["delay"]
    reach = None
    if "reach" in (way := WAYS[cell["way"]]):
        reach = equal_reach(cell["task"]) if way["reach"] == "equal memory" else cell["delay"] + 1
    learner = make_learner(cell, reach, chunk)

    def one(state, now):
        xs, ys, asked = now
        state, info = learner.step(state, xs, ys, mask=asked)
        return state, jnp.argmax(info.outputs, -1)

    cut = [
        jnp.asarray(v).reshape(count, chunk, *v.shape[1:])
        for v in (xs.astype(np.float32), ys, asked)
    ]
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
    import equinox
    import jax

    import foretrace as ft

    way, delay, task = WAYS[cell["way"]], cell["delay"], cell["task"]
    r_min, r_max = way.get("ring", (1 - 1 / delay, 1 - 0.1 / delay))
    recurrence = ft.LRU.factory(state_size=MODULES[task], r_min=r_min, r_max=r_max)
    key = jax.random.key(cell["seed"])
    net = ft.Network(INPUTS[task], 2, model_size=MODEL_SIZE, depth=DEPTH, cell=recurrence, key=key)
    if "gain" in way:
        net = equinox.tree_at(
            lambda net: net.blocks.cell.gamma_log,
            net,
            replace_fn=lambda log: log + np.log(way["gain"]),
        )
    optimizer = ft.adamw(RATE, recurrent_factor=way.get("factor", 1 / delay))
    settings = {"optimizer": optimizer, "loss": ft.losses.softmax_cross_entropy}
    if reach is not None:
        return Rolling(net, **settings, reach=reach, chunk=chunk)
    return ft.Learner(net, rule=way["rule"], **settings, warn=False, train_encoder=True)


@cache
def memory_kib(way, task, reach):
    """Return KiB kept between rows, and a compiled step's needs, when learning by row."""
    import jax
    import jax.numpy as jnp

    learner = make_learner({"way": way, "delay": 1000, "task": task, "seed": 0}, reach, 1)

    def step(state, xs, ys, mask):
        return learner.step(state, xs, ys, mask=mask)

    row = jnp.zeros((1, INPUTS[task])), jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
    state = learner.init()
    memory = jax.jit(step, donate_argnums=0).lower(state, *row).compile().memory_analysis()
    return sum(
        leaf.nbytes for leaf in jax.tree.leaves(state)
    ) / 2**10, memory.temp_size_in_bytes / 2**10


@cache
def equal_reach(task):
    """Return the reach of a rolling window with the online rule's memory, by interpolation."""
    online = sum(memory_kib("online", task, None))
    short, long = 16, 272
    at_short, at_long = (
        sum(memory_kib("rolling BPTT, the whole reach", task, reach)) for reach in (short, long)
    )
    return max(1, round(short + (online - at_short) / (at_long - at_short) * (long - short)))


if __name__ == "__main__":
    main()
