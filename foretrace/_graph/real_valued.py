"""Rewrite a traced function so that it has no complex numbers and no loops.

Graph formats have neither. The derivative of the cell's one step is already part of the function.
Here, each operation is only replaced by equivalent operations: a complex number becomes a pair of
real numbers, and a loop of known length becomes its steps, one after the other.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import partial_eval

from foretrace._cells.parts import is_key
from foretrace._graph.triangular import cholesky, triangular_solve
from foretrace._types import Array


class Pair(NamedTuple):
    """A complex array as its real and imaginary parts, a tree with two leaves."""

    re: Array
    im: Array


class NotExportable(ValueError):
    """An operation that cannot be written as a plain graph of real numbers."""


def real_valued(
    function: Callable[..., list[Array]], shapes: Sequence[jax.ShapeDtypeStruct]
) -> Callable:
    """Return the function without complex numbers inside and with all loops unrolled.

    Args:
        function: function of real arrays that returns a list of real arrays.
        shapes: shapes and dtypes of the arguments.

    Raises:
        NotExportable: raised when the result is called, if an operation, such as sampling, has no
            real-valued form.
    """
    closed = traced(function, shapes)
    return lambda *arguments: _evaluate(closed.jaxpr, closed.consts, arguments)


def traced(function: Callable[..., Any], shapes: Sequence[jax.ShapeDtypeStruct]) -> Any:
    """Return a function as a graph, without values that no output needs, such as the next key."""
    closed = jax.make_jaxpr(function)(*shapes)
    needed = [True] * len(closed.jaxpr.outvars)
    return closed.replace(jaxpr=partial_eval.dce_jaxpr(closed.jaxpr, needed, instantiate=True)[0])


def _evaluate(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_as_pair, consts), strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            aval: Any = atom.aval
            return _converted(_as_pair(atom.val), aval.dtype) if _is_complex(aval) else atom.val
        return values[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        values |= dict(zip(eqn.outvars, _apply(eqn, operands), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn: Any, operands: list[Any]) -> list[Any]:
    """Return the results of one operation."""
    name, params = eqn.primitive.name, eqn.params
    if name in _PASSING:
        return operands
    if name == "scan":
        return _unrolled(params, operands)
    if name == "platform_index":
        return [None]
    if name == "cond" and params.get("branches_platforms"):
        # There is one branch for each platform; the branch for all other platforms is plain.
        plain = params["branches"][params["branches_platforms"].index(None)]
        return _evaluate(plain.jaxpr, plain.consts, operands[1:])
    if name == "cond":
        return _all_branches(eqn, *operands)
    if (inner := _inner(name, params)) is not None:
        return _evaluate(inner.jaxpr, inner.consts, operands)
    if name in _IMPOSSIBLE or any(is_key(v.aval) for v in eqn.outvars):
        raise NotExportable(
            f"the step samples or loops without a known end ({name}), which a plain graph cannot "
            "hold"
        )
    if any(isinstance(value, Pair) for value in operands) or _is_complex(eqn.outvars[0].aval):
        return _apply_to_pairs(eqn, operands)
    return _bound(eqn, operands)


def _bound(eqn: Any, operands: list[Any]) -> list[Any]:
    if not any(isinstance(value, jax.core.Tracer) for value in operands):
        # Values that depend only on constants are computed now.
        with jax.ensure_compile_time_eval():
            return _computed(eqn, operands)
    return _simplified(eqn, operands) or _computed(eqn, operands)


def _computed(eqn: Any, operands: list[Any]) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name.startswith("empty"):
        return [np.zeros(eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype)]
    found = _WRITTEN_OUT.get(name, eqn.primitive.bind)(*operands, **params)
    return list(found) if eqn.primitive.multiple_results else [found]


def _simplified(eqn: Any, operands: list[Any]) -> list[Any] | None:
    """Return the result if a sum has a zero term or a product a factor of zero or one, else None.

    Most of these operands are the imaginary part of a real number.
    """
    name, aval = eqn.primitive.name, eqn.outvars[0].aval
    if name not in ("add", "add_any", "mul") or not jnp.issubdtype(aval.dtype, jnp.floating):
        return None
    known = [_is_all(value, 0) or (name == "mul" and _is_all(value, 1)) for value in operands]
    return [(_times if name == "mul" else _plus)(*operands)] if any(known) else None


def _times(a: Any, b: Any, times: Callable = operator.mul) -> Any:
    if _is_all(a, 0) or _is_all(b, 0):
        shape = jax.eval_shape(times, a, b)
        return np.zeros(shape.shape, shape.dtype)
    for one, other in ((a, b), (b, a)) if times is operator.mul else ():
        if _is_all(one, 1) and jnp.shape(one) in ((), jnp.shape(other)):
            return other
    return times(a, b)


def _plus(a: Any, b: Any) -> Any:
    for zero, other in ((a, b), (b, a)):
        if _is_all(zero, 0) and jnp.shape(zero) in ((), jnp.shape(other)):
            return other
    return a + b


def _minus(a: Any, b: Any) -> Any:
    return a if _is_all(b, 0) and jnp.shape(b) in ((), jnp.shape(a)) else a - b


def _is_all(value: Any, number: float) -> bool:
    return not isinstance(value, jax.core.Tracer) and bool((np.asarray(value) == number).all())


def _tiled(value: Array, reps: Sequence[int]) -> Array:
    for axis, count in enumerate(reps):
        value = jnp.concatenate([value] * count, axis)
    return value


def _split(value: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    ends = np.cumsum(sizes).tolist()
    return [
        lax.slice_in_dim(value, end - size, end, axis=axis)
        for end, size in zip(ends, sizes, strict=True)
    ]


def _padded(value: Array, filling: Array, padding_config: Sequence[tuple]) -> Array:
    """Return a padded array as a concatenation of parts, axis by axis."""
    for axis, (low, high, between) in enumerate(padding_config):
        size = value.shape[axis]
        if between and size > 1:
            # The gap after each element is a separate axis; the last gap is removed.
            gaps = _lengthened(jnp.expand_dims(value, axis + 1), filling, axis + 1, 0, between)
            value = gaps.reshape(*value.shape[:axis], -1, *value.shape[axis + 1 :])
            size = (size - 1) * (between + 1) + 1
        if size != value.shape[axis] or low < 0 or high < 0:
            value = lax.slice_in_dim(value, max(-low, 0), size - max(-high, 0), axis=axis)
        value = _lengthened(value, filling, axis, max(low, 0), max(high, 0))
    return value


def _lengthened(value: Array, filling: Array, axis: int, low: int, high: int) -> Array:
    """Return an array with the value `filling` added at both ends of an axis."""
    parts = [
        lax.broadcast(filling, (*value.shape[:axis], int(size), *value.shape[axis + 1 :]))
        for size in (low, high)
    ]
    return jnp.concatenate([part for part in (parts[0], value, parts[1]) if part.size], axis)


def _all_branches(eqn: Any, which: Any, *operands: Any) -> list[Any]:
    """Run every branch, and select among the results."""
    branches = eqn.params["branches"]
    if not isinstance(which, jax.core.Tracer):
        branches = [branches[int(np.clip(which, 0, len(branches) - 1))]]
    found = [_evaluate(branch.jaxpr, branch.consts, operands) for branch in branches]
    if len(found) == 1:
        return found[0]
    place = jnp.minimum(jnp.maximum(which, 0), len(branches) - 1)
    place = place.astype(bool) if len(branches) == 2 else place

    def chosen(out: Any, *cases: Any) -> Any:
        dtype = jnp.finfo(out.aval.dtype).dtype if _is_complex(out.aval) else out.aval.dtype

        def of_parts(*parts: Any) -> Array:
            return lax.select_n(place, *(jnp.asarray(part, dtype) for part in parts))

        return jax.tree.map(of_parts, *cases)

    return list(map(chosen, eqn.outvars, *found))


def _unrolled(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Run a scan step by step."""
    body, (consts, carry, xs) = params["jaxpr"], _scan_parts(params, operands)
    carried = len(carry)
    order, rows = range(params["length"]), []
    for t in reversed(order) if params["reverse"] else order:
        now = jax.tree.map(partial(lax.index_in_dim, index=t, keepdims=False), xs)
        out = _evaluate(body.jaxpr, body.consts, [*consts, *carry, *now])
        carry = out[:carried]
        rows.append(out[carried:])
    rows = rows[::-1] if params["reverse"] else rows
    stacked = rows and jax.tree.map(lambda *ys: jnp.concatenate([y[None] for y in ys]), *rows)
    return [*carry, *stacked]


