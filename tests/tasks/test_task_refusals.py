"""Refusals of the tasks: a call, and the words that name the fault."""

import re
import sys

import numpy as np
import pytest
from stored import LABELS, LENGTHS, XS, write_parquet

from foretrace._runs.machine import peak_bytes
from foretrace.tasks._listops import Grammar
from foretrace.tasks.copy import Copy
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST
from foretrace.tasks.imdb import IMDB
from foretrace.tasks.listops import ListOps
from foretrace.tasks.own import OwnSequences
from foretrace.tasks.selective_copy import SelectiveCopy

GOOD = {"xs": XS, "ys": LABELS}

OPTIONS = {
    Copy: [("pattern_length", 0), ("bits", 0), ("samples", 0), ("padding", -1)],
    SelectiveCopy: [("span", 0), ("count", 0), ("count", 49), ("samples", 0), ("symbols", 1)],
    ListOps: [("samples", 0), ("held_out", 0), ("data_seed", -1), ("max_length", 500)],
    IMDB: [("max_length", 0)],
    SequentialCIFAR10: [("pool", 3)],
    SequentialMNIST: [("pool", 3)],
    Grammar: [("min_length", 2), ("max_length", 501), ("max_depth", 1), ("max_arguments", 1)],
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_out_of_range_are_named(kind):
    for name, value in OPTIONS[kind]:
        with pytest.raises(ValueError, match=f"{name}={value}"):
            kind(**{name: value})


def without(data, task, name):
    """Return a task whose files lack one."""
    next(data.root.rglob(name)).unlink()
    return task


def damaged(data, text):
    task = data.mnist(".gz")
    path = data.root / "mnist" / "train-images-idx3-ubyte.gz"
    if text is None:
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.with_suffix("").write_bytes(text)
        path.unlink()
    return task


def read_before(data, _):
    """Return a task whose arrays are in the cache, unverified."""
    data.mnist().batch(0, 0, 1)
    return data.mnist(verify=True)


def of_columns(data, **columns):
    write_parquet(data.root / "imdb" / "plain_text" / "train-00000-of-00001.parquet", columns)
    return IMDB(**data.options)


def in_the_way(data, monkeypatch):
    data.root.with_name("file").write_text("in the way")
    monkeypatch.setenv("FORETRACE_CACHE", str(data.root.with_name("file")))
    return data.mnist()


def unnamed(data, monkeypatch):
    monkeypatch.delenv("FORETRACE_DATA", raising=False)
    return SequentialMNIST()


def without_arrow(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    return data.cifar()


def of_text(data):
    data.root.with_suffix(".csv").write_text("x\n1\n")
    return OwnSequences(str(data.root.with_suffix(".csv")))


def short_parquet(data, _):
    """Return a task whose file of a few bytes would fill the memory."""
    arrow = pytest.importorskip("pyarrow")
    rows = arrow.array([[0.0] * 1000], arrow.list_(arrow.float32())).take(arrow.array([0] * 20_000))
    write_parquet(data.root / "my.parquet", {"xs": rows, "ys": arrow.array([0, 1] * 10_000)})
    return OwnSequences(str(data.root / "my.parquet"))


def changed(data):
    task = data.own().pinned()
    assert re.fullmatch("[0-9a-f]{64}", task.digest) and task.pinned() == task
    np.savez(task.data, xs=XS + 1, ys=LABELS)
    return task


FAULTS = {
    "has no array ys, only xs": {"xs": XS},
    "expected 20 targets": GOOD | {"ys": LABELS[:3]},
    "expected xs of shape": GOOD | {"xs": XS[0, 0]},
    "holds the label -1": GOOD | {"ys": LABELS - 1},
    "expected 1 to 5": GOOD | {"lengths": LENGTHS + 9},
    "xs holds NaN, infinity or a number beyond 1e.18": GOOD | {"xs": np.where(XS > 5, np.nan, XS)},
    "at least 3": {"xs": XS[:2], "ys": LABELS[:2]},
    "at least two classes": GOOD | {"ys": np.zeros(20, int)},
    "cannot read": GOOD | {"xs": np.array([object()] * 20)},
    "at most 65536 classes are learned": GOOD | {"ys": LABELS + 2**31},
    "ys holds infinity or a number": GOOD | {"ys": np.where(LABELS == 0, np.inf, 1.5)},
    "training sequences are NaN": GOOD | {"ys": np.stack([np.ones(20), np.full(20, np.nan)], 1)},
    "training sequences are -1": GOOD | {"ys": np.full((20, 5), -1)},
    "the environment variable FORETRACE_DATA, or by --data-dir": unnamed,
    r"train-labels-idx1-ubyte.* does not exist. Get the four .* into .*mnist": lambda data, _: (
        without(data, data.mnist(), "train-labels*")
    ),
    r"(?s)not the public .*verify=False.*images-idx3-ubyte: sha256 .*expected": read_before,
    "cannot read .*train-images-idx3-ubyte.gz": lambda data, _: damaged(data, None),
    "train-images-idx3-ubyte is not an idx file": lambda data, _: damaged(data, b"no idx file"),
    r"pip install 'foretrace\[data\]'": without_arrow,
    "could not be cached.*FORETRACE_CACHE": in_the_way,
    "samples=37: at least 1 and at most 36": lambda data, _: data.mnist(samples=37),
    "IMDB: a label is 2, expected 0 to 1": lambda data, _: data.imdb(classes=3),
    "no column label, text, only review": lambda data, _: of_columns(data, review=["x"]),
    "name it with --data": lambda data, _: OwnSequences(),
    "cannot read .*absent.npz": lambda data, _: OwnSequences(str(data.root / "absent.npz")),
    "foretrace stream": lambda data, _: of_text(data),
    r"would take 160,\d+,\d+ in memory": short_parquet,
    "has changed since the run began": lambda data, _: changed(data),
}


@pytest.mark.parametrize("words", FAULTS)
def test_what_is_wrong_with_the_files_is_named(words, data, monkeypatch):
    make = FAULTS[words]
    if callable(make):
        pytest.importorskip("pyarrow", reason="reading parquet needs the extra `data`")
    with pytest.raises(ValueError, match=words):
        task = make(data, monkeypatch) if callable(make) else data.own(**make)
        task.batch(0, 0, 1)


def test_a_short_file_that_would_fill_the_memory_is_refused_by_its_header(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, xs=np.zeros((20, 250_000, 10), np.float32), ys=np.arange(20) % 3)
    assert path.stat().st_size < 300_000
    before = peak_bytes()
    with pytest.raises(ValueError, match=r"would take 200,000,\d+ in memory.*numpy.savez"):
        _ = OwnSequences(str(path)).input_size
    assert peak_bytes() - before < 5e7
    np.savez_compressed(path, xs=np.zeros((20, 1000, 10), np.float32), ys=np.arange(20) % 3)
    assert OwnSequences(str(path)).input_size == 10
