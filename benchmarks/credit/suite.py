"""A benchmark suite: five tasks, each by every rule, streamed in chunks.

    FORETRACE_DATA=... python -m benchmarks.credit.suite                  # everything, one seed
    python -m benchmarks.credit.suite --tasks copy randman --seeds 0 1    # these need no data

The tasks digits and heart need `pip install soundfile pyarrow`. Finished cells are
lines of records/suite.jsonl and are not measured again; each is printed as it finishes. All rules
see the same sequences, begin with the same network, and learn by `Learner.step` with the carry of
the chunk before.
"""

import time
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import foretrace as ft
from benchmarks import ledger
from benchmarks.credit.suite_rules import WAYS, Costs, make_learner, runs
from benchmarks.credit.suite_tasks import BATCHES, TASKS

CALLS, PARTS = 200, 10


def measure(cell):
    """Return the scores, the costs and the losses on the way of a cell."""
    task, costs = prepared(cell["task"], cell["seed"])
    spent = costs.of(cell["rule"])
    began = time.monotonic()
    network, parts, seconds, skipped = learn(task, cell, spent)
    found = task.score(network, parts)
    if example := found.pop("example", None):
        starts = task.network(jax.random.key(cell["seed"]))
        found["cosine"] = [alignment(task, cell["rule"], at, example) for at in (starts, network)]
    steps = task.streams * task.length * cell["batches"]
    found |= spent | {"cpu_us_per_step": round(seconds / steps * 1e6, 2), "steps": steps}
    found |= {"skipped": skipped, "seconds": round(time.monotonic() - began, 1)}
    return found | {"parts": [float(f"{part:.4g}") for part in parts]}


def learn(task, cell, spent):
    """Return the last network, losses of ten parts, CPU seconds, and refused calls."""
    network = task.network(jax.random.key(cell["seed"]))
    chunk = spent.get("chunk", task.chunk)
    learner = make_learner(network, task, cell["rule"], spent, task.streams)

    def one(state, now):
        xs, ys, mask, starts = now
        given = {"reset": starts} if "reach" in spent else {}
        state, info = learner.step(state, xs, ys, mask=mask, **given)
        return state, (info.loss, mask.sum())

    def sequence(state, now):
        if not task.joined and "reach" not in spent:
            # What a rule samples, it samples anew for each sequence.
            fresh, key = jax.random.split(state.key)
            state = state._replace(carry=learner.fresh_carry(state.network, fresh), key=key)
        return lax.scan(one, state, now)

    run = jax.jit(lambda state, data: lax.scan(sequence, state, data))
    state, found, seconds = learner.init(jax.random.key(cell["seed"])), [], 0.0
    for indices in blocks(task, cell["batches"]):
        data = cut(task, chunk, indices)
        began = time.process_time() if found else None
        state, losses = jax.block_until_ready(run(state, data))
        # The first block holds the time to compile; it counts as long as the next one of its
        # length.
        seconds += 0.0 if began is None else (time.process_time() - began) / len(indices)
        found.append(jax.tree.map(lambda leaf: np.asarray(leaf, float).sum(), losses))
    state = getattr(state, "learner", state)
    mean = seconds / max(len(found) - 1, 1)
    parts = [np.sum(part, 0) for part in np.array_split(np.array(found), min(PARTS, len(found)))]
    parts = [total / max(weight / task.streams, 1e-9) for total, weight in parts]
    return state.network, parts, mean * cell["batches"], int(state.skipped)


def blocks(task, batches):
    """Return the indices of each call's batches: equally many, so that one program suffices."""
    most = max(1, min(CALLS * task.chunk // task.length, batches // PARTS))
    size = max(size for size in range(1, most + 1) if batches % size == 0)
    return [range(at, at + size) for at in range(0, batches, size)]


def cut(task, chunk, indices):
    """Return sequences in chunks, and where they start: (sequences, calls, streams, chunk, ...)."""
    batches = (_arrays(task.batch(i)) for i in indices)
    xs, ys, mask = (jnp.stack(leaves) for leaves in zip(*batches, strict=True))
    starts = np.zeros(mask.shape, bool)
    starts[..., 0] = not task.joined
    shape = (len(indices), task.streams, task.length // chunk, chunk)
    return tuple(
        leaf.reshape(*shape, *leaf.shape[3:]).swapaxes(1, 2)
        for leaf in (xs, ys, mask, jnp.asarray(starts))
    )


def alignment(task, name, network, example):
    """Return the cosine of a rule's gradient with BPTT on whole sequences; None without a rule."""
    way = WAYS[name]
    if way.window or way.chunk:
        return None
    xs, ys, mask = _arrays(example)
    options = {"rule": way.rule, "loss": task.loss, "chunk": task.chunk, "mask": mask}
    return round(float(ft.alignment(network, xs, ys, **options).total), 4)


def _arrays(batch):
    return [jnp.asarray(leaf) for leaf in batch]


@cache
def prepared(name, seed):
    """Return a task and its costs."""
    task = TASKS[name](seed)
    return task, Costs(task)


def cells(tasks=TASKS, rules=WAYS, seeds=(0,), steps=None):
    """Return the cells: each rule on every task, the next rule, the next seed.

    Args:
        steps: batches of sequences to learn from. Default: the task's own number.
    """
    found = ledger.grid(seed=seeds, rule=rules, task=tasks)
    found = [cell for cell in found if runs(cell["rule"], cell["task"])]
    return [cell | {"batches": steps or BATCHES[cell["task"]]} for cell in found]


if __name__ == "__main__":
    ledger.run(__doc__, "suite", cells, measure)
