"""Price of credit depth for a stream, beside the paper's rule: the copy task, float32.

    python -m benchmarks.credit.cheap_depth      # one stream by chunk length; 50 streams
    python -m benchmarks.credit.cheap_depth --chunks 16 --streams 1

CPU time of a call of `ft.gradient` with the carry given and returned, each rule in turn in one
process, so that other work on the machine troubles all of them. Times are medians over the rounds;
read the ratios to the paper's rule. A rolling window goes through its steps again for every chunk,
with the labels of the chunk, and moves on by the chunk. Memory is the carry of one stream (`mib`),
and the further needs of the compiled call (`temporary_mib`). Finished cells stay in
records/cheap_depth.jsonl.
"""

import statistics
import time

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


def new_carry(network, rule, streams):
    """Return the carry of one stream, or of several."""
    key = jax.random.key(0) if rule.samples else None
    return ft.init_carry(network, rule, None if streams == 1 else streams, key=key)


def compiled(call, network, carry, xs, ys):
    """Return the compiled call, which may write the new carry over the old one."""
    return jax.jit(call, donate_argnums=1).lower(network, carry, xs, ys).compile()


def memory(call, carry, streams):
    """Return MiB for each stream: the carry, and the further needs of the call."""
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(carry))
    besides = call.memory_analysis().temp_size_in_bytes
    return {"mib": held / 2**20 / streams, "temporary_mib": besides / 2**20 / streams}


def measure(cell):
    """Return memory, operations and CPU time of each rule."""
    network = lru_network(8, 14, 128, 4, modules=64)
    streams, chunk, draw = cell["streams"], cell["chunk"], np.random.default_rng(0)
    front = () if streams == 1 else (streams,)
    xs = draw.normal(size=(*front, chunk, 8)).astype(np.float32)
    ys = draw.integers(0, 14, (*front, chunk))
    calls, carries, found = {}, {}, {}
    for name, rule in RULES.items():
        if streams > 1 and ft.carry_size(network, rule) > 10**7:
            continue  # gigabytes of carry
        carry = new_carry(network, rule, streams)

        def learn(network, carry, xs, ys, rule=rule):
            return ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS)[1:3]

        calls[name], carries[name] = compiled(learn, network, carry, xs, ys), carry
        found[name] = memory(calls[name], carry, streams)
        found[name]["million_operations"] = ft.operation_count(network, rule, chunk) / 1e6

    def through_window(network, carry, xs, ys):
        before, past = carry
        window = jnp.concatenate([past, xs])
        _, grads, before = window_gradient(network, before, window, ys, chunk=chunk, loss=LOSS)
        return grads, (before, window[chunk:])

    for name, steps in WINDOWS.items() if streams == 1 else ():
        if steps <= chunk:
            continue
        past = draw.normal(size=(steps - chunk, 8)).astype(np.float32)
        carry = (new_carry(network, ft.BPTT, streams), past)
        calls[name], carries[name] = compiled(through_window, network, carry, xs, ys), carry
        found[name] = memory(calls[name], carry, streams)
        count = operations(through_window, network, carry, xs, ys) / chunk
        found[name]["million_operations"] = count / 1e6
    times = {name: [] for name in calls}
    for turn in range(cell["rounds"] + 1):
        for name, call in calls.items():
            for again in range(4):
                began = time.process_time()
                grads, carries[name] = call(network, carries[name], xs, ys)
                jax.block_until_ready((grads, carries[name]))
                if turn and again:  # the first call finds the caches full of another rule's numbers
                    times[name].append((time.process_time() - began) / chunk / streams * 1e6)
    base = statistics.median(times["the paper's rule"])
    for name, seen in times.items():
        middle = statistics.median(seen)
        found[name] |= {"cpu_us_per_step": round(middle, 1), "ratio": round(middle / base, 2)}
    return found


def cells(chunks=(8, 16, 64), streams=(1, 50), rounds=10):
    """Return the cells: of several streams in chunks of 16 alone."""
    found = ledger.grid(chunk=chunks, streams=streams, rounds=rounds)
    return [cell for cell in found if cell["streams"] == 1 or cell["chunk"] == 16]


if __name__ == "__main__":
    ledger.run(__doc__, "cheap_depth", cells, measure)
