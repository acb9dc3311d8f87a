"""Operations on single elements as expressions in C."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretrace._graph.operations import DIVISION, OPERATIONS
from foretrace._graph.real_valued import NotExportable
from foretrace._native.expression import Apply, Expression, Number, c_type, dtype_of

_HELPERS = {
    "is_finite": "int is_finite{f}({t} x) {{ {u} b; memcpy(&b, &x, sizeof b); return (b & {mask}) "
    "!= {mask}; }}",
    "square": "{t} square{f}({t} x) {{ return x * x; }}",
    "sign": "{t} sign{f}({t} x) {{ return ({t})((x > 0) - (x < 0)); }}",
    "larger": "{t} larger{f}({t} a, {t} b) {{ return (a > b || a != a) ? a : b; }}",
    "smaller": "{t} smaller{f}({t} a, {t} b) {{ return (a < b || a != a) ? a : b; }}",
}
"""Definitions of C functions. `is_finite` reads bits, so that no compiler flag removes the test."""


def suffix(dtype: Any) -> str:
    """Return the suffix of C function names for a floating-point type."""
    return "f" if np.dtype(dtype) == np.float32 else ""


_CLAMPED = (
    "static inline int clamped(int64_t i, int last) { return i < 0 ? 0 : i > last ? last : "
    "(int)i; }"
)


def helper_names() -> list[str]:
    """Return the names of the C functions in `helpers` for doubles."""
    return [name for name, _ in helpers(np.float64)]


def helpers(dtype: Any) -> list[tuple[str, str]]:
    """Return name and definition of each C function, for a floating-point type."""
    words = (
        {"t": "float", "u": "uint32_t", "mask": "0x7f800000u"}
        if np.dtype(dtype) == np.float32
        else {"t": "double", "u": "uint64_t", "mask": "0x7ff0000000000000u"}
    )
    f = suffix(dtype)
    found = [
        (name + f, "static inline " + text.format(f=f, **words)) for name, text in _HELPERS.items()
    ]
    return found if f else [*found, ("clamped", _CLAMPED)]


def _plain(name: str, operands: Sequence[Expression], out: np.dtype) -> Apply:
    given, text = dtype_of(operands[0]), ""
    if (operator := OPERATIONS.get(name)) is not None:
        if given == np.bool_:
            text = operator.boolean
        elif np.issubdtype(given, np.integer):
            text = operator.integer
        else:
            # The number one of this type, such as 1.0f.
            one = "1.0f" if given == np.float32 else "1.0"
            text = operator.text.replace("{1f}", one).replace("{f}", suffix(given))
    if not operator or not text:
        raise NotExportable(
            f"the operation {name} has no form in C; choose another cell, loss or optimiser"
        )
    if np.issubdtype(given, np.floating):
        # A power may have an integer as its exponent.
        operands = [_convert([one], {}, given) for one in operands]
    return Apply(text, tuple(operands), out, operator.cost)


def _select(operands: Sequence[Expression], params: dict[str, Any], out: np.dtype) -> Expression:
    which, *cases = operands
    if isinstance(which, Number):
        return cases[int(which.value)]
    text = "{1}"
    for place in range(1, len(cases)):
        chosen = "{0}" if len(cases) == 2 else f"{{0}} == {place}"
        text = f"({chosen} ? {{{place + 1}}} : {text})"
    return Apply(text, (which, *cases), out, 1)


def _integer_power(
    operands: Sequence[Expression], params: dict[str, Any], out: np.dtype
) -> Expression:
    power, one = params["y"], Number(1, out)
    if power < 0:
        whole = _integer_power(operands, {"y": -power}, out)
        return Apply("({0} / {1})", (one, whole), out, DIVISION)
    if power == 0:
        return one
    if power == 1:
        return operands[0]
    half = _integer_power(operands, {"y": power // 2}, out)
    name = "square" + suffix(out) if np.issubdtype(out, np.floating) else None
    square = Apply(f"{name}({{0}})" if name else "({0} * {0})", (half,), out, 1)
    return square if power % 2 == 0 else Apply("({0} * {1})", (square, operands[0]), out, 1)


def _convert(operands: Sequence[Expression], params: dict[str, Any], out: np.dtype) -> Expression:
    (operand,) = operands
    if dtype_of(operand) == out:
        return operand
    if out == np.bool_:
        return Apply("({0} != 0)", (operand,), out, 1)
    return Apply(f"(({c_type(out)}){{0}})", (operand,), out, 1)


def _round(operands: Sequence[Expression], params: dict[str, Any], out: np.dtype) -> Expression:
    name = "rint" if params["rounding_method"] == 1 else "round"
    return Apply(name + suffix(out) + "({0})", tuple(operands), out, 1)


_OTHERS: dict[str, Callable[[Sequence[Expression], dict[str, Any], np.dtype], Expression]] = {
    "convert_element_type": _convert,
    "integer_pow": _integer_power,
    "round": _round,
    "select_n": _select,
}


def _known(name: str, operands: Sequence[Expression], out: np.dtype) -> Expression | None:
    """Return a sum with zero, or a product with zero or one, simplified; None for others."""
    if not np.issubdtype(out, np.floating) or name not in ("add", "add_any", "sub", "mul", "neg"):
        return None
    numbers = [one.value if isinstance(one, Number) else None for one in operands]
    if name == "neg":
        return None if numbers[0] is None else Number(-numbers[0], out)
    if name == "mul":
        if 0 in numbers:
            return Number(0.0, out)
        return operands[1 - numbers.index(1)] if 1 in numbers else None
    if numbers[1] == 0:
        return operands[0]
    return operands[1] if numbers[0] == 0 and name != "sub" else None


def element(
    name: str, operands: Sequence[Expression], params: dict[str, Any], out: Any
) -> Expression:
    """Return the C expression of an elementwise operation.

    Raises:
        NotExportable: the operation is not elementwise, or cannot be written in C for this type.
    """
    out = np.dtype(out)
    if (known := _known(name, operands, out)) is not None:
        return known
    if name in _OTHERS:
        return _OTHERS[name](operands, params, out)
    return _plain(name, operands, out)
