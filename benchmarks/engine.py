"""Time and memory of the engine against its floor: whole sequences, streaming by chunks, the first call.

    python benchmarks/engine.py [--shapes copy long] [--repeats 15] [--out benchmarks/engine.json]

Everything that is compared is timed in turn inside one process (A B A B …), and ratios are medians of pairs, so that
a noisy machine disturbs both sides alike. The floor of a training step is the time its matrix products take alone, in
their own shapes, measured in the same run: for each linear map once forward and twice backward.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import equinox
import jax
import optax

import foretrace as ft

SHAPES = {
    "copy": {"batch": 50, "length": 48, "state": 64, "model": 128, "inputs": 8, "outputs": 14},
    "long": {"batch": 1, "length": 1024, "state": 128, "model": 256, "inputs": 3, "outputs": 10},
    "long8": {"batch": 8, "length": 1024, "state": 128, "model": 256, "inputs": 3, "outputs": 10},
}
DEPTH = 4
LOSS = ft.losses.softmax_cross_entropy


def main() -> None:
    """Run the chosen parts and write the records and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=15, help="timed rounds; medians are reported")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("engine.json"))
    parser.add_argument("--first-call", action="store_true", help="only measure one first call, and print it")
    options = parser.parse_args()
    if options.first_call:
        print(first_call())
        return
    record = {"machine": machine(), "repeats": options.repeats, "first_call_s": first_calls(3)}
    record["whole"] = {name: whole_sequences(SHAPES[name], options.repeats) for name in options.shapes}
    record["streaming"] = {str(b): streaming(b, options.repeats) for b in (1, 8)}
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


def machine() -> dict:
    """Say where and with what the figures were taken."""
    versions = {"jax": jax.__version__, "equinox": equinox.__version__, "optax": optax.__version__}
    device = jax.devices()[0]
    return {"cores": os.cpu_count(), "device": device.device_kind, "python": platform.python_version(), **versions}


def make(shape: dict, rule: ft.LearningRule, **options: object) -> ft.Learner:
    """Build the learner of a shape."""
    network = ft.Network(
        shape["inputs"],
        shape["outputs"],
        model_size=shape["model"],
        depth=DEPTH,
        cell=ft.LRU.factory(state_size=shape["state"]),
        key=jax.random.key(0),
    )
    return ft.Learner(network, rule=rule, optimizer=optax.adam(1e-3), loss=LOSS, **options)


def data(shape: dict, *front: int) -> tuple[jax.Array, jax.Array]:
    """Draw inputs and targets."""
    xs = jax.random.normal(jax.random.key(1), (*front, shape["inputs"]))
    return xs, jax.random.randint(jax.random.key(2), front, 0, shape["outputs"])


def timed(calls: dict, repeats: int) -> dict[str, list[float]]:
    """Time calls in turn; each is warm and returns something to wait for."""
    for call in calls.values():
        jax.block_until_ready(call())
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], over: str, under: str) -> float:
    """Return the median of paired ratios."""
    return statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))


def products(shape: dict) -> list[tuple[int, int, int]]:
    """List the matrix products (m, k, n) of one training step, forward and backward."""
    rows, n, h = shape["batch"] * shape["length"], shape["state"], shape["model"]
    maps = DEPTH * [(h, 2 * n), (2 * n, h), (h, 2 * h)] + [(shape["inputs"], h), (h, shape["outputs"])]
    found = []
    for k, m in maps:
        found += [(rows, k, m), (rows, m, k), (k, rows, m)]
    return found[:-6] + [p for p in found[-6:] if p != (rows, h, shape["inputs"])]  # no error goes to the inputs


def floor_call(shape: dict) -> object:
    """Return a call that does the matrix products of a training step and nothing else."""
    pairs = [
        (jax.random.normal(jax.random.key(i), (m, k)), jax.random.normal(jax.random.key(i + 1), (k, n)))
        for i, (m, k, n) in enumerate(products(shape))
    ]
    run = jax.jit(lambda pairs: [a @ b for a, b in pairs])
    return lambda: run(pairs)


