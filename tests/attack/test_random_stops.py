"""Stops at random moments of the five long commands: the same result, and no litter.

`FORETRACE_STOPS=20 python -m pytest -n0 tests/attack/test_random_stops.py::test_…` stops each
command that often; `FORETRACE_SEED` draws other moments.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from quick import FLAGS
from safetensors.numpy import load_file

pytestmark = [pytest.mark.slow, pytest.mark.program]

STOPS = int(os.environ.get("FORETRACE_STOPS", "3"))
SEED = int(os.environ.get("FORETRACE_SEED", "0"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TIMEOUT = 600

TINY = (
    "--task.pattern-length 3 --task.padding 1 --task.bits 2 --network.depth 1 --network.model-size "
    "4 --network.cell.state-size 3 --batch-size 2 --align-every None --validation-sequences 4 "
    "--final-sequences 4"
)
COMMANDS = {
    "train": f"train copy {TINY} --steps 2000 --log-every 100 --evaluate-every 500 "
    "--checkpoint-every 200 --run-dir",
    "stream": "stream a.csv --target y --experts row network --depth 1 --model-size 4 --state-size "
    "3 --log-every 200 "
    "--checkpoint-every 300 --run-dir",
    "rl": "rl memory-chain network.cell:lru --network.cell.state-size 3 --network.depth 1 "
    "--network.model-size 4 "
    "--steps 60000 --log-every 500 --checkpoint-every 1000 --run-dir",
    "sweep": f"sweep copy {TINY} --steps 800 --log-every 100 --evaluate-every 400 "
    "--checkpoint-every 100 --workers 2 "
    "--grid optimizer.learning-rate=1e-3,1e-2 --run-dir",
    "reproduce": "reproduce table1 --scale smoke --only|online, LRU x 4|--rates 2e-3 --out",
}
NOT_COMPARED = {
    "seconds",
    "rows_per_second",
    "resident_mib",
    "microseconds",
    "peak_memory_mib",
    "surroundings",
}

# What a shell or nohup may have set for everything that it starts is undone: signals that are
# ignored stay ignored.
HEAR_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module", params=COMMANDS)
def command(request, tmp_path_factory):
    """Return a function that starts a command in a folder, its undisturbed run, and its seconds."""
    root = tmp_path_factory.mktemp(request.param)
    rows = "x,y\n" + "".join(f"{i % 7},{(i // 3) % 2}\n" for i in range(1500))
    environment = os.environ | {
        "XLA_FLAGS": FLAGS,
        "JAX_COMPILATION_CACHE_DIR": str(root / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(folder, *more):
        folder.parent.mkdir(exist_ok=True)
        (folder.parent / "a.csv").write_text(rows)
        first, _, rest = COMMANDS[request.param].partition("|")
        only, _, last = rest.partition("|")
        words = [*first.split(), *([only] if only else []), *last.split(), folder.name, *more]
        full = [sys.executable, "-c", HEAR_SIGNALS, sys.executable, "-m", "foretrace", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(full, cwd=folder.parent, env=environment, text=True, **pipes)

    for name in ("compiled", "whole"):
        began = time.monotonic()
        process = start(root / name / "run")
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, err
        seconds = time.monotonic() - began
    return start, root / "whole", seconds


def began(folder):
    """Return whether there is a run to go on with."""
    return any((folder / name).exists() for name in ("config.json", "records.jsonl", "work"))


def stop(process, numbers, moments):
    """Send signals to a process, each after some seconds; return its exit code and output."""
    for number, moment in zip(numbers, moments, strict=True):
        try:
            process.wait(moment)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, err


@pytest.mark.timeout(600 + 300 * STOPS)
def test_it_ends_as_if_it_had_never_been_stopped(command, tmp_path):
    start, whole, seconds = command
    draw, ended = np.random.default_rng(SEED), []
    for number in range(STOPS):
        folder = tmp_path / f"{number}" / "run"
        signals, moments = [SIGNALS[draw.integers(4)]], [draw.uniform(0, seconds)]
        if draw.random() < 0.25:  # soon a second one, while it saves
            signals.append(SIGNALS[draw.integers(4)])
            moments.append(draw.uniform(0, 0.3))
        told = (
            f"seed {SEED}, stop {number}: {[each.name for each in signals]} after {moments} of "
            f"{seconds:.1f} s"
        )
        code, err = stop(start(folder), signals, moments)
        ended.append(code)
        # 0: it was done before; -n: the signal came before Python heard it, or was the second one.
        # Interrupted while compiled libraries are being imported, before anything is written,
        # Python may also end by a fault of theirs.
        early = set() if began(folder) else {-signal.SIGSEGV, -signal.SIGABRT}
        assert code in {0, 130, *(-each for each in signals), *early}, f"{told}: {code} {err}"
        if code == 130:
            assert "Traceback" not in err, f"{told}: {err}"
        process = start(folder, *(["--resume"] if began(folder) else []))
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, f"{told}: {err}"
        compare(folder.parent, whole, told)
        print(f"{told}: {code}", flush=True)
    print(f"{STOPS} stops, exit codes {sorted(ended)}; {seconds:.1f} s undisturbed")


def compare(found, expected, told):
    """Compare two folders: the names of all files, the records, and the arrays of checkpoints."""
    assert names(found) == names(expected), told
    for path in sorted(expected.rglob("*.jsonl")):
        other = found / path.relative_to(expected)
        assert lines(other) == lines(path), f"{told}: {other}"
    for path in sorted(expected.rglob("checkpoint.safetensors")):
        one, two = load_file(path), load_file(found / path.relative_to(expected))
        assert {*one} == {*two}
        for name in {*one} - {"__extra__"}:  # which holds seconds
            np.testing.assert_array_equal(one[name], two[name], err_msg=f"{told}: {path} {name}")


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def lines(path: Path):
    found = map(json.loads, path.read_text().splitlines())
    return [
        {key: value for key, value in line.items() if key not in NOT_COMPARED} for line in found
    ]
