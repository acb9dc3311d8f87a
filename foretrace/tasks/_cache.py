"""Arrays that are costly to compute, as memory-mapped .npy files in the user's cache directory."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from foretrace._cache import cache_root

_NAMES = "names"


def cached(name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return arrays from the cache, memory-mapped and read-only; make them if they are missing.

    Several processes may call this at the same time. An entry appears complete or not at all, and
    the entry of the first process is kept.

    Args:
        name: name of the entry. It must change with everything on which the arrays depend.
        make: function that makes the arrays.

    Raises:
        OSError: the cache cannot be written.
    """
    entry = cache_root() / name
    kept = _read(entry)
    return kept if kept is not None else _write(entry, make())


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays (names, types, shapes, elements), equal on every machine."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _read(entry: Path) -> dict[str, np.ndarray] | None:
    try:
        names = (entry / _NAMES).read_text().split()
        return {name: np.load(entry / f"{name}.npy", mmap_mode="r") for name in names}
    except (OSError, ValueError, EOFError):
        return None  # missing or damaged: make it again


def _write(entry: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    entry.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    scratch.chmod(0o755)  # several users may share a cache
    try:
        for name, array in arrays.items():
            with open(scratch / f"{name}.npy", "xb") as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        (scratch / _NAMES).write_text(" ".join(arrays))
        if _read(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
        try:
            scratch.rename(entry)
        except OSError:
            if _read(entry) is None:  # not only because another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    kept = _read(entry)
    if kept is None:
        raise OSError(f"{entry} cannot be read back")
    return kept