def whole_sequences(shape: dict, repeats: int) -> dict:
    """Compare a training step on whole sequences under ONLINE and BPTT, and with the products alone."""
    xs, ys = data(shape, shape["batch"], shape["length"])
    calls, memory = {"floor": floor_call(shape)}, {}
    for rule in (ft.ONLINE, ft.BPTT):
        learner = make(shape, rule, whole_sequences=True)
        state = learner.init()
        calls[rule.name] = lambda learner=learner, state=state: learner.step(state, xs, ys)
        compiled = learner._step.lower(state, xs, ys, None, None, end=False).compile()
        memory[rule.name] = compiled.memory_analysis().temp_size_in_bytes
    seconds = timed(calls, repeats)
    operations = sum(2 * m * k * n for m, k, n in products(shape))
    return {
        "ms": {name: round(1e3 * statistics.median(s), 2) for name, s in seconds.items()},
        "gflop": round(operations / 1e9, 2),
        "floor_gflops_per_s": round(operations / 1e9 / statistics.median(seconds["floor"])),
        "online_over_bptt": round(ratio(seconds, "SNAP1", "BPTT"), 3),
        "floor_over_online": round(ratio(seconds, "floor", "SNAP1"), 3),
        "temporary_mib": {name: round(size / 2**20, 1) for name, size in memory.items()},
        "memory_online_over_bptt": round(memory["SNAP1"] / memory["BPTT"], 3),
    }


def streaming(batch: int, repeats: int) -> list[dict]:
    """Compare learning on a stream with inference alone, per time step, for several chunk lengths."""
    shape = SHAPES["copy"]
    rows = []
    for chunk in (1, 16, 64, 1024):
        learner = make(shape, ft.ONLINE, batch_size=None if batch == 1 else batch)
        state = learner.init()
        xs, ys = data(shape, *([] if batch == 1 else [batch]), chunk)
        calls_per_round = max(1, 256 // chunk)

        def learn(learner=learner, state=state, xs=xs, ys=ys, n=calls_per_round):
            for _ in range(n):
                state, _ = learner._step(state, xs, ys, None, None, end=False)
            return state.step

        def infer(learner=learner, state=state, xs=xs, n=calls_per_round):
            for _ in range(n):
                y, state = learner._predict(state, xs, None, sensitivity=False)
            return y

        compiled = learner._step.lower(state, xs, ys, None, None, end=False).compile()
        seconds = timed({"learn": learn, "infer": infer}, repeats)
        steps = calls_per_round * chunk
        rows.append(
            {
                "chunk": chunk,
                "learn_us": round(1e6 * statistics.median(seconds["learn"]) / steps, 2),
                "infer_us": round(1e6 * statistics.median(seconds["infer"]) / steps, 2),
                "ratio": round(ratio(seconds, "learn", "infer"), 2),
                "temporary_kib": round(compiled.memory_analysis().temp_size_in_bytes / 2**10),
                "carry_kib": round(sum(leaf.nbytes for leaf in jax.tree.leaves(state.carry)) / 2**10),
            }
        )
    return rows


def first_call() -> float:
    """Time compilation and run of the first copy training step of this process, in seconds."""
    shape = SHAPES["copy"]
    learner = make(shape, ft.ONLINE, whole_sequences=True)
    state, (xs, ys) = learner.init(), data(shape, shape["batch"], shape["length"])
    jax.block_until_ready((state, xs, ys))
    start = time.perf_counter()
    jax.block_until_ready(learner.step(state, xs, ys))
    return round(time.perf_counter() - start, 2)


def first_calls(times: int) -> list[float]:
    """Measure first calls in fresh processes."""
    command = [sys.executable, __file__, "--first-call"]
    return [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(times)]


def table(record: dict) -> str:
    """Return the record as Markdown."""
    lines = [
        f"Machine: {record['machine']}",
        f"First call, copy shape, fresh processes: {record['first_call_s']} s",
        "",
    ]
    lines += [
        "| whole sequences | ONLINE ms | BPTT ms | ONLINE/BPTT | products alone ms | floor/ONLINE | GFLOP/s alone | "
        "temporary MiB ONLINE / BPTT |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in record["whole"].items():
        ms, mib = row["ms"], row["temporary_mib"]
        lines.append(
            f"| {name} {tuple(SHAPES[name].values())} | {ms['SNAP1']} | {ms['BPTT']} | {row['online_over_bptt']} | "
            f"{ms['floor']} | {row['floor_over_online']} | {row['floor_gflops_per_s']} | "
            f"{mib['SNAP1']} / {mib['BPTT']} |"
        )
    lines += ["", "| streams | chunk | learn µs/step | infer µs/step | ratio | temporary KiB | carry KiB |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for streams, rows in record["streaming"].items():
        lines += [
            f"| {streams} | {r['chunk']} | {r['learn_us']} | {r['infer_us']} | {r['ratio']} | {r['temporary_kib']} | "
            f"{r['carry_kib']} |"
            for r in rows
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
