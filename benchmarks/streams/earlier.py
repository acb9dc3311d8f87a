"""The default of an earlier commit, in a process of its own that has the package of that commit."""

import contextlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def predictions(commit, frame, target):
    """Return the predictions of a commit's default of each row before its label."""
    process = started(commit)
    pickle.dump((frame, target), process.stdin)
    process.stdin.flush()
    return pickle.load(process.stdout)


@cache
def started(commit):
    """Return the process of a commit. It ends with this one."""
    asked = ["git", "archive", commit, "foretrace"]
    files = subprocess.run(asked, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    folder = tempfile.mkdtemp()
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
    return subprocess.Popen(
        [sys.executable, __file__, folder],
        env=os.environ | {"PYTHONPATH": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def serve(folder, asked, answers):
    """Answer with the predictions of each stream that arrives, until no more can."""
    import foretrace
    from foretrace.stream import run

    if Path(folder) not in Path(foretrace.__file__).parents:
        raise SystemExit(f"{foretrace.__file__} is not the package in {folder}")
    while asked.peek(1):
        (frame, target), found = pickle.load(asked), []
        with tempfile.TemporaryDirectory() as made, contextlib.redirect_stdout(sys.stderr):
            place, kind = f"{made}/run", {"target": target, "task": "regression"}
            run(frame, place, **kind, on_prediction=found.append)
        pickle.dump([one[target] for one in found], answers)
        answers.flush()


if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
    finally:
        shutil.rmtree(sys.argv[1])
