"""Where tests find real data, and how those that make their own write them."""

import gzip
import importlib
import lzma
import os
import struct
from pathlib import Path

import pytest

OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def real_data(folder):
    """Return the data directory; skip the test if it lacks the folder."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    root = Path(os.environ.get("FORETRACE_DATA") or beside)
    if not (root / folder).exists():
        pytest.skip(
            f"real data: {root / folder} does not exist; name the data directory by FORETRACE_DATA"
        )
    return str(root)


def write_parquet(path, columns):
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="reading parquet needs the extra `data`"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(importlib.import_module("pyarrow").table(columns), path)


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "wb") as file:
        file.write(
            struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        )
