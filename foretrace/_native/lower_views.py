"""Operations that move elements without computing."""

from typing import Any

import numpy as np

from foretrace._native.expression import (
    Index,
    Value,
    sliced,
    transposed,
)
from foretrace._native.join import Joined
from foretrace._native.lower import Lowering, Rule


def _broadcast(lowering: Lowering, eqn: Any) -> Value:
    dimensions = tuple(map(int, eqn.params["broadcast_dimensions"]))
    return lowering.repeated(lowering.read(eqn.invars[0]), eqn.outvars[0].aval.shape, dimensions)


def _reshape(lowering: Lowering, eqn: Any) -> Value:
    return lowering.in_shape(lowering.read(eqn.invars[0]), eqn.outvars[0].aval.shape)


def _slice(lowering: Lowering, eqn: Any) -> Value:
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    value = lowering.operand(eqn.invars[0])
    if isinstance(value, Joined) and set(steps) == {1}:
        start, end = starts[value.axis], ends[value.axis]
        found = value.part(start, end - start)
        # The slice covers the other axes completely.
        if found is not None and found.shape == eqn.outvars[0].aval.shape:
            return found
    return sliced(
        lowering.read(eqn.invars[0]), tuple(starts), eqn.outvars[0].aval.shape, tuple(steps)
    )


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


def _iota(lowering: Lowering, eqn: Any) -> Value:
    out = eqn.outvars[0].aval
    strides = tuple(int(axis == eqn.params["dimension"]) for axis in range(len(out.shape)))
    return Value(Index(0, strides, np.dtype(out.dtype)), out.shape)


MOVING: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "iota": _iota,
    **dict.fromkeys(("reshape", "expand_dims", "squeeze"), _reshape),
    "rev": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
"""Functions that lower operations which move elements."""
