"""Operations that need a separate loop: reductions and products of matrices."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretrace._graph.real_valued import NotExportable
from foretrace._native.elements import element
from foretrace._native.expression import (
    Array,
    Load,
    Number,
    Value,
    broadcast,
    contiguous,
    cut,
    dtype_of,
    moved,
    sliced,
    transposed,
)
from foretrace._native.join import Joined
from foretrace._native.loops import Combine, Loop
from foretrace._native.lower import Lowering, Rule

_REDUCTIONS: dict[str, Combine] = {
    "reduce_and": "and",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_or": "or",
    "reduce_sum": "sum",
}


def _reduce(lowering: Lowering, eqn: Any) -> Value:
    (out,), axes = eqn.outvars, tuple(map(int, eqn.params["axes"]))
    combine = _REDUCTIONS[eqn.primitive.name]
    read = lowering.operand(eqn.invars[0])
    if isinstance(read, Joined) and read.axis in axes and combine in ("sum", "and"):
        parts = [_reduced(lowering, part, axes, combine) for part in read.parts]
        return lowering.stored_if_needed(
            out, _combined(parts, "add" if combine == "sum" else "and", out.aval.dtype)
        )
    return _reduced(lowering, lowering.read(eqn.invars[0]), axes, combine, out)


def _combined(parts: Sequence[Value], name: str, dtype: Any) -> Value:
    expressions = [part.expression for part in parts]
    total = functools.reduce(lambda a, b: element(name, [a, b], {}, dtype), expressions)
    return Value(total, parts[0].shape)


def _reduced(
    lowering: Lowering, value: Value, axes: Sequence[int], combine: Combine, out: Any = None
) -> Value:
    kept = [axis for axis in range(len(value.shape)) if axis not in axes]
    ordered = transposed(value, (*kept, *axes))
    shape = tuple(value.shape[axis] for axis in kept)
    sizes = tuple(value.shape[axis] for axis in axes)
    if math.prod(sizes) == 0:
        # Under a credit depth there are arrays without elements.
        if combine not in ("sum", "and", "or"):
            raise NotExportable(f"the {combine} of no elements has no value")
        return Value(Number(int(combine == "and"), dtype_of(value.expression)), shape)
    if math.prod(sizes) == 1:
        return _without_axes(ordered, len(kept))
    array = (
        Array(math.prod(shape), dtype_of(value.expression), "scratch")
        if out is None
        else lowering.target(out)
    )
    lowering.add(Loop(contiguous(array, shape), ordered.expression, shape, sizes, combine))
    return Value(contiguous(array, shape), shape)


def _dot_general(lowering: Lowering, eqn: Any) -> Value | Joined:
    (out,) = eqn.outvars
    sides = [lowering.operand(atom) for atom in eqn.invars]
    numbers = eqn.params["dimension_numbers"]
    for side in (1, 0):
        joined = sides[side]
        if isinstance(joined, Joined) and joined.axis in numbers[0][side]:
            return _sum_of_parts(lowering, eqn, joined, side)
        if isinstance(joined, Joined) and joined.axis not in numbers[1][side]:
            return _of_parts(lowering, eqn, joined, side)
    a, b = (lowering.read(atom) for atom in eqn.invars)
    chosen = _rows_chosen(eqn, a, b)
    return _product(lowering, eqn, a, b, out) if chosen is None else chosen


def _rows_chosen(eqn: Any, a: Value, b: Value) -> Joined | None:
    """Return a product with a constant matrix of zeros and ones as a selection of rows.

    The derivative of a real part is such a matrix. For any other product, return None.
    """
    (sums, batch) = eqn.params["dimension_numbers"]
    load = a.expression
    if (tuple(sums[0]), len(a.shape), len(b.shape)) != ((1,), 2, 2) or batch[0] or batch[1]:
        return None
    if not isinstance(load, Load) or load.array.value is None:
        return None
    if load != contiguous(load.array, a.shape) or load.array.size != math.prod(a.shape):
        return None
    (along,), runs = sums[1], _runs(load.array.value.reshape(a.shape))
    if runs is None:
        return None
    other = b if along == 0 else transposed(b, (1, 0))
    parts = []
    for column, count in runs:
        if column is None:
            parts.append(Value(Number(0.0, dtype_of(load)), (count, other.shape[1])))
        else:
            parts.append(cut(other, 0, column, count))
    return Joined(tuple(parts), 0, eqn.outvars[0].aval.shape)


def _runs(matrix: np.ndarray) -> list[tuple[int | None, int]] | None:
    """Return the blocks of rows of a constant matrix; None if there are more than four.

    A block is a shifted identity (index of its first column, number of rows) or zero (None, number
    of rows). The result is also None if a row is of another kind.
    """
    ones = [np.flatnonzero(row) for row in matrix]
    if any(
        len(at) > 1 or (len(at) and row[at[0]] != 1) for at, row in zip(ones, matrix, strict=True)
    ):
        return None
    found: list[tuple[int | None, int]] = []
    for at in ones:
        column = int(at[0]) if len(at) else None
        last = found[-1] if found else (None, 0)
        follows = last[1] and (last[0] is None) == (column is None)
        if follows and (column is None or column == (last[0] or 0) + last[1]):
            found[-1] = (last[0], last[1] + 1)
        else:
            found.append((column, 1))
    return found if len(found) <= 4 else None


def _of_parts(lowering: Lowering, eqn: Any, joined: Joined, side: int) -> Joined:
    """Multiply each part of a concatenated matrix, and return the products, concatenated.

    The product must keep the axis of the concatenation.
    """
    other = lowering.read(eqn.invars[1 - side])
    pairs = [(part, other) if side == 0 else (other, part) for part in joined.parts]
    (sums, batch), shapes = (
        eqn.params["dimension_numbers"],
        [atom.aval.shape for atom in eqn.invars],
    )
    free = [[d for d in range(len(shapes[i])) if d not in (*sums[i], *batch[i])] for i in range(2)]
    before = len(batch[0]) + (len(free[0]) if side else 0)
    axis = before + free[side].index(joined.axis)
    parts = tuple(lowering.stored(_product(lowering, eqn, a, b, None)) for a, b in pairs)
    return Joined(parts, axis, eqn.outvars[0].aval.shape)


def _sum_of_parts(lowering: Lowering, eqn: Any, joined: Joined, side: int) -> Value:
    """Return the sum of the products with each part of a concatenated matrix."""
    sums = eqn.params["dimension_numbers"][0]
    along = sums[1 - side][list(sums[side]).index(joined.axis)]
    atom, products = eqn.invars[1 - side], []
    other = lowering.operand(atom)
    for part, end in zip(joined.parts, joined.ends(), strict=True):
        size, match = part.shape[joined.axis], None
        if isinstance(other, Joined) and other.axis == along:
            match = other.part(end - size, size)
        if match is None:
            match = cut(lowering.read(atom), along, end - size, size)
        pair = (part, match) if side == 0 else (match, part)
        products.append(_product(lowering, eqn, *pair, None))
    return lowering.stored_if_needed(
        eqn.outvars[0], _combined(products, "add", eqn.outvars[0].aval.dtype)
    )


def _product(lowering: Lowering, eqn: Any, a: Value, b: Value, out: Any) -> Value:
    """Return a sum of products, or an elementwise product if there is no summed axis."""
    (sum_a, sum_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    free_a = [axis for axis in range(len(a.shape)) if axis not in (*sum_a, *batch_a)]
    free_b = [axis for axis in range(len(b.shape)) if axis not in (*sum_b, *batch_b)]
    size_a, size_b = (math.prod(v.shape[d] for d in free) for v, free in ((a, free_a), (b, free_b)))
    a, b = lowering.cheap(a, size_b), lowering.cheap(b, size_a)
    a, b = transposed(a, (*batch_a, *free_a, *sum_a)), transposed(b, (*batch_b, *free_b, *sum_b))
    batch, rows = a.shape[: len(batch_a)], a.shape[len(batch_a) : len(batch_a) + len(free_a)]
    columns, sums = (
        b.shape[len(batch_b) : len(batch_b) + len(free_b)],
        a.shape[len(batch_a) + len(free_a) :],
    )
    space, n, r, c = (*batch, *rows, *columns, *sums), len(batch), len(rows), len(columns)
    left = broadcast(a, space, (*range(n + r), *range(n + r + c, len(space)))).expression
    right = broadcast(b, space, (*range(n), *range(n + r, len(space)))).expression
    whole = Value(element("mul", [left, right], {}, dtype_of(left)), space)
    if math.prod(sums) == 1 and out is not None:
        return lowering.stored_if_needed(out, _without_axes(whole, n + r + c))
    return _reduced(lowering, whole, range(n + r + c, len(space)), "sum", out)


def _without_axes(value: Value, count: int) -> Value:
    return Value(moved(value.expression, lambda o, s: (o, s[:count])), value.shape[:count])


def _cumsum(lowering: Lowering, eqn: Any) -> Value:
    (out,), axis = eqn.outvars, eqn.params["axis"]
    value, shape = lowering.read(eqn.invars[0]), out.aval.shape
    order = (*(d for d in range(len(shape)) if d != axis), axis)
    array = lowering.target(out)
    target = transposed(Value(contiguous(array, shape), shape), order)
    ordered = transposed(value, order)
    if eqn.params["reverse"]:
        starts, steps = (0,) * (len(shape) - 1), (1,) * (len(shape) - 1)
        target, ordered = (
            sliced(v, (*starts, v.shape[-1] - 1), v.shape, (*steps, -1)) for v in (target, ordered)
        )
    assert isinstance(target.expression, Load)
    lowering.add(Loop(target.expression, ordered.expression, target.shape, (), "running sum"))
    return Value(contiguous(array, shape), shape)


SUMMING: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "cumsum": _cumsum,
    "dot_general": _dot_general,
}
"""Functions that lower operations which add elements."""
