"""Finished cells of a benchmark as JSON lines, not measured again. Standard library only.

A line is `{"cell": {...}, "found": {...}, "command": ..., "surroundings": {...}}`; `cell` describes
the measurement completely, and is the key.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
PACKAGES = (
    *("foretrace", "jax", "equinox", "optax", "numpy", "river", "deep-river", "torch"),
    *("capymoa", "popgym", "gymnax"),
)


def read(path):
    """Return the finished cells of a file; a torn last line of a killed run is no cell."""
    if not Path(path).exists():
        return []
    found = []
    for line in Path(path).read_text().split("\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def finished(path, cell):
    """Say whether a cell is there."""
    return any(record["cell"] == cell for record in read(path))


def append(path, cell, found):
    """Write a finished cell, and wait until it is on the disk."""
    record = {"cell": cell, "found": found, "command": command(), "surroundings": surroundings()}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        # A torn line is closed, so that it spoils no other.
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def each(path, cells, measure):
    """Measure the cells that are not there yet, and record each as soon as it is finished."""
    for i, cell in enumerate(cells, 1):
        name = " ".join(f"{key}={value}" for key, value in cell.items())
        if finished(path, cell):
            say(f"{i}/{len(cells)} there already: {name}")
            continue
        say(f"{i}/{len(cells)} {name}")
        began = time.monotonic()
        found = measure(cell)
        append(path, cell, found)
        shown = {key: value for key, value in found.items() if not isinstance(value, list)}
        say(f"{i}/{len(cells)} in {time.monotonic() - began:.0f} s: {shown}")


def print_table(records, inputs, outputs):
    """Print records as Markdown: the settings, then the results; empty where missing."""
    print(f"| {' | '.join([*inputs, *outputs])} |\n|{'---|' * (len(inputs) + len(outputs))}")
    for record in records:
        cell, found = record["cell"], record["found"]
        values = [cell.get(name, "") for name in inputs] + [found.get(name, "") for name in outputs]
        print(f"| {' | '.join(map(str, values))} |")


def say(text):
    """Show progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def command():
    """Return the running command, to be typed in the project's root."""
    given = sys.argv[1:]
    if "--work" in given:
        at = given.index("--work")
        given = given[:at] + given[at + 2 :]
    running = getattr(sys.modules["__main__"], "__spec__", None)
    return shlex.join(["python", "-m", running.name if running else Path(sys.argv[0]).stem, *given])


def parser(doc):
    """Return a parser of the command line whose help is the docstring of a script."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def fresh(module, *arguments):
    """Run a benchmark script in its own process; return the JSON that it prints last."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


@cache
def commit():
    """Return the tree's commit, marked if modified; written records are no change."""

    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout

    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/records"
    ).strip()
    return (git("rev-parse", "--short=8", "HEAD").strip() or "unknown") + (
        " modified" if changed else ""
    )


def surroundings():
    """Return commit, versions, machine and load."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, used: {_usable()}",
        "load": round(os.getloadavg()[0], 1),
        "time": time.strftime("%Y-%m-%d"),
    }


def _usable():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
