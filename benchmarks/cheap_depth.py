"""What credit depth costs a stream, beside the paper's rule: the paper's network for the copy task, float32.

    python benchmarks/cheap_depth.py                 one stream in chunks of 8, 16 and 64; 50 streams in chunks of 16
    python benchmarks/cheap_depth.py --chunks 16 --streams 1

CPU time of a call of `ft.gradient` with the carry given and returned, each rule in turn in one process, so that other
work on the machine troubles all of them. Times are medians over the rounds; read the ratios to the paper's rule.
Finished cells stay in records/cheap_depth.jsonl.
"""

import argparse
import statistics
import time

import jax
import ledger
import numpy as np

import foretrace as ft

FILE = ledger.RECORDS / "cheap_depth.jsonl"
LOSS = ft.losses.softmax_cross_entropy
ENCODER = ft.ONLINE.with_depth(2).with_groups(1)
RULES = {
    "the paper's rule": ft.ONLINE,
    "HYBRID": ft.HYBRID,
    "depth 2, encoder, 8 modules": ENCODER.with_modules(8),
    "depth 2, encoder, 16 modules": ENCODER.with_modules(16),
    "depth 2, encoder": ENCODER,
    "depth 1, 4 modules, 8 columns": ft.ONLINE.with_depth(1).with_modules(4).with_columns(8),
    "depth 1": ft.ONLINE.with_depth(1),
}


def measure(cell):
    """Return memory, operations and CPU time of each rule."""
    cellular = ft.LRU.factory(state_size=64)
    network = ft.Network(8, 14, model_size=128, depth=4, cell=cellular, key=jax.random.key(0))
    streams, chunk, draw = cell["streams"], cell["chunk"], np.random.default_rng(0)
    front = () if streams == 1 else (streams,)
    xs = draw.normal(size=(*front, chunk, 8)).astype(np.float32)
    ys = draw.integers(0, 14, (*front, chunk))
    calls, carries, found = {}, {}, {}
    for name, rule in RULES.items():
        if streams > 1 and ft.carry_size(network, rule) > 10**7:
            continue  # gigabytes of carry
        key = jax.random.key(0) if rule.samples else None
        carry = ft.init_carry(network, rule, None if streams == 1 else streams, key=key)
        found[name] = {
            "mib": sum(leaf.nbytes for leaf in jax.tree.leaves(carry)) / 2**20 / streams,
            "million_operations": ft.operation_count(network, rule, chunk) / 1e6,
        }

        def learn(network, carry, xs, ys, rule=rule):
            return ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS)[1:3]

        calls[name], carries[name] = jax.jit(learn, donate_argnums=1), carry
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


def main():
    """Measure what is asked for, and print all records as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    pairs = [(chunk, streams) for streams in asked.streams for chunk in asked.chunks if streams == 1 or chunk == 16]
    cells = [{"chunk": chunk, "streams": streams, "rounds": asked.rounds} for chunk, streams in pairs]
    ledger.each(FILE, cells, measure)
    columns = ("chunk", "streams", "rule", "carry, MiB a stream", "10^6 operations a step", "CPU us a step", "ratio")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for record in ledger.read(FILE):
        for name, one in record["found"].items():
            numbers = (f"{one['mib']:.2f}", f"{one['million_operations']:.1f}", one["cpu_us_per_step"], one["ratio"])
            values = (record["cell"]["chunk"], record["cell"]["streams"], name, *numbers)
            print(f"| {' | '.join(map(str, values))} |")


if __name__ == "__main__":
    main()
