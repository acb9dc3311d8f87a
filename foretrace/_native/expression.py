"""Expressions for one array element as a function of its index.

An expression belongs to an index space, the shape of the array that it describes. Slicing,
transposing, repeating or reshaping an array only changes the strides of the loads in its
expression, and costs nothing.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from foretrace._graph.real_valued import NotExportable


class CType(NamedTuple):
    """Name of a type in C, and name of the memory of its arrays in a context."""

    name: str
    pool: str


C_TYPES = {
    "float32": CType("float", "f"),
    "float64": CType("double", "d"),
    "int32": CType("int32_t", "i"),
    "int64": CType("int64_t", "l"),
    "bool": CType("uint8_t", "b"),
    "uint8": CType("uint8_t", "b"),
    "int8": CType("int8_t", "c"),
    "uint32": CType("uint32_t", "u"),
}
"""C type of each dtype."""

POOLS = {found.pool: np.dtype(name) for name, found in C_TYPES.items()}
"""Type of the numbers in each memory."""


def c_type(dtype: Any) -> str:
    """Return the C type of a dtype.

    Raises:
        NotExportable: C has no such type, for example bfloat16.
    """
    return _type(dtype).name


def pool(dtype: Any) -> str:
    """Return the name of the memory for arrays of a dtype."""
    return _type(dtype).pool


def _type(dtype: Any) -> CType:
    found = C_TYPES.get(str(np.dtype(dtype)))
    if found is None:
        raise NotExportable(
            f"the step computes with {np.dtype(dtype)}, which has no type in C99; use float32"
        )
    return found


class Array:
    """An array of the C program, contiguous in row-major order. Two arrays are never equal.

    Args:
        size: number of elements.
        dtype: dtype of the elements.
        place: "state", "next", "scratch", "constant", "input" or "output".
        name: name of the state, input or output.
    """

    def __init__(self, size: int, dtype: Any, place: str, name: str = ""):
        self.size, self.dtype, self.place, self.name = size, np.dtype(dtype), place, name
        self.value: np.ndarray | None = None


class Load(NamedTuple):
    """The element `offset + index . strides` of an array.

    Args:
        array: array that is read, or that a loop writes.
        offset: position of the first element.
        strides: distance in elements along each axis of the index space.
        picks: computed parts of the position. Each has an index, the largest allowed index, and the
            distance between indices. An index outside of the allowed range is replaced by the
            nearest allowed one.
    """

    array: Array
    offset: int
    strides: tuple[int, ...]
    picks: tuple[tuple["Expression", int, int], ...] = ()


class Number(NamedTuple):
    """A constant."""

    value: Any
    dtype: np.dtype


class Index(NamedTuple):
    """The integer `offset + index . strides`."""

    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype


class Apply(NamedTuple):
    """An operator on the elements of other expressions.

    Args:
        text: C expression with a placeholder for each operand, such as "({0} + {1})".
        operands: operands of the expression.
        dtype: dtype of the result.
        cost: estimate of the time, in additions.
    """

    text: str
    operands: tuple["Expression", ...]
    dtype: np.dtype
    cost: int


Expression = Load | Number | Index | Apply


class Value(NamedTuple):
    """An array, given by the expression of an element as a function of its index.

    Args:
        expression: expression of one element.
        shape: shape of the array, the index space.
    """

    expression: Expression
    shape: tuple[int, ...]


def dtype_of(expression: Expression) -> np.dtype:
    """Return the dtype of an expression."""
    return expression.array.dtype if isinstance(expression, Load) else expression.dtype


def contiguous(array: Array, shape: tuple[int, ...]) -> Load:
    """Return the load of a whole array."""
    return Load(array, 0, row_major(shape))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


Move = Callable[[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]


def moved(expression: Expression, move: Move) -> Expression:
    """Return an expression in another index space, where `move` maps the index of each load."""
    if isinstance(expression, Apply):
        return expression._replace(
            operands=tuple(moved(operand, move) for operand in expression.operands)
        )
    if isinstance(expression, Number):
        return expression
    offset, strides = move(expression.offset, expression.strides)
    if isinstance(expression, Load):
        picks = tuple(
            (moved(index, move), last, stride) for index, last, stride in expression.picks
        )
        return expression._replace(offset=offset, strides=strides, picks=picks)
    return expression._replace(offset=offset, strides=strides)


def leaves(expression: Expression) -> Iterator[Load | Index]:
    """Yield the loads and the indices in an expression."""
    if isinstance(expression, Apply):
        for operand in expression.operands:
            yield from leaves(operand)
    elif not isinstance(expression, Number):
        yield expression
        for index, _, _ in getattr(expression, "picks", ()):
            yield from leaves(index)


def loads(expression: Expression) -> Iterator[Load]:
    """Yield the loads in an expression."""
    return (leaf for leaf in leaves(expression) if isinstance(leaf, Load))


def cost(expression: Expression) -> int:
    """Return an estimate of the time of one element, in additions. Loads count as zero."""
    if not isinstance(expression, Apply):
        return 0
    return expression.cost + sum(map(cost, expression.operands))


def broadcast(value: Value, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Value:
    """Return an array repeated along new axes, with its old axes at `dimensions`."""

    def move(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        new = [0] * len(shape)
        for axis, stride, size in zip(dimensions, strides, value.shape, strict=True):
            new[axis] = stride if size == shape[axis] else 0
        return offset, tuple(new)

    return Value(moved(value.expression, move), shape)


def transposed(value: Value, order: tuple[int, ...]) -> Value:
    """Return an array with its axes in another order."""

    def move(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return offset, tuple(strides[axis] for axis in order)

    return Value(moved(value.expression, move), tuple(value.shape[axis] for axis in order))


def sliced(
    value: Value, starts: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...]
) -> Value:
    """Return `sizes` elements from `starts` along the axes; steps may be negative."""

    def move(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))
        return offset, tuple(step * stride for step, stride in zip(steps, strides, strict=True))

    return Value(moved(value.expression, move), sizes)


def cut(value: Value, axis: int, start: int, size: int) -> Value:
    """Return a slice along one axis."""
    starts, sizes = [0] * len(value.shape), list(value.shape)
    starts[axis], sizes[axis] = start, size
    return sliced(value, tuple(starts), tuple(sizes), (1,) * len(sizes))


def reshaped(value: Value, shape: tuple[int, ...]) -> Value | None:
    """Return an array in another shape, or None if strides cannot express it."""
    groups = _groups(value.shape, shape)
    possible = all(
        _merged(tuple(leaf.strides[axis] for axis in old), tuple(value.shape[axis] for axis in old))
        is not None
        for leaf in leaves(value.expression)
        for old, _ in groups
    )
    if not possible:
        return None

    def move(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        new = [0] * len(shape)
        for old_axes, new_axes in groups:
            stride = _merged(
                tuple(strides[a] for a in old_axes), tuple(value.shape[a] for a in old_axes)
            )
            assert stride is not None
            for axis in reversed(new_axes):
                new[axis] = stride
                stride *= shape[axis]
        return offset, tuple(new)

    return Value(moved(value.expression, move), shape)


def _merged(strides: tuple[int, ...], sizes: tuple[int, ...]) -> int | None:
    """Return the stride of several axes as one axis; None if they are not contiguous."""
    inner: int | None = None
    length = 1
    for stride, size in zip(reversed(strides), reversed(sizes), strict=True):
        if size == 1:
            continue
        if inner is None:
            inner = stride
        elif stride != inner * length:
            return None
        length *= size
    return inner or 0


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of old and new axes that have the same elements."""
    if 0 in old:
        return [(list(range(len(old))), list(range(len(new))))]
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right = [i] if i < len(old) else [], [j] if j < len(new) else []
        a, b = (old[i] if left else 1), (new[j] if right else 1)
        i, j = i + len(left), j + len(right)
        while a != b:
            if a < b:
                a, left, i = a * old[i], [*left, i], i + 1
            else:
                b, right, j = b * new[j], [*right, j], j + 1
        groups.append((left, right))
    return groups
