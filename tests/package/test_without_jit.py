"""Once more without compilation: JAX then runs Python as it stands, operation by operation.

It reveals faults that a program hides: a Python branch on a traced value, a loop that is closed
over the wrong variable, an effect that happens once instead of at each call.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FILES = ("recurrence/test_scan.py", "laws/test_numpy_oracle.py")
"""Files of rooms that compute with JAX."""


@pytest.mark.program
def test_the_rooms_compute_the_same_without_compilation():
    command = [sys.executable, *"-m pytest -n 0 -q --tb=short -p no:cacheprovider".split()]
    done = subprocess.run(
        [*command, *(str(TESTS / name) for name in FILES)],
        env=os.environ | {"JAX_DISABLE_JIT": "1"},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
