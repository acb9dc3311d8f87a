"""Table of JAX's operations in ONNX. All shapes are known, so they are constants of the graph."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from foretrace._export.onnx_nodes import Nodes
from foretrace._graph.operations import OPERATIONS
from foretrace._graph.picking import Picking, picking
from foretrace._graph.real_valued import NotExportable

_REDUCTIONS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}


def _like(eqn: Any, value: float) -> np.ndarray:
    return np.array(value, eqn.invars[0].aval.dtype)


def _expm1(nodes: Nodes, eqn: Any, x: str) -> str:
    # tanh(x / 2) (exp(x) + 1), which does not cancel for small x.
    half = nodes.add("Mul", x, nodes.constant(_like(eqn, 0.5)))
    grown = nodes.add("Add", nodes.add("Exp", x), nodes.constant(_like(eqn, 1)))
    return nodes.add("Mul", nodes.add("Tanh", half), grown)


def _log1p(nodes: Nodes, eqn: Any, x: str) -> str:
    # log(u) x / (u - 1), where u is 1 + x rounded; this corrects the rounding error (Kahan).
    one = nodes.constant(_like(eqn, 1))
    u = nodes.add("Add", x, one)
    corrected = nodes.add("Mul", nodes.add("Log", u), nodes.add("Div", x, nodes.add("Sub", u, one)))
    return nodes.add("Where", nodes.add("Equal", u, one), x, corrected)


def _is_finite(nodes: Nodes, eqn: Any, x: str) -> str:
    return nodes.add("Less", nodes.add("Abs", x), nodes.constant(_like(eqn, np.inf)))


def _select(nodes: Nodes, eqn: Any, which: str, *cases: str) -> str:
    found = cases[0]
    for place, case in enumerate(cases[1:], 1):
        is_it = (
            which
            if len(cases) == 2
            else nodes.add("Equal", which, nodes.constant(_like(eqn, place)))
        )
        found = nodes.add("Where", is_it, case, found)
    return found


def _integer_power(nodes: Nodes, eqn: Any, x: str) -> str:
    y = eqn.params["y"]
    if y == -1:
        return nodes.add("Reciprocal", x)
    if y == 2:
        return nodes.add("Mul", x, x)
    return nodes.add("Pow", x, nodes.constant(_like(eqn, y)))


def _cast(nodes: Nodes, eqn: Any, x: str) -> str:
    return nodes.add("Cast", x, to=nodes.dtype(eqn.params["new_dtype"]))


def _plain(operator: str) -> Callable[..., str]:
    return lambda nodes, eqn, *operands: nodes.add(operator, *operands)


ELEMENTWISE: dict[str, Callable[..., str]] = {
    **{name: _plain(operation.onnx) for name, operation in OPERATIONS.items() if operation.onnx},
    "convert_element_type": _cast,
    "expm1": _expm1,
    "integer_pow": _integer_power,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "log2": lambda nodes, eqn, x: nodes.add(
        "Div", nodes.add("Log", x), nodes.constant(_like(eqn, math.log(2)))
    ),
    "ne": lambda nodes, eqn, a, b: nodes.add("Not", nodes.add("Equal", a, b)),
    "rem": lambda nodes, eqn, a, b: nodes.add("Mod", a, b, fmod=1),
    "rsqrt": lambda nodes, eqn, x: nodes.add("Reciprocal", nodes.add("Sqrt", x)),
    "select_n": _select,
    "square": lambda nodes, eqn, x: nodes.add("Mul", x, x),
}
"""Operations on each element; smaller operands are broadcast as in NumPy."""


def reshaped(nodes: Nodes, x: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
    """Return an array in another shape, or the array itself if the shape is the same."""
    if tuple(old) == tuple(new):
        return x
    # A size of zero would mean "as before"; under a credit depth there are arrays without elements.
    zero = {"allowzero": 1} if 0 in new else {}
    return nodes.add("Reshape", x, nodes.integers(new), **zero)


def _reshape(nodes: Nodes, eqn: Any, x: str, *_: str) -> str:
    return reshaped(nodes, x, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape)


def _transposed(nodes: Nodes, x: str, order: Any) -> str:
    order = [int(i) for i in order]
    return x if order == sorted(order) else nodes.add("Transpose", x, perm=order)


def _slice(nodes: Nodes, eqn: Any, x: str) -> str:
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    return nodes.add("Slice", x, *map(nodes.integers, (starts, ends, range(len(starts)), steps)))


def _reverse(nodes: Nodes, eqn: Any, x: str) -> str:
    axes = eqn.params["dimensions"]
    ends = [np.iinfo(np.int64).min] * len(axes)
    return nodes.add(
        "Slice", x, *map(nodes.integers, ([-1] * len(axes), ends, axes, [-1] * len(axes)))
    )


def _reduce(nodes: Nodes, eqn: Any, x: str) -> str:
    if not eqn.params["axes"]:
        # In ONNX, an empty list of axes means all axes.
        return x
    axes = nodes.integers(eqn.params["axes"])
    return nodes.add(_REDUCTIONS[eqn.primitive.name], x, axes, keepdims=0)


def _reduce_booleans(nodes: Nodes, eqn: Any, x: str) -> str:
    operator = "ReduceMin" if eqn.primitive.name == "reduce_and" else "ReduceMax"
    numbers = nodes.add("Cast", x, to=nodes.dtype(np.int32))
    found = nodes.add(operator, numbers, nodes.integers(eqn.params["axes"]), keepdims=0)
    return nodes.add("Cast", found, to=nodes.dtype(np.bool_))


def _argmax(nodes: Nodes, eqn: Any, x: str) -> str:
    (axis,) = eqn.params["axes"]
    return nodes.add(
        "Cast",
        nodes.add("ArgMax", x, axis=axis, keepdims=0),
        to=nodes.dtype(eqn.params["index_dtype"]),
    )


def _dot_general(nodes: Nodes, eqn: Any, a: str, b: str) -> str:
    """Write a product over any axes as (batch, free, summed) times (batch, summed, free)."""
    (sum_a, sum_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    shape_a, shape_b = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    free_a = [i for i in range(len(shape_a)) if i not in (*sum_a, *batch_a)]
    free_b = [i for i in range(len(shape_b)) if i not in (*sum_b, *batch_b)]

    def size(shape: tuple[int, ...], axes: Any) -> int:
        return int(np.prod([shape[i] for i in axes], dtype=np.int64))

    front = tuple(shape_a[i] for i in batch_a)
    summed = size(shape_a, sum_a)
    order_a, order_b = [*batch_a, *free_a, *sum_a], [*batch_b, *sum_b, *free_b]
    a, b = _transposed(nodes, a, order_a), _transposed(nodes, b, order_b)
    rows, columns = (*front, size(shape_a, free_a), summed), (*front, summed, size(shape_b, free_b))
    a = reshaped(nodes, a, tuple(shape_a[i] for i in order_a), rows)
    b = reshaped(nodes, b, tuple(shape_b[i] for i in order_b), columns)
    product = nodes.add("MatMul", a, b)
    return reshaped(nodes, product, (*front, rows[-2], columns[-1]), eqn.outvars[0].aval.shape)


def _picking(eqn: Any) -> tuple[Picking, list[int]]:
    """Return the axes of a gather or scatter, and the indexed axes in order."""
    found, shape = picking(eqn), eqn.invars[0].aval.shape
    front = sorted({*found.batching, *found.index_map})
    if {*found.whole} & {*front} or any(found.sizes[axis] != shape[axis] for axis in found.whole):
        raise NotExportable("picking a part of an axis by indices has no form here")
    return found, front


def _positions(nodes: Nodes, eqn: Any, indices: str, pick: Picking, front: list[int]) -> str:
    """Return each element's position on the indexed axes, for GatherND and ScatterND."""
    shape = eqn.invars[1].aval.shape
    columns, wide = [], nodes.add("Cast", indices, to=nodes.dtype(np.int64))
    for axis in front:
        if axis in pick.index_map:
            place = pick.index_map.index(axis)
            columns.append(
                nodes.add(
                    "Slice", wide, *map(nodes.integers, ([place], [place + 1], [len(shape) - 1]))
                )
            )
        else:
            along = pick.indices_batching[pick.batching.index(axis)]
            count = np.arange(shape[along]).reshape(
                [-1 if i == along else 1 for i in range(len(shape))]
            )
            columns.append(
                nodes.constant(np.broadcast_to(count, (*shape[:-1], 1)).astype(np.int64))
            )
    return columns[0] if len(columns) == 1 else nodes.add("Concat", *columns, axis=len(shape) - 1)


