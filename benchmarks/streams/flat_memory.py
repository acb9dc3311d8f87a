"""Memory over a million rows of `foretrace stream`, beside a truncated reach of 1,000.

    python -m benchmarks.streams.flat_memory [--rows 1000000] [--size auto]

A stream of generated numbers comes in by a pipe; the run itself says how much memory it holds. Then
one network is streamed in a fresh process under each way of learning: resident and compiled memory,
and CPU time for each step.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import classifier, lru_network
from benchmarks.rolling import Rolling
from foretrace._runs.machine import resident_mib

WIDTH = 4
FEED = "from benchmarks.streams.flat_memory import feed; feed({})"


def cells(rows=1_000_000, chunk=16, size="small", reach=1000, steps=200):
    """Return the cells.

    Args:
        rows: rows of the pipe.
        chunk: rows of the pipe that are learned together.
        size: what learns from the pipe, as `foretrace stream --size`.
        reach: steps of the rolling window.
        steps: steps that are timed, one at a time.
    """
    found = ledger.grid(what="one step", way=["nothing learned", "online"], steps=steps)
    found += ledger.grid(what="one step", way="rolling", reach=reach, steps=steps)
    other = {} if size == "small" else {"size": size}
    return found + ledger.grid(what="foretrace stream", rows=rows, chunk=chunk, **other)


def measure(cell):
    """Return memory and times of a step in a new process, or memory along a run."""
    return ledger.fresh(one_way, cell) if cell["what"] == "one step" else follow(cell)


def feed(rows):
    """Write rows of numbers to standard output; the class is an earlier number's sign."""
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
        every = str(rows // 100)
        command = [sys.executable, *"-m foretrace stream - --format csv --target y".split()]
        command += ["--size", cell.get("size", "small"), "--chunk", str(cell["chunk"])]
        command += ["--log-every", every, "--checkpoint-every", every, "--run-dir", f"{folder}/run"]
        source = [sys.executable, "-c", FEED.format(rows)]
        with subprocess.Popen(source, stdout=subprocess.PIPE, cwd=ledger.ROOT) as pipe:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdin=pipe.stdout, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = Path(folder, "run", "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    lines = [line for line in lines if line["kind"] == "stream"]
    memory = [[line["step"], line["resident_mib"]] for line in lines]
    first, last = memory[0][1], memory[-1][1]
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "growth": last / first - 1,
        "mib_at_first": first,
        "mib_at_last": last,
        "cpu_us_per_row": 1e6 * seconds / rows,
        "accuracy": [round(line["accuracy"], 4) for line in lines],
        "mib": memory,
    }


def one_way(cell):
    """Stream the default network one step at a time; return memory and CPU time for each step."""
    network, way = lru_network(2 * WIDTH, 16, 32, 2), cell["way"]
    if way == "rolling":
        settings = {"optimizer": ft.adamw(1e-3), "loss": ft.losses.softmax_cross_entropy}
        learner = Rolling(network, reach=cell["reach"], **settings)
    else:
        learner = classifier(network)
    xs, ys, mask = jnp.ones((1, 2 * WIDTH)), jnp.zeros(1, int), jnp.ones(1, bool)
    state = learner.init()
    resident = resident_mib()

    def call(state, xs):
        if way == "nothing learned":
            return learner.predict(state, xs, sensitivity=False)[::-1]
        return learner.step(state, xs, ys, mask=mask)

    program = jax.jit(call, donate_argnums=0).lower(state, xs).compile()
    took = []
    for _ in range(cell["steps"]):
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
    ledger.run(__doc__, "flat_memory", cells, measure)
