"""Operations with computed indices: gather, scatter, top-k."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretrace._graph.picking import picking
from foretrace._native.expression import (
    Apply,
    Expression,
    Load,
    Number,
    Value,
    broadcast,
    contiguous,
    cut,
    transposed,
)
from foretrace._native.loops import Combine, Loop
from foretrace._native.lower import Lowering, Rule


def _gather(lowering: Lowering, eqn: Any) -> Value:
    source, (out,) = lowering.stored(lowering.read(eqn.invars[0])), eqn.outvars
    load = _picked(lowering, eqn, source, out.aval.shape)
    if not load.picks or "fill" not in str(eqn.params["mode"]).lower():
        return Value(load, out.aval.shape)
    inside = [
        Apply(f"({{0}} >= 0 && {{0}} <= {last})", (index,), np.dtype(bool), 2)
        for index, last, _ in load.picks
    ]
    together = functools.reduce(
        lambda a, b: Apply("({0} && {1})", (a, b), np.dtype(bool), 1), inside
    )
    nothing = Number(math.nan if np.issubdtype(out.aval.dtype, np.floating) else 0, out.aval.dtype)
    expression = Apply("({0} ? {1} : {2})", (together, load, nothing), out.aval.dtype, 1)
    return lowering.stored_if_needed(out, Value(expression, out.aval.shape))


def _scatter(lowering: Lowering, eqn: Any) -> Value:
    updates = lowering.read(eqn.invars[2])
    whole = lowering.stored(lowering.read(eqn.invars[0]), lowering.target(eqn.outvars[0]))
    place = _picked(lowering, eqn, whole, updates.shape)
    combine: Combine = "add" if eqn.primitive.name == "scatter-add" else "put"
    lowering.add(Loop(place, updates.expression, updates.shape, (), combine))
    return whole


def _picked(lowering: Lowering, eqn: Any, source: Value, shape: tuple[int, ...]) -> Load:
    """Return the position in the source of an element of a gather, or of a scatter's update."""
    found = picking(eqn)
    chosen = [axis for axis in range(len(shape)) if axis not in found.window]
    strides, along = [0] * len(shape), _strides(source)
    for axis, dimension in zip(found.window, found.whole, strict=True):
        strides[axis] += along[dimension]
    for dimension, axis in zip(found.batching, found.indices_batching, strict=True):
        strides[chosen[axis]] += along[dimension]
    index = lowering.cheap(lowering.read(eqn.invars[1]), 2)
    picks = []
    for number, dimension in enumerate(found.index_map):
        column = lowering.in_shape(cut(index, len(index.shape) - 1, number, 1), index.shape[:-1])
        spread = broadcast(column, shape, tuple(chosen)).expression
        picks.append((spread, source.shape[dimension] - found.sizes[dimension], along[dimension]))
    return _at(source, strides, picks)


def _dynamic_slice(lowering: Lowering, eqn: Any) -> Value:
    source, sizes = lowering.stored(lowering.read(eqn.invars[0])), eqn.params["slice_sizes"]
    return Value(_window(lowering, source, eqn.invars[1:], sizes), eqn.outvars[0].aval.shape)


def _dynamic_update(lowering: Lowering, eqn: Any) -> Value:
    update = lowering.read(eqn.invars[1])
    whole = lowering.stored(lowering.read(eqn.invars[0]), lowering.target(eqn.outvars[0]))
    place = _window(lowering, whole, eqn.invars[2:], update.shape)
    lowering.add(Loop(place, update.expression, update.shape))
    return whole


def _window(lowering: Lowering, source: Value, starts: Sequence[Any], sizes: Sequence[int]) -> Load:
    strides = _strides(source)
    picks = [
        (broadcast(lowering.read(start), tuple(sizes), ()).expression, whole - size, stride)
        for start, size, whole, stride in zip(starts, sizes, source.shape, strides, strict=True)
    ]
    return _at(source, strides, picks)


def _strides(stored: Value) -> tuple[int, ...]:
    assert isinstance(stored.expression, Load) and not stored.expression.picks
    return stored.expression.strides


def _at(
    stored: Value, strides: Sequence[int], picks: Sequence[tuple[Expression, int, int]]
) -> Load:
    """Return an element at a computed position, with the constant part in the offset."""
    assert isinstance(stored.expression, Load)
    offset, left = stored.expression.offset, []
    for index, last, stride in picks:
        if isinstance(index, Number):
            offset += min(max(int(index.value), 0), last) * stride
        else:
            left.append((index, last, stride))
    return Load(stored.expression.array, offset, tuple(strides), tuple(left))


def _largest(lowering: Lowering, eqn: Any) -> Value | list[Value]:
    """Write the positions of the largest elements along an axis, or of the largest or smallest."""
    places, name = eqn.outvars[-1], eqn.primitive.name
    source = lowering.stored(lowering.read(eqn.invars[0]))
    axis = eqn.params["axes"][0] if "axes" in eqn.params else eqn.params.get("axis", -1)
    others = [d for d in range(len(source.shape)) if d != axis % len(source.shape)]
    ordered = transposed(source, (*others, axis % len(source.shape)))
    *outer, size = ordered.shape
    shape = (*outer, eqn.params.get("k", 1))
    at = contiguous(lowering.target(places), shape)
    each = broadcast(ordered, (*shape, size), (*range(len(outer)), len(shape))).expression
    combine: Combine = "smallest" if name == "argmin" else "largest"
    lowering.add(Loop(at, each, shape, (size,), combine))
    if name != "top_k":
        return Value(contiguous(at.array, places.aval.shape), places.aval.shape)
    along = _strides(ordered)
    return [
        Value(_at(ordered, (*along[:-1], 0), [(at, size - 1, along[-1])]), shape),
        Value(at, shape),
    ]


PLACING: dict[str, Rule] = {
    **dict.fromkeys(("argmax", "argmin", "top_k"), _largest),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter,
}
"""Functions that lower operations with computed positions."""
