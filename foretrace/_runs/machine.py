"""Versions, commit, hardware and memory of a run."""

import ctypes
import datetime
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax


def resident_mib() -> float:
    """Return the present memory of the process in MiB; outside of Linux, its maximum."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        size = pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        size = peak_bytes()
    return round(size / 2**20, 1)


def peak_bytes() -> int:
    """Return the largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def release_unused() -> None:
    """Return freed memory to the system, of which a compiler leaves much; only with glibc."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def surroundings() -> dict[str, Any]:
    """Return versions, commit and hardware for the record of a run."""
    names = ("foretrace", "jax", "jaxlib", "equinox", "optax", "numpy")
    device = jax.devices()[0]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "packages": {name: importlib.metadata.version(name) for name in names},
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "devices": f"{jax.device_count()} x {device.platform}, {device.device_kind}",
    }


def _commit() -> str | None:
    """Return the package's commit, with "-dirty" if files changed; None outside a repository."""
    here = Path(__file__)
    # If the package is installed into an environment inside another repository, the commit of that
    # repository would be wrong. Git is therefore asked whether it tracks this file.
    ask = f"ls-files --error-unmatch {here.name}", "describe --always --dirty --abbrev=40"
    options: dict[str, Any] = {"text": True, "timeout": 10, "stderr": subprocess.DEVNULL}
    options["cwd"] = here.parent
    try:
        said = [subprocess.check_output(["git", *words.split()], **options) for words in ask]
    except (OSError, subprocess.SubprocessError):
        return None
    return said[-1].strip()
