"""A traced step as loops: a value that is used once is inlined, other values get loops.

view             slice, transpose, broadcast, reshape …    strides of loads, no code
element          add, mul, exp …                           part of the loop that uses it
sum, product     reduce_sum, dot_general …                 a loop
join             concatenate                               parts in one array, or kept separate
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as core
import numpy as np

from foretrace._native.elements import element
from foretrace._native.expression import (
    Array,
    Load,
    Number,
    Value,
    broadcast,
    contiguous,
    cost,
    cut,
    dtype_of,
    loads,
    reshaped,
    row_major,
)
from foretrace._native.join import Joined
from foretrace._native.loops import Loop, simplified

Rule = Callable[["Lowering", Any], Any]
"""Function that lowers an operation: it appends loops, and returns the value of each result."""

VIEWS = {
    "broadcast_in_dim",
    "expand_dims",
    "reshape",
    "rev",
    "slice",
    "squeeze",
    "transpose",
}
"""Operations that only change the index."""


MAX_OUTER = 6
"""Largest number of times that the elements of an outer product are computed."""


class Lowering:
    """Translation of the equations of a traced step into loops.

    Args:
        jaxpr: traced step of real arrays, without loops.
        constants: values of the step's constants.
        arguments: array of each argument.
        wanted: array in which a variable should be stored, if possible.
        rules: functions that lower operations which are not elementwise, by name.
    """

    def __init__(
        self,
        jaxpr: Any,
        constants: Sequence[Any],
        arguments: Sequence[Array],
        wanted: dict[Any, Array],
        rules: dict[str, Rule],
    ):
        self.loops: list[Loop] = []
        self.wanted = dict(wanted)
        self._rules = rules
        self.uses = _uses(jaxpr)
        self.values: dict[Any, Value | Joined] = {}
        for variable, array in zip(jaxpr.invars, arguments, strict=True):
            self.values[variable] = Value(
                contiguous(array, variable.aval.shape), variable.aval.shape
            )
        for variable, constant in zip(jaxpr.constvars, constants, strict=True):
            self.values[variable] = _constant(np.asarray(constant))
        for eqn in jaxpr.eqns:
            self._lower(eqn)

    def _lower(self, eqn: Any) -> None:
        name, (out, *_) = eqn.primitive.name, eqn.outvars
        if len(eqn.outvars) == 1 and 0 in out.aval.shape:
            self.values[out] = Value(Number(0, np.dtype(out.aval.dtype)), out.aval.shape)
            return
        found = self._rules[name](self, eqn) if name in self._rules else self._element(eqn)
        values = found if isinstance(found, list) else [found]
        self.values |= dict(zip(eqn.outvars, values, strict=True))

    def _element(self, eqn: Any) -> Value | Joined:
        out, shape = eqn.outvars[0], eqn.outvars[0].aval.shape
        read = [self.operand(atom) for atom in eqn.invars]
        if any(isinstance(value, Joined) for value in read):
            joined = self._of_parts(eqn, read)
            if joined is not None:
                return joined
        operands = [self._spread(self.read(atom), shape) for atom in eqn.invars]
        return self.stored_if_needed(out, self._applied(eqn, operands, shape))

    def _applied(self, eqn: Any, operands: Sequence[Value], shape: tuple[int, ...]) -> Value:
        expressions, dtype = [one.expression for one in operands], eqn.outvars[0].aval.dtype
        return Value(element(eqn.primitive.name, expressions, eqn.params, dtype), shape)

    def _of_parts(self, eqn: Any, read: Sequence[Value | Joined]) -> Joined | None:
        """Return an operation applied to each part of joined arrays; None if that saves no work."""
        out, name = eqn.outvars[0], eqn.primitive.name
        joined = [value for value in read if isinstance(value, Joined)]
        axis, ends = joined[0].axis, sorted({end for one in joined for end in one.ends()})
        alike = all(one.axis == axis and one.shape == out.aval.shape for one in joined)
        simple = name in ("square", "is_finite") and self.uses[out] == 1
        if not alike or not (simple or any(one.has_zeros() for one in joined)):
            return None
        parts = []
        for start, end in zip([0, *ends], ends, strict=False):
            shape = (*out.aval.shape[:axis], end - start, *out.aval.shape[axis + 1 :])
            operands = [self._spread(_part(value, axis, start, end), shape) for value in read]
            part = self._applied(eqn, operands, shape)
            parts.append(part if self.uses[out] <= _worth(part) else self.stored(part))
        return Joined(tuple(parts), axis, out.aval.shape)

    def _spread(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return a scalar, or an array with axes of size one, broadcast to a shape."""
        if value.shape == shape or isinstance(value.expression, Number):
            return Value(value.expression, shape)
        return self.repeated(value, shape, tuple(range(len(value.shape))))

    def repeated(self, value: Value, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Value:
        """Return an array repeated along new axes. An expensive array is stored first."""
        times = math.prod(shape) // max(math.prod(value.shape), 1)
        return broadcast(self.cheap(value, times), shape, dimensions)

    def stored_if_needed(self, variable: Any, value: Value) -> Value:
        """Return a value inline if it is cheap or used once; otherwise store it."""
        if variable not in self.wanted and self.uses[variable] <= _worth(value):
            return value
        return self.stored(value, self.target(variable))

    def target(self, variable: Any) -> Array:
        """Return the array for a variable: the requested array, or a new one."""
        array = self.wanted.pop(variable, None)
        if array is not None:
            return array
        return Array(math.prod(variable.aval.shape), variable.aval.dtype, "scratch")

    def stored(self, value: Value, array: Array | None = None) -> Value:
        """Return the load of the array in which a value is stored."""
        if array is None:
            if isinstance(value.expression, Load) and not value.expression.picks:
                return value
            array = self._new(value)
        target = contiguous(array, value.shape)
        if value.expression != target:
            self.add(Loop(target, value.expression, value.shape))
        return Value(target, value.shape)

    def _new(self, value: Value) -> Array:
        return Array(math.prod(value.shape), dtype_of(value.expression), "scratch")

    def add(self, loop: Loop) -> None:
        """Append a simplified loop."""
        if loop.num_elements:
            self.loops.append(simplified(loop))

    def operand(self, atom: Any) -> Value | Joined:
        """Return an operand without storing it: one array, or joined parts."""
        return self.read(atom) if isinstance(atom, core.Literal) else self.values[atom]

    def read(self, atom: Any) -> Value:
        """Return the value of an operand. Joined parts are stored in one array."""
        if isinstance(atom, core.Literal):
            aval: Any = atom.aval
            return _constant(np.asarray(atom.val, aval.dtype))
        value = self.values[atom]
        if isinstance(value, Joined):
            value = self.values[atom] = self._stored_parts(value, self.target(atom))
        return value

    def _stored_parts(self, joined: Joined, array: Array) -> Value:
        whole = Value(contiguous(array, joined.shape), joined.shape)
        for part, end in zip(joined.parts, joined.ends(), strict=True):
            size = part.shape[joined.axis]
            piece = cut(whole, joined.axis, end - size, size).expression
            assert isinstance(piece, Load)
            self.add(Loop(piece, part.expression, part.shape))
        return whole

    def in_shape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return a value in another shape, stored first if its elements are not contiguous."""
        found = reshaped(value, shape)
        if found is None:
            found = reshaped(self.stored(value, self._new(value)), shape)
        assert found is not None
        return found

    def cheap(self, value: Value, times: int) -> Value:
        """Return a value that can be read several times. An expensive value is stored."""
        return self.stored(value) if times > 1 and cost(value.expression) > 0 else value


def _part(value: Value | Joined, axis: int, start: int, end: int) -> Value:
    if isinstance(value, Joined):
        found = value.part(start, end - start)
        assert found is not None
        return found
    if len(value.shape) <= axis or value.shape[axis] == 1:
        return value
    return cut(value, axis, start, end - start)


def _worth(value: Value) -> float:
    """Return the number of uses above which storing a value is cheaper than computing it again.

    An outer product is computed from two short arrays, while a stored one would take much memory.
    """
    effort = cost(value.expression)
    if effort == 0:
        return math.inf
    read = sum({load.array: load.array.size for load in loads(value.expression)}.values())
    return MAX_OUTER if effort <= 2 and 4 * read <= math.prod(value.shape) else 1


def _constant(value: np.ndarray) -> Value:
    if value.size and (value == value.flat[0]).all():
        return Value(Number(value.flat[0].item(), value.dtype), value.shape)
    array = Array(value.size, value.dtype, "constant")
    array.value = value
    return Value(Load(array, 0, row_major(value.shape)), value.shape)


def _uses(jaxpr: Any) -> Counter[Any]:
    """Return how often each variable is read.

    A read by a view or a concatenation counts as often as the result is read.
    """
    uses: Counter[Any] = Counter(
        atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)
    )
    for eqn in reversed(jaxpr.eqns):
        through = eqn.primitive.name in VIEWS or eqn.primitive.name == "concatenate"
        times = sum(uses[out] for out in eqn.outvars) if through else 1
        for atom in eqn.invars:
            if not isinstance(atom, core.Literal):
                uses[atom] += times
    return uses
