"""Operations on elements whose places are computed: gather, scatter, the largest ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretrace._graph.real_valued import NotExportable
from foretrace._native.expression import (
    Apply,
    Expression,
    Load,
    Number,
    Value,
    broadcast,
    contiguous,
    moved,
    sliced,
)
from foretrace._native.loops import Combine, Loop
from foretrace._native.lower import Lowering, Rule


def _gather(lowering: Lowering, eqn: Any) -> Value:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    source = lowering.stored(lowering.read(eqn.invars[0]))
    (out,) = eqn.outvars
    axes = _Axes(numbers.offset_dims, numbers.collapsed_slice_dims, numbers.operand_batching_dims)
    batching = numbers.start_indices_batching_dims
    load = axes.place(
        lowering, eqn.invars[1], source, out.aval.shape, sizes, numbers.start_index_map, batching
    )
    if load.picks and "fill" in str(eqn.params["mode"]).lower():
        inside: Expression | None = None
        for index, last, _ in load.picks:
            one = Apply(f"({{0}} >= 0 && {{0}} <= {last})", (index,), np.dtype(bool), 2)
            inside = (
                one if inside is None else Apply("({0} && {1})", (inside, one), np.dtype(bool), 1)
            )
        filling = Number(
            math.nan if np.issubdtype(out.aval.dtype, np.floating) else 0, out.aval.dtype
        )
        assert inside is not None
        expression: Expression = Apply(
            "({0} ? {1} : {2})", (inside, load, filling), out.aval.dtype, 1
        )
        return lowering.stored_if_needed(out, Value(expression, out.aval.shape))
    return Value(load, out.aval.shape)


class _Axes:
    """Which axes of the result stand for a window of the source, and which for an index."""

    def __init__(self, window: Sequence[int], collapsed: Sequence[int], batching: Sequence[int]):
        self.window, self.collapsed, self.batching = (
            tuple(window),
            tuple(collapsed),
            tuple(batching),
        )

    def place(
        self,
        lowering: Lowering,
        indices: Any,
        source: Value,
        shape: tuple[int, ...],
        sizes: Sequence[int],
        index_map: Sequence[int],
        indices_batching: Sequence[int],
    ) -> Load:
        """Return where an element of the result, or an update, lies in the source."""
        assert isinstance(source.expression, Load) and not source.expression.picks
        index = lowering.cheap(lowering.read(indices), 2)
        chosen = [axis for axis in range(len(shape)) if axis not in self.window]
        strides, offset = [0] * len(shape), source.expression.offset
        windows = [
            d for d in range(len(source.shape)) if d not in (*self.collapsed, *self.batching)
        ]
        for axis, dimension in zip(self.window, windows, strict=True):
            strides[axis] += source.expression.strides[dimension]
        for dimension, along in zip(self.batching, indices_batching, strict=True):
            strides[chosen[along]] += source.expression.strides[dimension]
        picks = []
        for number, dimension in enumerate(index_map):
            last, stride = (
                source.shape[dimension] - sizes[dimension],
                source.expression.strides[dimension],
            )
            column = sliced(
                index,
                (*[0] * (len(index.shape) - 1), number),
                (*index.shape[:-1], 1),
                (1,) * len(index.shape),
            )
            flat = Value(moved(column.expression, lambda o, s: (o, s[:-1])), index.shape[:-1])
            spread = broadcast(flat, shape, tuple(chosen)).expression
            if isinstance(spread, Number):
                offset += min(max(int(spread.value), 0), last) * stride
            else:
                picks.append((spread, last, stride))
        return Load(source.expression.array, offset, tuple(strides), tuple(picks))


def _largest(lowering: Lowering, eqn: Any) -> list[Value]:
    values, places = eqn.outvars
    count, shape = eqn.params["k"], places.aval.shape
    if eqn.params.get("axis", len(shape) - 1) != len(shape) - 1 or len(shape) != 1:
        raise NotExportable("top_k of an array of more than one axis has no form in C here")
    source = lowering.stored(lowering.read(eqn.invars[0]))
    array = lowering.target(places)
    at = contiguous(array, shape)
    each = broadcast(source, (*shape, *source.shape), (1,)).expression
    lowering.add(Loop(at, each, shape, source.shape, "largest"))
    assert isinstance(source.expression, Load)
    load = source.expression
    pick = (at, source.shape[0] - 1, load.strides[0])
    return [
        Value(Load(load.array, load.offset, (0,), (*load.picks, pick)), (count,)),
        Value(at, shape),
    ]


def _scatter(lowering: Lowering, eqn: Any) -> Value:
    numbers, (out,) = eqn.params["dimension_numbers"], eqn.outvars
    updates = lowering.read(eqn.invars[2])
    whole = lowering.stored(lowering.read(eqn.invars[0]), lowering.target(out))
    windows = [
        d
        for d in range(len(whole.shape))
        if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    ]
    sizes = [1] * len(whole.shape)
    for axis, dimension in zip(numbers.update_window_dims, windows, strict=True):
        sizes[dimension] = updates.shape[axis]
    axes = _Axes(
        numbers.update_window_dims, numbers.inserted_window_dims, numbers.operand_batching_dims
    )
    picked, batching = numbers.scatter_dims_to_operand_dims, numbers.scatter_indices_batching_dims
    place = axes.place(lowering, eqn.invars[1], whole, updates.shape, sizes, picked, batching)
    combine: Combine = "add" if eqn.primitive.name == "scatter-add" else "put"
    lowering.add(Loop(place, updates.expression, updates.shape, (), combine))
    return whole


def _dynamic_slice(lowering: Lowering, eqn: Any) -> Value:
    source, sizes = lowering.stored(lowering.read(eqn.invars[0])), eqn.params["slice_sizes"]
    return Value(_window(lowering, source, eqn.invars[1:], sizes), eqn.outvars[0].aval.shape)


def _dynamic_update(lowering: Lowering, eqn: Any) -> Value:
    update = lowering.read(eqn.invars[1])
    whole = lowering.stored(lowering.read(eqn.invars[0]), lowering.target(eqn.outvars[0]))
    lowering.add(
        Loop(
            _window(lowering, whole, eqn.invars[2:], update.shape), update.expression, update.shape
        )
    )
    return whole


def _window(lowering: Lowering, source: Value, starts: Sequence[Any], sizes: Sequence[int]) -> Load:
    load, picks = source.expression, []
    assert isinstance(load, Load) and not load.picks
    offset = load.offset
    for start, size, whole, stride in zip(starts, sizes, source.shape, load.strides, strict=True):
        index = broadcast(lowering.read(start), tuple(sizes), ()).expression
        if isinstance(index, Number):
            offset += min(max(int(index.value), 0), whole - size) * stride
        else:
            picks.append((index, whole - size, stride))
    return Load(load.array, offset, load.strides, tuple(picks))


PLACING: dict[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter,
    "top_k": _largest,
}
"""Operations that compute the places of elements."""
