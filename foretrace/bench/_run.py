"""`foretrace bench`: time and memory of every way of running, beside the floor."""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import jax

from foretrace._runs.directory import RunError
from foretrace._runs.files import write_atomically
from foretrace._runs.machine import surroundings
from foretrace.bench import _memory, _parts
from foretrace.bench._parts import Row, Setting
from foretrace.bench._report import markdown
from foretrace.bench._timing import ShapeName
from foretrace.experiment._precision import MatmulPrecision, matrix_products

Part = Literal["whole", "cells", "streaming", "memory", "first"]

PARTS: dict[Part, Callable[[Setting], Iterator[Row]]] = {
    "whole": _parts.whole,
    "cells": _parts.cells,
    "streaming": _parts.streaming,
    "memory": _memory.memory,
    "first": _parts.first,
}
"""What can be measured."""

BENCH_FILE = "bench.json"


def run(
    out: str | os.PathLike[str],
    *,
    parts: Sequence[Part] = get_args(Part),
    shapes: Sequence[ShapeName] | None = None,
    rounds: int = 15,
    chunks: Sequence[int] = (1, 16, 64, 1024),
    streams: Sequence[int] = (1, 8),
    lengths: Sequence[int] = (1024, 4096, 16384, 65536),
    matmul_precision: MatmulPrecision | None = None,
) -> dict[str, Any]:
    """Measure, and write `bench.json` and `bench.md` into a folder, anew after each part.

    All that is compared is timed in turn in this process, and ratios are medians of the ratios of
    rounds, so that a noisy machine disturbs both sides alike. Run it on a machine that does nothing
    else.

    Args:
        out: folder of the results, made if it is not there.
        parts: measurements to make.
        shapes: sizes of the training steps. Default: all that the device runs in minutes.
        rounds: number of timed rounds.
        chunks: numbers of steps of a chunk of a stream.
        streams: numbers of streams side by side.
        lengths: lengths of the sequences for which memory is reported.
        matmul_precision: precision of matrix products, also of the floor. Default: JAX's for the
            device. The part that starts processes (first) always uses the default.

    Returns:
        The record: where, when and with what, and the rows of each part.

    Raises:
        RunError: the folder holds a measurement already, or cannot be written.
        ValueError: an unknown part, shape or precision, or a number below one.
    """
    numbers = {"rounds": (rounds,), "chunks": chunks, "streams": streams, "lengths": lengths}
    for name, values in numbers.items():
        if wrong := [value for value in values if value < 1]:
            raise ValueError(f"{name}={wrong[0]} must be at least 1")
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    names = tuple(shapes) if shapes is not None else _shapes_for(jax.default_backend())
    if strange := [name for name in names if name not in get_args(ShapeName)]:
        raise ValueError(
            f"unknown shape {strange[0]!r}; there are {', '.join(get_args(ShapeName))}"
        )
    setting = Setting(names, rounds, tuple(chunks), tuple(streams), tuple(lengths))
    with matrix_products(matmul_precision):
        folder = _folder(out)
        record: dict[str, Any] = {"surroundings": surroundings(), "load": _load(), "rounds": rounds}
        record |= {"matmul_precision": matmul_precision, "about": {}, "parts": {}}
        for part in parts:
            record["about"][part] = " ".join((inspect.getdoc(PARTS[part]) or "").split())
            record["parts"][part] = list(_told(part, PARTS[part](setting)))
            _write(folder, record)
    return record


def _shapes_for(backend: str) -> tuple[ShapeName, ...]:
    return ("copy", "long", "long8") if backend == "cpu" else get_args(ShapeName)


def _told(part: str, rows: Iterator[Row]) -> Iterator[Row]:
    print(f"measuring {part}", file=sys.stderr, flush=True)
    for row in rows:
        print(
            "    " + ", ".join(f"{name} {value}" for name, value in row.items()),
            file=sys.stderr,
            flush=True,
        )
        yield row


def _folder(out: str | os.PathLike[str]) -> Path:
    folder = Path(out)
    if (folder / BENCH_FILE).exists():
        raise RunError(f"{folder} holds a measurement already; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write the folder {folder}: {error.strerror or error}") from error
    return folder


def _write(folder: Path, record: dict[str, Any]) -> None:
    write_atomically(folder / BENCH_FILE, (json.dumps(record, indent=1) + "\n").encode())
    write_atomically(folder / "bench.md", markdown(record).encode())


def _load() -> float | None:
    """Return the number of processes waiting for a core in the last minute, None if unknown."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
