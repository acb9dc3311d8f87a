"""Memory over a million rows of `foretrace stream`, beside a truncated reach of 1,000.

    python -m benchmarks.streams.flat_memory [--rows 1000000] [--chunk 16] [--size auto]

A stream of generated numbers comes in by a pipe; the run itself says how much memory it holds. Then
one network is streamed in a fresh process under each way of learning: resident and compiled memory,
and CPU time for each step.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ledger

FILE = ledger.RECORDS / "flat_memory.jsonl"
WIDTH = 4


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the pipe")
    parser.add_argument("--chunk", type=int, default=16, help="rows that are learned together")
    parser.add_argument(
        "--size", default="small", help="what learns from the pipe, as `foretrace stream --size`"
    )
    parser.add_argument("--reach", type=int, default=1000, help="steps of the rolling window")
    parser.add_argument(
        "--steps", type=int, default=200, help="steps that are timed, one at a time"
    )
    parser.add_argument("--feed", type=int, help="write so many rows to standard output")
    parser.add_argument("--way", help="measure this way in this process and print it")
    asked = parser.parse_args()
    if asked.feed is not None:
        return feed(asked.feed)
    if asked.way is not None:
        return print(json.dumps(one_way(asked.way, asked.reach, asked.steps)))
    cells = [{"what": "one step", "way": "nothing learned", "steps": asked.steps}]
    cells += [{"what": "one step", "way": "online", "steps": asked.steps}]
    cells += [{"what": "one step", "way": "rolling", "reach": asked.reach, "steps": asked.steps}]
    ledger.each(FILE, cells, in_a_fresh_process)
    run = {"what": "foretrace stream", "rows": asked.rows, "chunk": asked.chunk}
    return ledger.each(FILE, [run if asked.size == "small" else run | {"size": asked.size}], follow)


def feed(rows):
    """Write rows of numbers to standard output; the class is an earlier number's sign."""
    import random

    draw, before = random.Random(0), [0.0] * 8
    print(",".join([f"x{i}" for i in range(WIDTH)] + ["y"]))
    for _ in range(rows):
        xs = [draw.gauss(0, 1) for _ in range(WIDTH)]
        print(",".join(f"{x:.5f}" for x in xs) + f",{int(before[0] > 0)}")
        before = [*before[1:], xs[0]]


def follow(cell):
    """Run the command on a pipe; return resident memory along the way."""
    rows = cell["rows"]
    with tempfile.TemporaryDirectory() as folder:
        source = [sys.executable, "-m", "benchmarks.streams.flat_memory", "--feed", str(rows)]
        command = [sys.executable, *"-m foretrace stream - --format csv --target y".split()]
        command += ["--size", cell.get("size", "small"), "--chunk", str(cell["chunk"])]
        command += ["--log-every", str(rows // 100), "--checkpoint-every", str(rows // 100)]
        command += ["--run-dir", f"{folder}/run"]
        with subprocess.Popen(source, stdout=subprocess.PIPE, cwd=ledger.ROOT) as pipe:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdin=pipe.stdout, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [
            json.loads(line)
            for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        ]
    lines = [line for line in lines if line["kind"] == "stream"]
    memory = [[line["step"], line["resident_mib"]] for line in lines]
    first, last = memory[0][1], memory[-1][1]
    return {
        "growth": last / first - 1,
        "mib_at_first": first,
        "mib_at_last": last,
        "cpu_us_per_row": 1e6
        * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        / rows,
        "accuracy": [round(line["accuracy"], 4) for line in lines],
        "mib": memory,
    }


def in_a_fresh_process(cell):
    """Return what `one_way` found in a process of its own."""
    given = ["--way", cell["way"], "--steps", cell["steps"]]
    given += ["--reach", cell["reach"]] if "reach" in cell else []
    return ledger.fresh("benchmarks.streams.flat_memory", *given)


def one_way(way, reach, steps):
    """Stream the default network one step at a time; return memory and CPU time for each step."""
    import jax
    import jax.numpy as jnp

    import foretrace as ft
    from benchmarks.rolling import Rolling
    from foretrace._runs.machine import resident_mib

    cell = ft.LRU.factory(state_size=32)
    network = ft.Network(2 * WIDTH, 16, model_size=32, depth=2, cell=cell, key=jax.random.key(0))
    settings = {"optimizer": ft.adamw(1e-3), "loss": ft.losses.softmax_cross_entropy}
    learner = ft.Learner(network, rule=ft.ONLINE, **settings)
    learner = Rolling(network, reach=reach, **settings) if way == "rolling" else learner
    xs, ys, mask = jnp.ones((1, 2 * WIDTH)), jnp.zeros(1, int), jnp.ones(1, bool)
    state = learner.init()
    resident = resident_mib()

    def call(state, xs):
        if way == "nothing learned":
            return learner.predict(state, xs, sensitivity=False)[::-1]
        return learner.step(state, xs, ys, mask=mask)

    program = jax.jit(call, donate_argnums=0).lower(state, xs).compile()
    took = []
    for _ in range(steps):
        began = time.process_time()
        state, _ = jax.block_until_ready(program(state, xs))
        took.append(time.process_time() - began)
    compiled = program.memory_analysis()
    return {
        "cpu_ms_per_step": 1e3 * sorted(took)[len(took) // 2],
        "compiled_kib": compiled.temp_size_in_bytes / 2**10,
        "held_kib": compiled.argument_size_in_bytes / 2**10,
        "resident_mib": resident_mib(),
        "resident_mib_before": resident,
    }


if __name__ == "__main__":
    main()