def _gather(nodes: Nodes, eqn: Any, x: str, indices: str) -> str:
    pick, front = _picking(eqn)
    rows = _positions(nodes, eqn, indices, pick, front)
    found = nodes.add("GatherND", _transposed(nodes, x, [*front, *pick.whole]), rows)
    # Picked axes are in front here; the other axes go to their places in the result.
    return _transposed(nodes, found, np.argsort(_behind(eqn.outvars[0], pick)))


def _scatter_add(nodes: Nodes, eqn: Any, x: str, indices: str, updates: str) -> str:
    pick, front = _picking(eqn)
    updates = _transposed(nodes, updates, _behind(eqn.invars[2], pick))
    order, rows = [*front, *pick.whole], _positions(nodes, eqn, indices, pick, front)
    found = nodes.add("ScatterND", _transposed(nodes, x, order), rows, updates, reduction="add")
    return _transposed(nodes, found, np.argsort(order))


def _behind(elements: Any, pick: Picking) -> list[int]:
    """Return the axes of an array of elements, with the window axes last."""
    axes = range(len(elements.aval.shape))
    return [*(axis for axis in axes if axis not in pick.window), *pick.window]


def _window(nodes: Nodes, eqn: Any, sizes: tuple[int, ...], starts: tuple[str, ...]) -> str:
    """Return the positions of a slice with a computed start, moved to lie inside the array."""
    shape = eqn.invars[0].aval.shape
    wide = [nodes.add("Cast", start, to=nodes.dtype(np.int64)) for start in starts]
    first = nodes.add(
        "Concat", *(nodes.add("Reshape", start, nodes.integers([1])) for start in wide), axis=0
    )
    last = nodes.integers(whole - size for whole, size in zip(shape, sizes, strict=True))
    first = nodes.add("Min", nodes.add("Max", first, nodes.integers([0])), last)
    return nodes.add(
        "Add", first, nodes.constant(np.moveaxis(np.indices(sizes), 0, -1).astype(np.int64))
    )


