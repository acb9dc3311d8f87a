"""What each operation on single elements is in C: one table."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrace._native.expression import Apply, Expression, Number, c_type, dtype_of

_FUNCTION = 20  # additions that a function of <math.h> takes
_DIVISION = 5


class _Operator(NamedTuple):
    """C text of a floating-point operator, and its cost; `{f}` is its functions' suffix."""

    text: str
    cost: int = 1
    integer: str | None = None
    boolean: str | None = None


_OPERATORS = {
    "abs": _Operator("fabs{f}({0})", 1, "({0} < 0 ? -{0} : {0})"),
    "acos": _Operator("acos{f}({0})", _FUNCTION),
    "acosh": _Operator("acosh{f}({0})", _FUNCTION),
    "add": _Operator("({0} + {1})", 1, "({0} + {1})", "({0} || {1})"),
    "add_any": _Operator("({0} + {1})", 1, "({0} + {1})"),
    "asin": _Operator("asin{f}({0})", _FUNCTION),
    "asinh": _Operator("asinh{f}({0})", _FUNCTION),
    "atan": _Operator("atan{f}({0})", _FUNCTION),
    "atan2": _Operator("atan2{f}({0}, {1})", _FUNCTION),
    "atanh": _Operator("atanh{f}({0})", _FUNCTION),
    "cbrt": _Operator("cbrt{f}({0})", _FUNCTION),
    "ceil": _Operator("ceil{f}({0})"),
    "cos": _Operator("cos{f}({0})", _FUNCTION),
    "cosh": _Operator("cosh{f}({0})", _FUNCTION),
    "div": _Operator("({0} / {1})", _DIVISION, "({0} / {1})"),
    "erf": _Operator("erf{f}({0})", _FUNCTION),
    "erfc": _Operator("erfc{f}({0})", _FUNCTION),
    "exp": _Operator("exp{f}({0})", _FUNCTION),
    "exp2": _Operator("exp2{f}({0})", _FUNCTION),
    "expm1": _Operator("expm1{f}({0})", _FUNCTION),
    "floor": _Operator("floor{f}({0})"),
    "is_finite": _Operator("is_finite{f}({0})", 2, "1", "1"),
    "log": _Operator("log{f}({0})", _FUNCTION),
    "log1p": _Operator("log1p{f}({0})", _FUNCTION),
    "logistic": _Operator("({1f} / ({1f} + exp{f}(-{0})))", _FUNCTION),
    "max": _Operator("larger{f}({0}, {1})", 2, "({0} > {1} ? {0} : {1})", "({0} || {1})"),
    "min": _Operator("smaller{f}({0}, {1})", 2, "({0} < {1} ? {0} : {1})", "({0} && {1})"),
    "mul": _Operator("({0} * {1})", 1, "({0} * {1})", "({0} && {1})"),
    "neg": _Operator("(-{0})", 1, "(-{0})"),
    "pow": _Operator("pow{f}({0}, {1})", 2 * _FUNCTION),
    "rem": _Operator("fmod{f}({0}, {1})", _FUNCTION, "({0} % {1})"),
    "rsqrt": _Operator("({1f} / sqrt{f}({0}))", 2 * _DIVISION),
    "sign": _Operator("sign{f}({0})", 2, "(({0} > 0) - ({0} < 0))"),
    "sin": _Operator("sin{f}({0})", _FUNCTION),
    "sinh": _Operator("sinh{f}({0})", _FUNCTION),
    "sqrt": _Operator("sqrt{f}({0})", _DIVISION),
    "square": _Operator("square{f}({0})", 1, "({0} * {0})"),
    "sub": _Operator("({0} - {1})", 1, "({0} - {1})"),
    "tan": _Operator("tan{f}({0})", _FUNCTION),
    "tanh": _Operator("tanh{f}({0})", _FUNCTION),
    "and": _Operator("", 1, "({0} & {1})", "({0} & {1})"),
    "or": _Operator("", 1, "({0} | {1})", "({0} | {1})"),
    "xor": _Operator("", 1, "({0} ^ {1})", "({0} ^ {1})"),
    "shift_left": _Operator("", 1, "({0} << {1})"),
    "shift_right_logical": _Operator("", 1, "({0} >> {1})"),
    "not": _Operator("", 1, "(~{0})", "(!{0})"),
}

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

