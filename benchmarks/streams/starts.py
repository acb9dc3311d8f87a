"""CPU time of the first and of later starts of a command, over that of `import jax`.

    python -m benchmarks.streams.starts [--commands stream train rl] [--later 5]

`stream` learns from 300 rows with a class, `train` takes 20 steps, `rl` 2,000. The first start has
no compiled programs. Each start is followed by one `import jax`, and the ratio is of their sums.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from benchmarks import ledger

COMMANDS = {
    "stream": "stream rows.csv --target reject",
    "train": "train copy --steps 20",
    "rl": "rl repeat-first --steps 2000 --cell gru --depth 2",
}


def cells(commands=COMMANDS, later=5):
    """Return the cells.

    Args:
        commands: the commands.
        later: number of later starts.
    """
    commit = ledger.surroundings()["commit"]
    return ledger.grid(what=commands, rows=300, later=later, commit=commit)


def measure(cell):
    """Return seconds and ratio of the first start, and of the later ones together."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gzip.open(ledger.ROOT / "examples" / "sensors.csv.gz", "rt") as file:
            (folder / "rows.csv").write_text("".join(islice(file, cell["rows"] + 1)))
        env = {k: v for k, v in os.environ.items() if "CACHE" not in k and "BYTECODE" not in k}
        env |= {"FORETRACE_CACHE": str(folder / "cache"), "PYTHONPATH": str(ledger.ROOT)}
        begin = ["-m", "foretrace", *COMMANDS[cell["what"]].split(), "--run-dir", "run"]
        spent(["-m", "foretrace", "--version"], folder, env)  # writes the bytecode
        pairs = []
        for _ in range(1 + cell["later"]):
            pairs.append([spent(one, folder, env) for one in (begin, ["-c", "import jax"])])
            shutil.rmtree(folder / "run")
    parts = {"first": pairs[:1], "later": pairs[1:]}
    sums = {
        part: [sum(column) for column in zip(*some, strict=True)] for part, some in parts.items()
    }
    found = {part: round(ours / jax, 2) for part, (ours, jax) in sums.items()}
    return found | {"starts": [[round(one, 2) for one in pair] for pair in pairs]}


def spent(arguments, folder, env):
    """Return the CPU seconds of a Python process and its children."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=env, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    ledger.run(__doc__, "starts", cells, measure)
