"""The parts of `foretrace bench`: each measures one thing and returns rows, one dictionary each."""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from foretrace._learner.learner import Learner
from foretrace._rule import BPTT, ONLINE, SPATIAL, TRUNCATED
from foretrace.bench._timing import (
    DEPTH,
    SHAPES,
    ShapeName,
    bytes_of,
    copy_of,
    data,
    learner,
    operations,
    product_rate,
    products,
    products_alone,
    ratio,
    timed,
)
from foretrace.experiment._cells import GRU, LRU, CellConfig, LinearRNN

Row = dict[str, Any]


class Setting(NamedTuple):
    """Sizes and number of repetitions of a measurement.

    Args:
        shapes: names of `SHAPES`.
        rounds: number of timed rounds, of which medians are reported.
        chunks: numbers of steps of a chunk of a stream.
        streams: numbers of streams side by side.
        lengths: lengths of the sequences for which memory is reported.
    """

    shapes: tuple[ShapeName, ...]
    rounds: int
    chunks: tuple[int, ...]
    streams: tuple[int, ...]
    lengths: tuple[int, ...]


def whole(setting: Setting) -> Iterator[Row]:
    """Training step on whole sequences by rule, beside BPTT and its matrix products alone."""
    for name in setting.shapes:
        yield from _compare(name, setting.rounds)


def _compare(name: ShapeName, rounds: int) -> Iterator[Row]:
    shape = SHAPES[name]
    xs, ys = data(shape, shape.batch, shape.length)
    calls, compiled = {"floor": products_alone(shape)}, {}
    for rule in (ONLINE, BPTT, TRUNCATED, SPATIAL):
        calls[rule.name], compiled[rule.name] = _whole_step(
            learner(shape, rule, whole_sequences=True), xs, ys
        )
    seconds = timed(calls, rounds)
    for tried, program in compiled.items():
        yield {
            "shape": name,
            "rule": "online" if tried == ONLINE.name else tried,
            "ms": _ms(seconds[tried]),
            "time_over_bptt": round(ratio(seconds, tried, "BPTT"), 3),
            "memory_mib": round(program.temporary / 2**20, 1),
            "memory_over_bptt": round(program.temporary / compiled["BPTT"].temporary, 3),
            "floor_ms": _ms(seconds["floor"]),
            "share_of_floor": round(ratio(seconds, "floor", tried), 3),
            "floor_gflop_per_s": round(
                operations(products(shape)) / statistics.median(seconds["floor"]) / 1e9, 1
            ),
            "compile_s": round(program.seconds, 2),
        }


class _Compiled(NamedTuple):
    program: Callable
    temporary: float
    seconds: float


def _whole_step(learner: Learner, xs: Any, ys: Any) -> tuple[Callable, _Compiled]:
    state = learner.init()
    compiled = compiled_step(learner, state, xs, ys)
    return lambda: compiled.program(state, xs, ys, None, None), compiled


def compiled_step(learner: Learner, state: Any, xs: Any, ys: Any) -> _Compiled:
    """Compile a step without running it."""
    begun = time.perf_counter()
    program = learner._step.lower(state, xs, ys, None, None, end=False).compile()
    seconds = time.perf_counter() - begun
    needs = program.memory_analysis()
    return _Compiled(program, math.nan if needs is None else needs.temp_size_in_bytes, seconds)


def cells(setting: Setting) -> Iterator[Row]:
    """SnAp-1 against BPTT for recurrences without independent modules, at the copy task's size."""
    sizes: dict[str, tuple[CellConfig, int]] = {
        "GRU x 4": (GRU(), 91),
        "linear RNN x 4": (LinearRNN(64), 146),
    }
    sizes["LRU x 4"] = LRU(64), 128
    shape = SHAPES["copy"]
    xs, ys = data(shape, shape.batch, shape.length)
    for name, (cell, width) in sizes.items():
        calls, compiled = {}, {}
        for rule in (ONLINE, BPTT):
            made = learner(
                shape._replace(model=width), rule, cell=cell.factory(), whole_sequences=True
            )
            calls[rule.name], compiled[rule.name] = _whole_step(made, xs, ys)
        seconds = timed(calls, setting.rounds)
        yield {
            "cell": name,
            "snap1_ms": _ms(seconds["ONLINE"]),
            "bptt_ms": _ms(seconds["BPTT"]),
            "time_over_bptt": round(ratio(seconds, "ONLINE", "BPTT"), 3),
            "memory_over_bptt": round(compiled["ONLINE"].temporary / compiled["BPTT"].temporary, 3),
        }


def streaming(setting: Setting) -> Iterator[Row]:
    """Online learning from a stream, chunk by chunk, beside inference and the floor, per step.

    The floor is what takes longer: the matrix products at the rate of large ones, or reading and
    writing the state once as a plain copy of as many bytes does.
    """
    rate = product_rate(3)
    for streams in setting.streams:
        for chunk in setting.chunks:
            yield _stream(streams, chunk, rate, setting.rounds)


def _stream(streams: int, chunk: int, rate: float, rounds: int) -> Row:
    shape = SHAPES["copy"]._replace(batch=streams, length=chunk)
    front = [] if streams == 1 else [streams]
    made = learner(shape, ONLINE, batch_size=None if streams == 1 else streams)
    state, (xs, ys) = made.init(), data(shape, *front, chunk)
    calls = max(1, 256 // chunk)

    def learn() -> Any:
        now = state
        for _ in range(calls):
            now, _ = made._step(now, xs, ys, None, None, end=False)
        return now.step

    def infer() -> Any:
        now, y = state, None
        for _ in range(calls):
            y, changed = made._predict(now, xs, None, sensitivity=False)
            now = now._replace(**changed)
        return y

    found = timed({"learn": learn, "infer": infer, "copy": copy_of(bytes_of(state))}, rounds)
    # The sensitivity e of B, a product.
    carried = 2 * shape.state * shape.model * chunk * streams * DEPTH * 2 if chunk > 1 else 0
    floor = (
        max((operations(products(shape)) + carried) / rate, statistics.median(found["copy"]))
        / chunk
    )
    steps = calls * chunk
    learned, inferred = (statistics.median(found[name]) / steps for name in ("learn", "infer"))
    return {
        "streams": streams,
        "chunk": chunk,
        "learn_us": round(1e6 * learned, 1),
        "infer_us": round(1e6 * inferred, 1),
        "learn_over_infer": round(ratio(found, "learn", "infer"), 2),
        "floor_us": round(1e6 * floor, 1),
        "share_of_floor": round(floor / learned, 3),
        "memory_kib": round(compiled_step(made, state, xs, ys).temporary / 2**10, 1),
        "carry_kib": round(bytes_of(state.carry) / 2**10, 1),
    }


def first(setting: Setting) -> Iterator[Row]:
    """Compile and run the first training step of the copy shape in fresh processes."""
    code = "from foretrace.bench._parts import first_call; print(first_call())"
    found = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(float(done.stdout.split()[-1]))
    yield {"step": "copy, online", "seconds": found}


def first_call() -> float:
    """Time the first training step of this process, in seconds."""
    shape = SHAPES["copy"]
    made = learner(shape, ONLINE, whole_sequences=True)
    state, (xs, ys) = made.init(), data(shape, shape.batch, shape.length)
    jax.block_until_ready((state, xs, ys))
    start = time.perf_counter()
    jax.block_until_ready(made.step(state, xs, ys))
    return round(time.perf_counter() - start, 2)


def _ms(seconds: list[float]) -> float:
    return round(1e3 * statistics.median(seconds), 2)