def _dynamic_slice(nodes: Nodes, eqn: Any, x: str, *starts: str) -> str:
    return nodes.add("GatherND", x, _window(nodes, eqn, eqn.params["slice_sizes"], starts))


def _dynamic_update(nodes: Nodes, eqn: Any, x: str, update: str, *starts: str) -> str:
    return nodes.add("ScatterND", x, _window(nodes, eqn, eqn.invars[1].aval.shape, starts), update)


def _cumulative_sum(nodes: Nodes, eqn: Any, x: str) -> str:
    axis = nodes.constant(np.array(eqn.params["axis"], np.int64))
    return nodes.add("CumSum", x, axis, reverse=int(eqn.params["reverse"]))


OTHERS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("expand_dims", "reshape", "squeeze"), _reshape),
    "argmax": _argmax,
    "concatenate": lambda nodes, eqn, *xs: nodes.add("Concat", *xs, axis=eqn.params["dimension"]),
    "cumsum": _cumulative_sum,
    "dot_general": _dot_general,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "reduce_and": _reduce_booleans,
    "reduce_max": _reduce,
    "reduce_min": _reduce,
    "reduce_or": _reduce_booleans,
    "reduce_sum": _reduce,
    "rev": _reverse,
    "scatter-add": _scatter_add,
    "slice": _slice,
    "transpose": lambda nodes, eqn, x: _transposed(nodes, x, eqn.params["permutation"]),
}
"""Operations that move, join or add up elements."""
