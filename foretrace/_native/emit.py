"""Groups of loops as C99 text."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from foretrace._native.expression import (
    Apply,
    Array,
    Expression,
    Index,
    Load,
    Number,
    c_type,
    leaves,
)
from foretrace._native.loops import Loop, start_of
from foretrace._native.schedule import Group

MAX_ROW = 64
"""Largest length of a row for which sums over rows are kept in variables."""

Address = Callable[[Array], str]
"""Function that returns the C pointer to an array's first element, such as `w_f + 16`."""


def number(value: Any, dtype: Any) -> str:
    """Return a C literal that is exactly equal to a number.

    >>> number(0.1, "float32"), number(3, "int32"), number(float("inf"), "float64")
    ('0.1f', '3', 'INFINITY')
    """
    dtype = np.dtype(dtype)
    if not np.issubdtype(dtype, np.floating):
        return str(int(value)) if int(value) > -(2**31) else f"({int(value) + 1} - 1)"
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    write = (
        np.format_float_positional
        if value == 0 or 1e-4 <= abs(value) < 1e6
        else np.format_float_scientific
    )
    text = write(dtype.type(value), unique=True, trim="0")
    text += "f" if dtype == np.float32 else ""
    return f"({text})" if text.startswith("-") else text


class Emitter:
    """Writer of loops in C.

    Args:
        address: function that returns the C pointer to an array.
    """

    def __init__(self, address: Address):
        self.address = address
        self._names: dict[Array, str] = {}
        self._count = 0

    def scalar(self, array: Array) -> str | None:
        """Return the C variable of a scratch array if it has one element; None for other arrays."""
        if array.place != "scratch" or array.size != 1:
            return None
        if array not in self._names:
            self._names[array] = f"t{len(self._names)}"
        return self._names[array]

    def declarations(self) -> list[str]:
        """Return the declarations of the C variables."""
        return [f"{c_type(array.dtype)} {name};" for array, name in self._names.items()]

    def group(self, group: Group) -> list[str]:
        """Return the C statements of a group."""
        first = group.loops[0]
        if len(group.loops) == 1 and (first.combine != "store" or first.target.picks):
            return self._alone(first)
        return self._together(group)

    def _together(self, group: Group) -> list[str]:
        first = group.loops[0]
        shape = first.kept or first.reduced
        names = _names("i", shape)
        before, body, after = [], [], []
        known: dict[Load, str] = {}
        for loop in group.loops:
            if loop.combine == "store":
                body += self._stored(group, loop, names, known)
                continue
            name, kind = self._variable(), c_type(loop.target.array.dtype)
            before.append(f"{kind} {name} = {start_of(loop.combine, loop.target.array.dtype)};")
            body.append(_accumulate(loop, name, self.text(loop.expression, names, known)))
            after.append(f"{self.place(loop.target, [])} = {name};")
        lines = [*before, *nest(names, shape, body), *after]
        return ["{", *_indented(lines), "}"] if before else lines

    def _stored(
        self, group: Group, loop: Loop, names: list[str], known: dict[Load, str]
    ) -> list[str]:
        """Return statements that compute an element; a value that is read again gets a variable."""
        dtype = loop.target.array.dtype
        text = _as(dtype, self.text(loop.expression, names, known))
        inner = loop.target.array in group.inner
        if self.scalar(loop.target.array) or not (inner or _read_by_others(group, loop)):
            return [f"{self.place(loop.target, names)} = {text};"]
        name = known[loop.target] = self._variable()
        lines = [f"const {c_type(dtype)} {name} = {text};"]
        return lines if inner else [*lines, f"{self.place(loop.target, names)} = {name};"]

    def _alone(self, loop: Loop) -> list[str]:
        if loop.combine == "running sum":
            return self._running_sum(loop)
        if loop.combine in ("largest", "smallest"):
            return self._places_of_largest(loop)
        names, inner = _names("i", loop.kept), _names("k", loop.reduced)
        if loop.combine in ("add", "put", "store"):
            return nest(names, loop.kept, self._scattered(loop, names))
        if self._adds_rows(loop):
            return self._rows(loop, names, inner)
        dtype = loop.target.array.dtype
        step = _accumulate(loop, "total", self.text(loop.expression, [*names, *inner], {}))
        body = [
            f"{c_type(dtype)} total = {start_of(loop.combine, dtype)};",
            *nest(inner, loop.reduced, [step]),
            f"{self.place(loop.target, names)} = total;",
        ]
        return block(names, loop.kept, body)

    def _adds_rows(self, loop: Loop) -> bool:
        """Return whether a reduction adds contiguous rows."""
        if loop.combine != "sum" or not loop.kept:
            return False
        last, summed = len(loop.kept) - 1, len(loop.kept) + len(loop.reduced) - 1
        found = list(leaves(loop.expression))
        side_by_side = all(leaf.strides[summed] in (0, 1) for leaf in found)
        return (
            not side_by_side
            and all(leaf.strides[last] in (0, 1) for leaf in found)
            and loop.target.strides[last] == 1
            and loop.kept[last] >= 4
        )

    def _rows(self, loop: Loop, names: list[str], inner: list[str]) -> list[str]:
        """Return loops that add rows. The sums of short rows are kept in registers."""
        *outer, last = names
        size, kind = loop.kept[-1], c_type(loop.target.array.dtype)
        place = self.place(loop.target, names)
        text = self.text(loop.expression, [*names, *inner], {})
        total = f"row[{last}]" if size <= MAX_ROW else place
        lines = nest([last], (size,), [f"{total} = 0;"])
        lines += nest([*inner, last], (*loop.reduced, size), [f"{total} += {text};"])
        if size <= MAX_ROW:
            stored = nest([last], (size,), [f"{place} = {total};"])
            lines = [f"{kind} row[{size}];", *lines, *stored]
        return block(outer, loop.kept, lines)

    def _scattered(self, loop: Loop, names: list[str]) -> list[str]:
        text = self.text(loop.expression, names, {})
        if loop.combine == "store":
            return [f"{self.place(loop.target, names)} = {text};"]
        inside = " && ".join(
            f"{index} >= 0 && {index} <= {last}"
            for one, last, _ in loop.target.picks
            for index in [self.text(one, names, {})]
        )
        sign = "+=" if loop.combine == "add" else "="
        line = f"{self.place(loop.target, names)} {sign} {text};"
        return [f"if ({inside}) {line}" if inside else line]

    def _places_of_largest(self, loop: Loop) -> list[str]:
        """Return loops that find the positions of the largest elements; ties are kept in order."""
        *outer, count = loop.kept
        names, sign = _names("i", outer), ">" if loop.combine == "largest" else "<"

        def element(place: str) -> str:
            return self.text(loop.expression, [*names, "0", place], {})

        def kept(place: str) -> str:
            return self.place(loop.target, [*names, place])

        body = [
            f"int at = k0 < {count} ? k0 : {count};",
            f"for (; at > 0 && {element('k0')} {sign} {element(kept('(at - 1)'))}; --at)",
            f"    if (at < {count}) {kept('at')} = {kept('(at - 1)')};",
            f"if (at < {count}) {kept('at')} = k0;",
        ]
        return nest(names, outer, nest(["k0"], loop.reduced, body))

    def _running_sum(self, loop: Loop) -> list[str]:
        names = _names("i", loop.kept)
        text, place = self.text(loop.expression, names, {}), self.place(loop.target, names)
        step = [f"total += {text};", f"{place} = total;"]
        start = f"{c_type(loop.target.array.dtype)} total = 0;"
        return block(names[:-1], loop.kept, [start, *nest(names[-1:], loop.kept[-1:], step)])

    def place(
        self, load: Load, names: Sequence[str], known: Mapping[Load, str] = MappingProxyType({})
    ) -> str:
        """Return the C text of an array element, or its variable."""
        scalar = self.scalar(load.array)
        if scalar is not None:
            return scalar
        index = _sum(load.offset, load.strides, names)
        for one, last, stride in load.picks:
            inside = f"clamped({self.text(one, names, known)}, {last})"
            index = f"{index} + {inside}" + (f" * {stride}" if stride != 1 else "")
        return f"{self.address(load.array)}[{index}]"

    def text(self, expression: Expression, names: Sequence[str], known: Mapping[Load, str]) -> str:
        """Return the C text of an expression, with variables for loaded elements."""
        if isinstance(expression, Load):
            return known.get(expression) or self.place(expression, names, known)
        if isinstance(expression, Number):
            return number(expression.value, expression.dtype)
        if isinstance(expression, Index):
            index = _sum(expression.offset, expression.strides, names)
            return f"({c_type(expression.dtype)})({index})"
        assert isinstance(expression, Apply)
        return expression.text.format(
            *(self.text(operand, names, known) for operand in expression.operands)
        )

    def _variable(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _read_by_others(group: Group, loop: Loop) -> bool:
    return any(
        loop.target in other.expression_loads() for other in group.loops if other is not loop
    )


def _as(dtype: np.dtype, text: str) -> str:
    """Return an expression with a cast if C would compute it as int."""
    return f"({c_type(dtype)})({text})" if dtype.itemsize == 1 else text


def _accumulate(loop: Loop, name: str, text: str) -> str:
    """Return the statement that adds an element to a total."""
    dtype = loop.target.array.dtype
    if loop.combine == "sum":
        return f"{name} += {text};"
    if loop.combine in ("and", "or"):
        sign = "&" if loop.combine == "and" else "|"
        return f"{name} = {_as(dtype, f'{name} {sign} {text}')};"
    sign = ">" if loop.combine == "max" else "<"
    one = f"const {c_type(dtype)} one = {text};"
    return f"{{ {one} {name} = (one {sign} {name} || one != one) ? one : {name}; }}"


def _sum(offset: int, strides: Sequence[int], names: Sequence[str]) -> str:
    parts = [str(offset)] if offset else []
    for stride, name in zip(strides, names, strict=True):
        if stride:
            parts.append(name if stride == 1 else f"{stride} * {name}")
    return " + ".join(parts) or "0"


def nest(names: Sequence[str], sizes: Sequence[int], body: list[str]) -> list[str]:
    """Return loops around statements."""
    lines = body
    for name, size in reversed(list(zip(names, sizes, strict=True))):
        head = f"for (int {name} = 0; {name} < {size}; ++{name})"
        lines = [head, "{", *_indented(lines), "}"] if len(lines) > 1 else [f"{head} {lines[0]}"]
    return lines


def block(names: Sequence[str], sizes: Sequence[int], body: list[str]) -> list[str]:
    """Return nested loops around statements whose variables are local to them."""
    return nest(names, sizes[: len(names)], body) if names else ["{", *_indented(body), "}"]


def _names(letter: str, sizes: Sequence[int]) -> list[str]:
    return [f"{letter}{axis}" for axis in range(len(sizes))]


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]
