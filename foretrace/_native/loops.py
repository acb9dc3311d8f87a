"""Loops of the C program. Each loop computes one array, or reduces its elements."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from foretrace._native.expression import Array, Expression, Load, leaves, loads, moved

Combine = Literal[
    "store",
    "put",
    "sum",
    "max",
    "min",
    "and",
    "or",
    "add",
    "running sum",
    "largest",
    "smallest",
]


class Loop(NamedTuple):
    """A loop nest that writes one array.

    Args:
        target: element that is written, in the index space of the kept axes. For a scatter, it has
            picks.
        expression: element that is computed, in the index space of the kept axes followed by the
            reduced axes.
        kept: sizes of the kept axes.
        reduced: sizes of the reduced axes.
        combine: use of the computed elements. "store" stores them. "put" overwrites existing
            elements, and "add" adds to them; both skip positions outside of the array. "largest"
            and "smallest" store the positions of the largest or smallest elements along the last
            axis. All others reduce.
    """

    target: Load
    expression: Expression
    kept: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    combine: Combine = "store"

    @property
    def reads(self) -> list[Array]:
        """The arrays that the loop reads."""
        found = [load.array for load in loads(self.expression)]
        for index, _, _ in self.target.picks:
            found += [load.array for load in loads(index)]
        if self.combine in ("add", "put"):
            found.append(self.target.array)
        return found

    def expression_loads(self) -> list[Load]:
        """Return the loads in the expression."""
        return list(loads(self.expression))

    @property
    def num_elements(self) -> int:
        """Number of elements that are computed."""
        return math.prod(self.kept) * math.prod(self.reduced)


def simplified(loop: Loop) -> Loop:
    """Return a loop without axes of size one, and with contiguous axes merged."""
    if loop.combine in ("running sum", "largest", "smallest"):
        return loop
    size = len(loop.kept)
    kept = _groups(loop, range(size))
    reduced = _groups(loop, range(size, size + len(loop.reduced)))
    sizes = (*loop.kept, *loop.reduced)

    target = moved(
        loop.target, lambda offset, strides: (offset, tuple(strides[group[-1]] for group in kept))
    )
    assert isinstance(target, Load)
    return Loop(
        target,
        moved(
            loop.expression,
            lambda offset, strides: (offset, tuple(strides[g[-1]] for g in [*kept, *reduced])),
        ),
        tuple(math.prod(sizes[axis] for axis in group) for group in kept),
        tuple(math.prod(sizes[axis] for axis in group) for group in reduced),
        loop.combine,
    )


def _groups(loop: Loop, axes: Any) -> list[list[int]]:
    """Return the axes of more than one element, in groups that can be merged."""
    sizes = (*loop.kept, *loop.reduced)
    found: list[list[int]] = []
    for axis in axes:
        if sizes[axis] == 1:
            continue
        if found and _joins(loop, found[-1][-1], axis, sizes[axis]):
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def _joins(loop: Loop, before: int, axis: int, size: int) -> bool:
    everywhere = list(leaves(loop.expression))
    if axis < len(loop.kept):
        everywhere.append(loop.target)
        for index, _, _ in loop.target.picks:
            everywhere += leaves(index)
    return all(leaf.strides[before] == leaf.strides[axis] * size for leaf in everywhere)


def start_of(combine: Combine, dtype: Any) -> str:
    """Return the initial value of a reduction in C."""
    dtype = np.dtype(dtype)
    if combine == "and":
        return "1"
    if combine in ("sum", "or", "running sum"):
        return "0"
    sign = "-" if combine == "max" else ""
    if np.issubdtype(dtype, np.floating):
        return f"{sign}INFINITY"
    info = np.iinfo(dtype)
    return f"({info.min + 1} - 1)" if sign and info.min < 0 else str(info.min if sign else info.max)
