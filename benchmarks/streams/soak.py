"""A run with bad values, killed and resumed at random, against an undisturbed one.

    python -m benchmarks.streams.soak [--rows 1000000] [--kills 20] [--stops 5]

Both follow the same file; bursts of its rows hold NaN, infinity, absurd numbers, texts, nothing. In
the end state and records of both must be the same bit for bit, times and memory apart. Members
join, leave and start anew all the time. The memory of the undisturbed run is recorded on its way.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import foretrace as ft
from benchmarks import ledger
from foretrace._runs.metrics import read_metrics

BAD = ("NaN", "inf", "-inf", "1e300", "-1e12", "", "?", "oops")
MACHINE = ("seconds", "rows_per_second", "resident_mib", "microseconds")

KINDS = {
    "one network": ["--size", "small", "--ignore", "who", "start"],
    "mixture": ["--ignore", "who", "start"],
    "members": [*"--size fast --member who --reset start --members 32".split()],
}
"""Further arguments of the command."""
PRESENT = 24
"""Members at a time; those that leave keep their places until others take them."""


def cells(rows=1_000_000, kills=20, stops=5, seed=0):
    """Return the cells.

    Args:
        kills: times `kill -9`.
        stops: times SIGTERM.
        seed: seed of the rows and of what happens when.
    """
    return ledger.grid(kind=KINDS, rows=rows, kills=kills, stops=stops, seed=seed)


def measure(cell):
    """Follow a stream twice, once disturbed; return what happened, and whether both ended alike."""
    with tempfile.TemporaryDirectory() as folder:
        return soak(Path(folder), **cell)


def soak(folder, *, kind, rows, kills, stops, seed):
    """Return what happened in a folder, as `measure` does."""
    draw = random.Random(seed)
    bad = write_rows(folder / "rows.csv", rows, draw)
    every = max(rows // 100, 32)
    options = ["--log-every", str(every // 2), "--checkpoint-every", str(every), *KINDS[kind]]
    first = ["stream", "rows.csv", "--target", "y", *options]
    began = time.monotonic()
    if code := start(folder, [*first, "--run-dir", "alone"]).wait():
        raise SystemExit(f"the undisturbed run ended with {code}")
    ledger.say(f"undisturbed: {time.monotonic() - began:.0f} s")
    events = [signal.SIGKILL] * kills + [signal.SIGTERM] * stops
    draw.shuffle(events)
    places = sorted(draw.randrange(rows * 9 // 10) for _ in events)
    process = start(folder, [*first, "--run-dir", "disturbed"])
    for i, (number, place) in enumerate(zip(events, places, strict=True), 1):
        reached = wait_for(folder / "disturbed", place, process)
        time.sleep(draw.random() * 0.3)
        process.send_signal(number)
        code = process.wait()
        ledger.say(f"{i}/{len(events)}: {number.name} behind row {reached}, exit code {code}")
        process = start(folder, ["resume", "disturbed"])
    if code := process.wait():
        raise SystemExit(f"the disturbed run ended with {code}")
    found = differences(folder / "alone", folder / "disturbed")
    last = lines(folder / "alone")[-1]
    memory = [line.get("resident_mib") for line in read_metrics(folder / "alone" / "metrics.jsonl")]
    return {
        "same": not found,
        "differs": found,
        "kills": kills,
        "stops": stops,
        "bad_rows": bad,
        "counts": last["counts"],
        "accuracy": last["accuracy"],
        **({"members": last["members"]} if "members" in last else {}),
        "refused": last["refused"],
        "resident_mib": [size for size in memory if size],
        "seconds": round(time.monotonic() - began),
    }


def write_rows(path, rows, draw):
    """Write rows of members that take turns; return the number of bad rows.

    The class is the sign of a number of the same member three rows before. Every 50 rows or so a
    member leaves and a new one comes, or one starts anew.
    """
    bad, burst, joined = 0, 0, PRESENT
    turns = [(f"m{i}", [0.0] * 3) for i in range(PRESENT)]
    with open(path, "w") as file:
        file.write("who,start,a,b,c,y\n")
        for i in range(rows):
            # The first rows are clean: they decide what the columns hold.
            begins = not burst and i > 1000 and draw.random() < 0.002
            burst = draw.randrange(1, 30) if begins else max(burst - 1, 0)
            (who, before), start = turns.pop(0), 0
            if draw.random() < 0.02:
                before, start = [0.0] * 3, 1
                if draw.random() < 0.5:
                    who, joined = f"m{joined}", joined + 1
            xs = [draw.gauss(0, 1) for _ in range(3)]
            shown, label = [f"{x:.5f}" for x in xs], "up" if before[0] > 0 else "down"
            if burst:
                bad += 1
                shown = [draw.choice(BAD) if draw.random() < 0.7 else text for text in shown]
                label = draw.choice((label, ""))
            file.write(",".join([who, str(start), *shown, label]) + "\n")
            turns.append((who, [*before[1:], xs[0]]))
    return bad


def start(folder, arguments):
    """Start the command in a folder, which keeps its compiled programs."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with open(folder / "log.txt", "a") as log:
        command = [sys.executable, "-m", "foretrace", *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def wait_for(run, place, process):
    """Wait until a run has written a line of its own at or behind a row; return the row."""
    path = run / "metrics.jsonl"
    seen = path.stat().st_size if path.exists() else 0
    while True:
        if process.poll() is not None:
            raise SystemExit(f"ended with {process.returncode} before row {place}: see log.txt")
        if path.exists() and path.stat().st_size > seen:
            whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
            done = [json.loads(line)["step"] for line in whole]
            if done and done[-1] >= place:
                return done[-1]
        time.sleep(0.05)


def differences(one, two):
    """Return what differs between two runs, times and memory apart."""
    found = [] if lines(one) == lines(two) else ["metrics.jsonl"]
    paths = [run / "checkpoint.safetensors" for run in (one, two)]
    states = [load_file(path) for path in paths]
    for name in sorted(set().union(*states) - {"__extra__"}):  # compared below, without its seconds
        if not np.array_equal(*(state.get(name) for state in states)):
            found.append(name)
    # `record` is size and digest of the file with all its times; its lines are compared above.
    extra = [ft.read_extra(path) | {"seconds": 0, "record": None} for path in paths]
    return found + [key for key in extra[0] if extra[0][key] != extra[1].get(key)]


def lines(run):
    """Return the records of a run without what depends on the machine."""
    found = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in MACHINE} for line in found]


if __name__ == "__main__":
    ledger.run(__doc__, "soak", cells, measure)
