"""Price of credit depth for a stream, beside the paper's rule: the copy task, float32.

    python -m benchmarks.credit.cheap_depth [--chunks 8 16 64]

CPU time of a call of `ft.gradient` with the carry given and returned, each rule in turn in one
process, so that other work on the machine troubles all of them. Times are medians over the rounds;
read the ratios to the paper's rule. A rolling window goes through its steps again for every chunk,
with the labels of the chunk, and moves on by the chunk. Memory is the carry of one stream (`mib`),
and the further needs of the compiled call (`temporary_mib`). Finished cells stay in
records/cheap_depth.jsonl.
"""

import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import lru_network
from benchmarks.rolling import window_gradient
from foretrace._engine.operations import operations

LOSS = ft.losses.softmax_cross_entropy
TEXTS = {
    "the paper's rule": "online",
    "HYBRID": "hybrid",
    "depth 2, encoder, 8 modules": "online(depth=2, groups=1, modules=8)",
    "depth 2, encoder, 8 modules by memory": "online(depth=2, groups=1, modules=8, by_memory=True)",
    "depth 2, encoder, 24 modules by memory": (
        "online(depth=2, groups=1, modules=24, by_memory=True)"
    ),
    "HYBRID, depth 2, encoder, 8 modules": "hybrid(depth=2, groups=1, modules=8)",
    "depth 2, encoder, 16 modules": "online(depth=2, groups=1, modules=16)",
    "depth 2, encoder": "online(depth=2, groups=1)",
    "depth 1": "online(depth=1)",
}
RULES = {name: ft.rule(text) for name, text in TEXTS.items()}
WINDOWS = {
    "rolling BPTT, a sequence (48 steps)": 48,
    "rolling BPTT, 256 steps": 256,
    "rolling BPTT, 1024 steps": 1024,
}


def by_rule(rule, network, carry, xs, ys):
    """Return the gradient of a chunk by a rule, and the next carry."""
    return ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS)[1:3]


def through_window(network, carry, xs, ys):
    """Return the gradient of a chunk through a window, and the next carry and window."""
    before, past = carry
    window, chunk = jnp.concatenate([past, xs]), len(xs)
    _, grads, before = window_gradient(network, before, window, ys, chunk=chunk, loss=LOSS)
    return grads, (before, window[chunk:])


def measure(cell):
    """Return memory, operations and CPU time of each rule."""
    network, chunk = lru_network(8, 14, 128, 4, modules=64), cell["chunk"]
    draw, ways = np.random.default_rng(0), {}
    xs, ys = draw.normal(size=(chunk, 8)).astype(np.float32), draw.integers(0, 14, chunk)
    for name, rule in RULES.items():
        key = jax.random.key(0) if rule.samples else None
        carry, count = (
            ft.init_carry(network, rule, key=key),
            ft.operation_count(network, rule, chunk),
        )
        ways[name] = partial(by_rule, rule), carry, count
    for name, steps in WINDOWS.items():
        if steps > chunk:
            past = draw.normal(size=(steps - chunk, 8)).astype(np.float32)
            carry = ft.init_carry(network, ft.BPTT), past
            count = operations(through_window, network, carry, xs, ys) / chunk
            ways[name] = through_window, carry, count
    calls, carries, found = {}, {}, {}
    for name, (learn, carry, count) in ways.items():
        # It may write the new carry over the old one.
        call = jax.jit(learn, donate_argnums=1).lower(network, carry, xs, ys).compile()
        calls[name], carries[name] = call, carry
        found[name] = {
            "mib": sum(leaf.nbytes for leaf in jax.tree.leaves(carry)) / 2**20,
            "temporary_mib": call.memory_analysis().temp_size_in_bytes / 2**20,
            "million_operations": count / 1e6,
        }
    times = {name: [] for name in calls}
    for turn in range(cell["rounds"] + 1):
        for name, call in calls.items():
            for again in range(4):
                began = time.process_time()
                grads, carries[name] = call(network, carries[name], xs, ys)
                jax.block_until_ready((grads, carries[name]))
                if turn and again:  # the first call finds the caches full of another rule's numbers
                    times[name].append((time.process_time() - began) / chunk * 1e6)
    base = statistics.median(times["the paper's rule"])
    for name, seen in times.items():
        middle = statistics.median(seen)
        found[name] |= {"cpu_us_per_step": round(middle, 1), "ratio": round(middle / base, 2)}
    return found


def cells(chunks=(8, 16, 64), rounds=10):
    """Return the cells."""
    return ledger.grid(chunk=chunks, streams=1, rounds=rounds)


if __name__ == "__main__":
    ledger.run(__doc__, "cheap_depth", cells, measure)
