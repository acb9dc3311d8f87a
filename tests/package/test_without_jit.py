"""Once more without compilation: JAX then runs Python as it stands, operation by operation.

It reveals faults that a program hides: a Python branch on a traced value, a loop that is closed
over the wrong variable, an effect that happens once instead of at each call.
"""

import os
import sys
from pathlib import Path

import pytest
from processes import printed

TESTS = Path(__file__).parents[1]

FILES = ("recurrence/test_scan.py", "laws/test_numpy_oracle.py")
"""Files of rooms that compute with JAX."""


@pytest.mark.slow
def test_the_rooms_compute_the_same_without_compilation():
    command = f"{sys.executable} -m pytest -n 0 -q --tb=short -p no:cacheprovider".split()
    env = os.environ | {"JAX_DISABLE_JIT": "1"}
    said = printed(*command, *(TESTS / name for name in FILES), env=env, cwd=TESTS.parent)
    assert " passed" in said.splitlines()[-1] and "skipped" not in said, said
