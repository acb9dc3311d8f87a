"""Table of the elementwise operations in C and ONNX."""

from typing import NamedTuple

FUNCTION = 20
"""Time of a function of <math.h>, in additions."""

DIVISION = 5


class Operation(NamedTuple):
    """An operation on single elements.

    Args:
        onnx: name of the operator in ONNX; empty if several operators are needed.
        text: C expression for floating-point numbers. `{f}` is the suffix of a function, and `{1f}`
            is the number one.
        cost: estimate of the time, in additions.
        integer: C expression for integers; empty if there is none.
        boolean: C expression for truth values.
    """

    onnx: str
    text: str
    cost: int = 1
    integer: str = ""
    boolean: str = ""


def _compared(onnx: str, sign: str) -> Operation:
    text = f"({{0}} {sign} {{1}})"
    return Operation(onnx, text, 1, text, text)


def _function(name: str, onnx: str = "") -> Operation:
    return Operation(onnx, name + "{f}({0})", FUNCTION)


_MATH = "acos acosh asin asinh atan atanh cos cosh erf exp log sin sinh tan tanh"
"""Functions that have the same name in C, JAX and ONNX."""

OPERATIONS = {
    **{name: _function(name, name.capitalize()) for name in _MATH.split()},
    **{name: _function(name) for name in ("cbrt", "erfc", "exp2", "expm1", "log1p", "log2")},
    "abs": Operation("Abs", "fabs{f}({0})", 1, "({0} < 0 ? -{0} : {0})"),
    "add": Operation("Add", "({0} + {1})", 1, "({0} + {1})", "({0} || {1})"),
    "add_any": Operation("Add", "({0} + {1})", 1, "({0} + {1})"),
    "and": Operation("And", "", 1, "({0} & {1})", "({0} & {1})"),
    "atan2": Operation("", "atan2{f}({0}, {1})", FUNCTION),
    "ceil": Operation("Ceil", "ceil{f}({0})"),
    "div": Operation("Div", "({0} / {1})", DIVISION, "({0} / {1})"),
    "eq": _compared("Equal", "=="),
    "floor": Operation("Floor", "floor{f}({0})"),
    "ge": _compared("GreaterOrEqual", ">="),
    "gt": _compared("Greater", ">"),
    "is_finite": Operation("", "is_finite{f}({0})", 2, "1", "1"),
    "le": _compared("LessOrEqual", "<="),
    "logistic": Operation("Sigmoid", "({1f} / ({1f} + exp{f}(-{0})))", FUNCTION),
    "lt": _compared("Less", "<"),
    "max": Operation("Max", "larger{f}({0}, {1})", 2, "({0} > {1} ? {0} : {1})", "({0} || {1})"),
    "min": Operation("Min", "smaller{f}({0}, {1})", 2, "({0} < {1} ? {0} : {1})", "({0} && {1})"),
    "mul": Operation("Mul", "({0} * {1})", 1, "({0} * {1})", "({0} && {1})"),
    "ne": _compared("", "!="),
    "neg": Operation("Neg", "(-{0})", 1, "(-{0})"),
    "not": Operation("Not", "", 1, "(~{0})", "(!{0})"),
    "or": Operation("Or", "", 1, "({0} | {1})", "({0} | {1})"),
    "pow": Operation("Pow", "pow{f}({0}, {1})", 2 * FUNCTION),
    "rem": Operation("", "fmod{f}({0}, {1})", FUNCTION, "({0} % {1})"),
    "rsqrt": Operation("", "({1f} / sqrt{f}({0}))", 2 * DIVISION),
    "shift_left": Operation("", "", 1, "({0} << {1})"),
    "shift_right_logical": Operation("", "", 1, "({0} >> {1})"),
    "sign": Operation("Sign", "sign{f}({0})", 2, "(({0} > 0) - ({0} < 0))"),
    "sqrt": Operation("Sqrt", "sqrt{f}({0})", DIVISION),
    "square": Operation("", "square{f}({0})", 1, "({0} * {0})"),
    "sub": Operation("Sub", "({0} - {1})", 1, "({0} - {1})"),
    "xor": Operation("Xor", "", 1, "({0} ^ {1})", "({0} ^ {1})"),
}
