"""The public file formats of the data sets: parquet shards and idx files."""

import gzip
import importlib
import lzma
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from foretrace.tasks._files import DataError

_OPENERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, "": open}
_MNIST_STEMS = {"train": "train", "test": "t10k"}


def parquet_files(folder: Path, split: str) -> list[Path]:
    """Return the shards `<split>-*.parquet` in order.

    Raises:
        FileNotFoundError: one or more of the files are missing.
    """
    paths = sorted(folder.glob(f"{split}-*.parquet"))
    if not paths:
        raise FileNotFoundError(f"{folder / split}-*.parquet does not exist")
    counts = {match[1] for path in paths if (match := re.search(r"-of-(\d+)\.parquet$", path.name))}
    if len(counts) > 1:
        raise FileNotFoundError(
            f"{folder} holds shards of different copies: {', '.join(p.name for p in paths)}"
        )
    shards = int(counts.pop()) if counts else 0
    for number in range(shards):
        path = folder / f"{split}-{number:05d}-of-{shards:05d}.parquet"
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
    return paths


def read_parquet(path: Path, columns: list[str]) -> dict[str, list]:
    """Return columns of a parquet file as Python values.

    Raises:
        DataError: pyarrow is not installed, or the file does not have these columns.
    """
    parquet = import_extra("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        present = file.schema_arrow.names
        if missing := sorted(set(columns) - set(present)):
            raise DataError(f"{path} has no column {', '.join(missing)}, only {', '.join(present)}")
        return file.read(columns=columns).to_pydict()


def mnist_files(folder: Path, split: str) -> list[Path]:
    """Return the files with images and labels, compressed or not.

    Raises:
        FileNotFoundError: a file is missing.
    """
    found = []
    for what in ("images-idx3", "labels-idx1"):
        plain = folder / f"{_MNIST_STEMS[split]}-{what}-ubyte"
        present = [
            path for suffix in _OPENERS if (path := plain.with_name(plain.name + suffix)).exists()
        ]
        if not present:
            raise FileNotFoundError(f"{plain} (or .xz, .gz) does not exist")
        found.append(present[0])
    return found


def read_idx(path: Path) -> np.ndarray:
    """Return the array in an idx file of bytes.

    The file consists of `0, 0, 8`, the number of axes, the axes (big-endian) and the elements.

    Raises:
        DataError: the file has another format.
    """
    with _OPENERS.get(path.suffix, open)(path, "rb") as file:
        data = file.read()
    if data[:3] != b"\0\0\x08":
        raise DataError(f"{path} is not an idx file of bytes")
    shape = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def import_extra(module: str) -> ModuleType:
    """Import a module of the extra `data`.

    Raises:
        DataError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{error}: real data need the extra `data`; pip install 'foretrace[data]'"
        ) from error
