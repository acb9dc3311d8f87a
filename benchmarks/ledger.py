"""The runner of all benchmarks: options, selection, and finished cells as JSON lines.

A benchmark is a function that returns cells, whose arguments are the options of its command, and
a function from a cell to what was found. A line of its record is `{"cell": {...}, "found": {...},
"command": ..., "surroundings": {...}}`; `cell` describes the measurement completely, is the key,
and is not measured again.
"""

import argparse
import importlib.metadata
import importlib.util
import inspect
import itertools
import json
import os
import re
import shlex
import sys
import time
from functools import cache
from pathlib import Path

from foretrace._runs import machine

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
PEERS = ("river", "deep_river", "torch", "capymoa", "popgym", "gymnax", "braintrace")


def run(doc, record, cells, measure):
    """Measure and record the cells that the command line asks for.

    Args:
        doc: help of the command.
        record: name of the record, or a function of a cell that returns it.
        cells: function that returns the cells. An argument without a default is a word of the
            command; the others are its options. Its docstring describes them.
        measure: function of a cell that returns what was found.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    described = dict(re.findall(r"^ +(\w+): (.*)", cells.__doc__, flags=re.MULTILINE))
    options = inspect.signature(cells).parameters
    for name, option in options.items():
        kind = {"type": _value, "default": option.default}
        if option.default is False:
            kind = {"action": "store_true"}
        elif isinstance(option.default, (list, tuple, dict)):
            kind |= {"nargs": "+", "default": list(option.default)}
            kind["choices"] = list(option.default) if isinstance(option.default, dict) else None
        flag = name if option.default is option.empty else f"--{name.replace('_', '-')}"
        parser.add_argument(flag, help=described.get(name), **kind)
    parser.add_argument("--only", nargs="+", help="words in a text, or numbers, of the cells")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    parser.add_argument("--table", action="store_true", help="print the records, measure nothing")
    asked = parser.parse_args()
    files = {}
    for cell in cells(**{name: getattr(asked, name) for name in options}):
        if not asked.only or any(_names(word, cell) for word in asked.only):
            file = record(cell) if callable(record) else record
            files.setdefault(asked.records / f"{file}.jsonl", []).append(cell)
    for path, some in files.items():
        if asked.table:
            print_table([row for one in read(path) for row in _flat(one)])
        else:
            each(path, some, measure)


def grid(**settings):
    """Return the cells of all combinations of settings, of which those in a list or table vary."""
    several = [
        list(value) if isinstance(value, (list, tuple, dict)) else [value]
        for value in settings.values()
    ]
    return [dict(zip(settings, values, strict=True)) for values in itertools.product(*several)]


def _value(text):
    """Return the number or the word that an option was given."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _names(word, cell):
    """Say whether a word is in a text of a cell, or is one of its numbers."""
    return any(word in v if isinstance(v, str) else word == str(v) for v in cell.values())


def _flat(record):
    """Return the rows of a record, or the record as a row, without its curves."""
    rows, left = record["found"].get("rows"), ("curves", "parts")
    # In some records it is a number.
    rows = rows if isinstance(rows, list) else [record["found"]]
    return [record["cell"] | {k: v for k, v in row.items() if k not in left} for row in rows]


def read(path):
    """Return the finished cells of a file; a torn last line of a killed run is no cell."""
    found = []
    for line in path.read_text().split("\n") if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(path, cell, found):
    """Write a finished cell, and wait until it is on the disk."""
    record = {"cell": cell, "found": found, "command": command(), "surroundings": surroundings()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # A torn line is closed, so that it spoils no other.
    torn = path.exists() and not path.read_text().endswith("\n")
    with open(path, "a") as file:
        file.write("\n" * torn + json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def each(path, cells, measure):
    """Measure the cells that are not there yet, and record each as soon as it is finished."""
    for i, cell in enumerate(cells, 1):
        name = " ".join(f"{key}={value}" for key, value in cell.items())
        if any(record["cell"] == cell for record in read(path)):
            say(f"{i}/{len(cells)} there already: {name}")
            continue
        say(f"{i}/{len(cells)} {name}")
        began = time.monotonic()
        found = measure(cell)
        append(path, cell, found)
        shown = {key: value for key, value in found.items() if not isinstance(value, list)}
        say(f"{i}/{len(cells)} in {time.monotonic() - began:.0f} s: {shown}")


def print_table(rows):
    """Print dictionaries as rows of Markdown; empty where one has no such name."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(str(row.get(name, '')) for name in names)} |")


def say(text):
    """Show progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def command():
    """Return the running command, to be typed in the project's root."""
    running = getattr(sys.modules["__main__"], "__spec__", None)
    name = running.name if running else Path(sys.argv[0]).stem
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def surroundings():
    """Return commit, versions, also those of peers, machine and load."""
    return _versions() | {"load": round(os.getloadavg()[0], 1)}


@cache
def _versions():
    """Return these but the load; records that are written meanwhile do not change the commit."""
    found = machine.surroundings()
    there = [name for name in PEERS if importlib.util.find_spec(name)]
    peers = {name: importlib.metadata.version(name.replace("_", "-")) for name in there}
    return found | {"packages": found["packages"] | peers}