_HELPERS = {
    "is_finite": "int is_finite{f}({t} x) {{ {u} b; memcpy(&b, &x, sizeof b); return (b & {mask}) "
    "!= {mask}; }}",
    "square": "{t} square{f}({t} x) {{ return x * x; }}",
    "sign": "{t} sign{f}({t} x) {{ return ({t})((x > 0) - (x < 0)); }}",
    "larger": "{t} larger{f}({t} a, {t} b) {{ return (a > b || a != a) ? a : b; }}",
    "smaller": "{t} smaller{f}({t} a, {t} b) {{ return (a < b || a != a) ? a : b; }}",
}
"""Own C functions of the table; `is_finite` reads bits, which no flag removes."""


def suffix(dtype: Any) -> str:
    """Return what the names of C functions end with for a floating-point type."""
    return "f" if np.dtype(dtype) == np.float32 else ""


_CLAMPED = (
    "static inline int clamped(int64_t i, int last) { return i < 0 ? 0 : i > last ? last : "
    "(int)i; }"
)


def helper_names() -> list[str]:
    """Return the names of the C functions of `helpers`, for doubles."""
    return [name for name, _ in helpers(np.float64)]


def helpers(dtype: Any) -> list[tuple[str, str]]:
    """Return name and definition of the C functions for a floating-point type."""
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


def _plain(name: str, operands: Sequence[Expression], out: np.dtype) -> Apply | None:
    operator = _OPERATORS.get(name)
    if operator is None:
        return None
    given = dtype_of(operands[0])
    if given == np.bool_:
        text = operator.boolean
    elif np.issubdtype(given, np.integer):
        text = operator.integer
    else:
        # The one of this type, such as 1.0f.
        text = operator.text.replace("{1f}", "1.0f" if given == np.float32 else "1.0").replace(
            "{f}", suffix(given)
        )
    if np.issubdtype(given, np.floating):
        # A power may have an integer for its exponent.
        operands = [_convert([one], {}, given) for one in operands]
    return None if not text else Apply(text, tuple(operands), out, operator.cost)


def _comparison(name: str, operands: Sequence[Expression], out: np.dtype) -> Apply | None:
    sign = _COMPARISONS.get(name)
    return None if sign is None else Apply(f"({{0}} {sign} {{1}})", tuple(operands), out, 1)


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
        return Apply("({0} / {1})", (one, whole), out, _DIVISION)
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


def _clamp(operands: Sequence[Expression], params: dict[str, Any], out: np.dtype) -> Expression:
    low, x, high = operands
    inner = _plain("max", (x, low), out)
    assert inner is not None
    found = _plain("min", (inner, high), out)
    assert found is not None
    return found


def _one_minus_square(
    operands: Sequence[Expression], params: dict[str, Any], out: np.dtype
) -> Expression:
    one = Number(1, out)
    plus, minus = (Apply(f"({{0}} {sign} {{1}})", (one, operands[0]), out, 1) for sign in "+-")
    return Apply("({0} * {1})", (plus, minus), out, 1)


_OTHERS: dict[str, Callable[[Sequence[Expression], dict[str, Any], np.dtype], Expression]] = {
    "clamp": _clamp,
    "convert_element_type": _convert,
    "copy": lambda operands, params, out: operands[0],
    "integer_pow": _integer_power,
    "log2": lambda operands, params, out: Apply(
        f"log2{suffix(out)}({{0}})", tuple(operands), out, _FUNCTION
    ),
    "one_minus_square": _one_minus_square,
    "round": lambda operands, params, out: Apply(
        ("rint" if params["rounding_method"] == 1 else "round") + suffix(out) + "({0})",
        tuple(operands),
        out,
        1,
    ),
    "select_n": _select,
    "stop_gradient": lambda operands, params, out: operands[0],
}


def _known(name: str, operands: Sequence[Expression], out: np.dtype) -> Expression | None:
    """Return what a sum with zero or a product with zero or one is; None for anything else."""
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
) -> Expression | None:
    """Return what an operation on single elements computes; None if it is no such operation."""
    out = np.dtype(out)
    if (known := _known(name, operands, out)) is not None:
        return known
    if name in _OTHERS:
        return _OTHERS[name](operands, params, out)
    return _plain(name, operands, out) or _comparison(name, operands, out)