def _scan_parts(params: dict[str, Any], operands: list[Any]) -> Sequence[list[Any]]:
    """Return the constant operands of a scan, the carried ones, and its sequences."""
    if "ft_in" in params:  # from JAX 0.11 on
        return [list(part) for part in params["ft_in"].update(operands).unpack()]
    fixed, carried = params["num_consts"], params["num_carry"]
    return operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]


def _apply_to_pairs(eqn: Any, operands: list[Any]) -> list[Any]:
    """Return the results of an operation on complex numbers."""
    name, params = eqn.primitive.name, eqn.params
    if name in _EACH_PART:
        # The same operation on the real parts and on the imaginary parts, with the same indices and
        # conditions.
        sides = [[v[i] if isinstance(v, Pair) else v for v in operands] for i in range(2)]
        return [Pair(*both) for both in zip(*(_bound(eqn, side) for side in sides), strict=True)]
    if name == "dot_general":
        real = params | {"preferred_element_type": jnp.finfo(eqn.outvars[0].aval.dtype).dtype}
        return [_product(operands[0], operands[1], partial(lax.dot_general_p.bind, **real))]
    if name == "convert_element_type":
        return [_converted(operands[0], params["new_dtype"])]
    if name in _RULES:
        return [_RULES[name](*operands, **({"y": params["y"]} if name == "integer_pow" else {}))]
    raise NotExportable(f"the operation {name} on complex numbers has no real form here")


