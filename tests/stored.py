"""Where tests find real data, and small data of every kind in the form of the public files."""

import gzip
import importlib
import io
import lzma
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from foretrace.tasks.copy import Copy
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST
from foretrace.tasks.imdb import IMDB
from foretrace.tasks.listops import ListOps
from foretrace.tasks.own import OwnSequences
from foretrace.tasks.selective_copy import SelectiveCopy

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


TRAIN, TEST = 40, 13
RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(3.0, 2.0, (20, 5, 2)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 20)
LENGTHS = np.arange(20) % 4 + 2
"""Sequences of one's own: inputs, a class of each, and steps that are there."""
TEXTS = [f"{'good' if i % 2 else 'bad'} film {'é' * i}" for i in range(20)]


def mnist_images(count):
    """Image i is i everywhere but for a counted first row; its class is i modulo 10."""
    images = np.empty((count, 28, 28), np.uint8)
    images[:] = np.arange(count)[:, None, None]
    images[:, 0] = np.arange(28)
    return images, np.arange(count, dtype=np.uint8) % 10


def cifar_images(count):
    return np.random.RandomState(count).randint(0, 256, (count, 32, 32, 3)).astype(np.uint8)


class Data:
    """A data directory: each method writes a data set and returns its task."""

    def __init__(self, root):
        self.root, self.options = root, {"data_dir": str(root), "verify": False}

    def mnist(self, suffix="", **options):
        for stem, count in (("train", TRAIN), ("t10k", TEST)):
            images, labels = mnist_images(count)
            write_idx(self.root / "mnist" / f"{stem}-images-idx3-ubyte{suffix}", images)
            write_idx(self.root / "mnist" / f"{stem}-labels-idx1-ubyte{suffix}", labels)
        return SequentialMNIST(**self.options | options)

    def cifar(self, **options):
        image = pytest.importorskip("PIL.Image", reason="decoding images needs the extra `data`")

        def png(pixels):
            file = io.BytesIO()
            image.fromarray(pixels).save(file, "png")
            return {"bytes": file.getvalue(), "path": None}

        folder = self.root / "cifar10" / "plain_text"
        for shard, part in enumerate(np.split(cifar_images(20), 2)):
            columns = {"img": [*map(png, part)], "label": [int(p[0, 0, 0]) % 10 for p in part]}
            write_parquet(folder / f"train-0000{shard}-of-00002.parquet", columns)
        return SequentialCIFAR10(**self.options | options)

    def imdb(self, classes=2, **options):
        columns = {"text": TEXTS, "label": [(classes - 1) * (i % 2) for i in range(20)]}
        for split in ("train", "test"):
            place = self.root / "imdb" / "plain_text" / f"{split}-00000-of-00001.parquet"
            write_parquet(place, columns)
        return IMDB(**{"max_length": 60} | self.options | options)

    def listops(self):
        return ListOps(samples=30, held_out=7, min_length=20, max_length=60)

    def own(self, **arrays):
        path = self.root / "own.npz"
        self.root.mkdir(exist_ok=True)
        np.savez(path, **arrays or {"xs": XS, "ys": LABELS})
        return OwnSequences(str(path))

    def copy(self):
        return Copy(4, 0, 8, samples=12)

    def selective(self):
        return SelectiveCopy(12, 4, 99, samples=12)
