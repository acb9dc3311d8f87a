"""Operations that only move elements."""

from typing import Any

import numpy as np

from foretrace._graph.real_valued import NotExportable
from foretrace._native.expression import (
    Array,
    Index,
    Load,
    Value,
    broadcast,
    contiguous,
    dtype_of,
    sliced,
    transposed,
)
from foretrace._native.join import Joined
from foretrace._native.loops import Loop
from foretrace._native.lower import Lowering, Rule


def _broadcast(lowering: Lowering, eqn: Any) -> Value:
    shape, dimensions = (
        eqn.outvars[0].aval.shape,
        tuple(map(int, eqn.params["broadcast_dimensions"])),
    )
    value = lowering.read(eqn.invars[0])
    times = int(np.prod(shape)) // max(int(np.prod(value.shape)), 1)
    return broadcast(lowering.cheap(value, times), shape, dimensions)


def _reshape(lowering: Lowering, eqn: Any) -> Value:
    return lowering.in_shape(lowering.read(eqn.invars[0]), eqn.outvars[0].aval.shape)


def _slice(lowering: Lowering, eqn: Any) -> Value:
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    value = lowering.operand(eqn.invars[0])
    if isinstance(value, Joined) and _cuts_one_axis(value, starts, ends, steps):
        found = value.part(starts[value.axis], ends[value.axis] - starts[value.axis])
        if found is not None:
            return found
    return sliced(
        lowering.read(eqn.invars[0]), tuple(starts), eqn.outvars[0].aval.shape, tuple(steps)
    )


def _cuts_one_axis(joined: Joined, starts: Any, ends: Any, steps: Any) -> bool:
    others = [axis for axis in range(len(joined.shape)) if axis != joined.axis]
    whole = all(starts[axis] == 0 and ends[axis] == joined.shape[axis] for axis in others)
    return whole and all(step == 1 for step in steps)


def _split(lowering: Lowering, eqn: Any) -> list[Value]:
    axis, sizes = eqn.params["axis"], [int(size) for size in eqn.params["sizes"]]
    joined = lowering.operand(eqn.invars[0])
    found, start = [], 0
    for size in sizes:
        part = (
            joined.part(start, size) if isinstance(joined, Joined) and joined.axis == axis else None
        )
        if part is None:
            value = lowering.read(eqn.invars[0])
            starts, shape = [0] * len(value.shape), list(value.shape)
            starts[axis], shape[axis] = start, size
            part = sliced(value, tuple(starts), tuple(shape), (1,) * len(shape))
        found.append(part)
        start += size
    return found


def _transpose(lowering: Lowering, eqn: Any) -> Value:
    return transposed(lowering.read(eqn.invars[0]), tuple(map(int, eqn.params["permutation"])))


def _reverse(lowering: Lowering, eqn: Any) -> Value:
    value, axes = lowering.read(eqn.invars[0]), eqn.params["dimensions"]
    starts = tuple(size - 1 if axis in axes else 0 for axis, size in enumerate(value.shape))
    steps = tuple(-1 if axis in axes else 1 for axis in range(len(value.shape)))
    return sliced(value, starts, value.shape, steps)


def _concatenate(lowering: Lowering, eqn: Any) -> Joined:
    parts = tuple(
        part for atom in eqn.invars if (part := lowering.read(atom)).shape[eqn.params["dimension"]]
    )
    return Joined(parts, eqn.params["dimension"], eqn.outvars[0].aval.shape)


def _pad(lowering: Lowering, eqn: Any) -> Value | Joined:
    value, filling = lowering.read(eqn.invars[0]), lowering.read(eqn.invars[1])
    config = eqn.params["padding_config"]
    low_cut = tuple(max(-low, 0) for low, _, _ in config)
    sizes = tuple(
        n - a - max(-high, 0)
        for n, a, (_, high, _) in zip(value.shape, low_cut, config, strict=True)
    )
    if all(between == 0 for _, _, between in config):
        found: Value | Joined = sliced(value, low_cut, sizes, (1,) * len(sizes))
    else:
        found = _with_gaps(lowering, value, filling, config)
        config = [(0, 0, 0)] * len(config)
    for axis, (low, high, _) in enumerate(config):
        if low > 0 or high > 0:
            found = _lengthened(lowering, found, filling, axis, max(low, 0), max(high, 0))
    return found


def _lengthened(
    lowering: Lowering, value: Value | Joined, filling: Value, axis: int, low: int, high: int
) -> Joined:
    if isinstance(value, Joined):
        value = lowering.joined_as_one(value)
    parts = []
    for size in (low, None, high):
        if size is None:
            parts.append(value)
        elif size:
            shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
            parts.append(broadcast(filling, shape, ()))
    whole = (*value.shape[:axis], value.shape[axis] + low + high, *value.shape[axis + 1 :])
    return Joined(tuple(parts), axis, whole)


def _with_gaps(lowering: Lowering, value: Value, filling: Value, config: Any) -> Value:
    """Return a padded array with gaps, as the derivative of a strided slice has."""
    shape = tuple(
        low + high + size + max(size - 1, 0) * between
        for size, (low, high, between) in zip(value.shape, config, strict=True)
    )
    if any(low < 0 or high < 0 for low, high, _ in config):
        raise NotExportable("padding with gaps and by less than nothing has no form in C here")
    array = Array(int(np.prod(shape)), dtype_of(value.expression), "scratch")
    whole = contiguous(array, shape)
    lowering.add(Loop(whole, broadcast(filling, shape, ()).expression, shape))
    lows, steps = tuple(low for low, _, _ in config), tuple(between + 1 for _, _, between in config)
    inner = sliced(Value(whole, shape), lows, value.shape, steps).expression
    assert isinstance(inner, Load)
    lowering.add(Loop(inner, value.expression, value.shape))
    return Value(whole, shape)


def _iota(lowering: Lowering, eqn: Any) -> Value:
    out = eqn.outvars[0].aval
    strides = tuple(int(axis == eqn.params["dimension"]) for axis in range(len(out.shape)))
    return Value(Index(0, strides, np.dtype(out.dtype)), out.shape)


MOVING: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "expand_dims": _reshape,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _reverse,
    "slice": _slice,
    "split": _split,
    "squeeze": _reshape,
    "transpose": _transpose,
}
"""Operations that move elements."""