def _converted(value: Any, dtype: Any) -> Any:
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        return value.re.astype(dtype)
    part = jnp.finfo(dtype).dtype
    if not isinstance(value, Pair):
        value = Pair(jnp.asarray(value), jnp.zeros_like(value))
    return Pair(value.re.astype(part), value.im.astype(part))


def _product(a: Pair, b: Pair, times: Callable = operator.mul) -> Pair:
    re = _minus(_times(a.re, b.re, times), _times(a.im, b.im, times))
    return Pair(re, _plus(_times(a.re, b.im, times), _times(a.im, b.re, times)))


def _quotient(a: Pair, b: Pair) -> Pair:
    square = b.re * b.re + b.im * b.im
    over = _product(a, Pair(b.re, -b.im))
    return Pair(over.re / square, over.im / square)


def _exp(z: Pair) -> Pair:
    size = jnp.exp(z.re)
    return Pair(size * jnp.cos(z.im), size * jnp.sin(z.im))


def _expm1(z: Pair) -> Pair:
    # exp(re) cos(im) - 1 without cancellation: cos(im) - 1 = -2 sin^2(im / 2).
    half = jnp.sin(z.im / 2)
    return Pair(jnp.expm1(z.re) * jnp.cos(z.im) - 2 * half * half, jnp.exp(z.re) * jnp.sin(z.im))


def _integer_power(z: Pair, y: int) -> Pair:
    one = result = Pair(jnp.ones_like(z.re), jnp.zeros_like(z.re))
    for _ in range(abs(y)):
        result = _product(result, z)
    return result if y >= 0 else _quotient(one, result)


_RULES: dict[str, Callable[..., Any]] = {
    # The derivative of a real part is `complex(cotangent, scalar zero)`.
    "complex": lambda re, im: Pair(*jnp.broadcast_arrays(re, im)),
    "real": lambda z: z.re,
    "imag": lambda z: z.im,
    "conj": lambda z: Pair(z.re, -z.im) if isinstance(z, Pair) else Pair(z, jnp.zeros_like(z)),
    "mul": _product,
    "div": _quotient,
    "exp": _exp,
    "expm1": _expm1,
    "integer_pow": _integer_power,
    "one_minus_square": lambda z: _product(Pair(1 + z.re, z.im), Pair(1 - z.re, -z.im)),
    "square": lambda z: _product(z, z),
    "abs": lambda z: jnp.sqrt(z.re * z.re + z.im * z.im),
    "is_finite": lambda z: lax.is_finite(z.re) & lax.is_finite(z.im),
    "eq": lambda a, b: (a.re == b.re) & (a.im == b.im),
    "ne": lambda a, b: (a.re != b.re) | (a.im != b.im),
}
"""For each operation, a function on pairs that replaces it."""

_WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, **_: cholesky(a),
    "clamp": lambda low, x, high: jnp.minimum(jnp.maximum(x, low), high),
    "one_minus_square": lambda x: (1 + x) * (1 - x),
    "pad": _padded,
    "split": _split,
    "stack": lambda *xs, axis: jnp.concatenate([jnp.expand_dims(x, axis) for x in xs], axis),
    "tile": _tiled,
    "triangular_solve": triangular_solve,
    "unstack": lambda x, axis: [
        lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])
    ],
}
"""Operations that are replaced by simpler real operations in every format."""

_EACH_PART = """
add add_any broadcast_in_dim concatenate copy cumsum dynamic_slice dynamic_update_slice expand_dims
gather neg pad reduce_sum reshape rev scatter scatter-add select_n slice split squeeze stack sub
tile transpose unstack
""".split()
"""Operations that are linear in their numbers, so that they apply to each part separately."""

_PASSING = "copy copy_p name optimization_barrier sharding_constraint stop_gradient".split()
"""Operations that change no value."""

_CALLS = """
checkpoint closed_call core_call custom_jvp_call custom_vjp_call jit pjit remat2
""".split()
"""Operations that only call a function."""

_IMPOSSIBLE = "while random_bits random_wrap threefry2x32 pure_callback io_callback".split()


def _inner(name: str, params: dict[str, Any]) -> Any:
    """Return the function that an operation calls, such as a compiled one, or None."""
    if name not in _CALLS:
        return None
    found = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
    return found if isinstance(found, core.ClosedJaxpr) else core.ClosedJaxpr(found, ())


def _as_pair(value: Any) -> Any:
    if not jnp.iscomplexobj(value):
        return value
    value = np.asarray(value)
    return Pair(value.real, value.imag)


def _is_complex(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.complexfloating)
