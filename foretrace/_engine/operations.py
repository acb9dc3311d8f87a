"""Number of arithmetic operations of a rule, counted in the traced program."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import partial_eval

from foretrace._engine.carry import init_carry
from foretrace._engine.gradient import gradient
from foretrace._network import AbstractNetwork
from foretrace._rule import LearningRule
from foretrace.losses import squared_error

# These move or rename numbers. Every other operation counts once for each number that it makes.
_MOVES = {
    *(
        "bitcast_convert_type",
        "broadcast_in_dim",
        "complex",
        "concatenate",
        "conj",
        "convert_element_type",
    ),
    *(
        "copy",
        "copy_p",
        "device_put",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
    ),
    *(
        "imag",
        "iota",
        "optimization_barrier",
        "pad",
        "real",
        "reduce_precision",
        "reshape",
        "rev",
        "scatter",
    ),
    *("select_n", "slice", "split", "squeeze", "stop_gradient", "transpose"),
}


# Real operations in one operation on complex numbers; two for an operation not named here.
_COMPLEX = {"mul": 6, "square": 6, "integer_pow": 6, "reduce_prod": 6, "div": 11, "exp": 4}


def operation_count(
    network: AbstractNetwork,
    rule: LearningRule | str,
    length: int = 1,
    *,
    whole_sequences: bool = False,
) -> float:
    """Count the arithmetic operations of one time step of a stream, including its gradient.

    The operations are real: a multiplication and an addition are two operations, a product of
    complex numbers is six, and a sum of complex numbers is two. Matrix products and elementwise
    functions count, also if they are repeated to save memory. Data movement and operations on
    integers do not count. Dropout and the optimiser, which runs once per update, are left out, and
    the task's loss is replaced by the squared error. The count depends by about 1 % on the method
    of the linear scan, which differs between devices.

    Args:
        network: network, or a network of shapes.
        rule: learning rule or its name.
        length: number of steps in a chunk, or in a whole sequence.
        whole_sequences: whether the chunk is a whole sequence, so that no sensitivity is carried
            into it or out of it.

    Raises:
        ValueError: the rule is unknown, the length is below one, or the cell has a loop of unknown
            length.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> ft.operation_count(network, ft.ONLINE) < ft.operation_count(
    ...     network, ft.ONLINE.with_depth(1)
    ... )
    True
    """
    if length < 1:
        raise ValueError(f"operation_count(length={length}) must be at least 1")
    carry = None if whole_sequences else eqx.filter_eval_shape(init_carry, network, rule)
    dtype = jnp.finfo(jax.tree.leaves(network)[0].dtype).dtype
    xs, ys = (
        jax.ShapeDtypeStruct((length, size), dtype)
        for size in (network.input_size, network.output_size)
    )

    def learn(network: AbstractNetwork, carry: Any, xs: Any, ys: Any) -> Any:
        return gradient(network, carry, xs, ys, rule=rule, loss=squared_error)[
            : 2 if whole_sequences else 3
        ]

    return operations(learn, network, carry, xs, ys) / length


def operations(function: Any, *arguments: Any) -> int:
    """Return the number of arithmetic operations that a function needs for its results.

    Raises:
        ValueError: the function has a loop of unknown length.
    """
    traced = jax.make_jaxpr(function)(*arguments)
    used, _ = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    return _count(used)


def _count(program: Any) -> int:
    return sum(_of(equation) for equation in program.eqns)


def _branches(branches: Any, branches_platforms: Any = None, **_: Any) -> list[Any]:
    """Return the branches that can run on this platform."""
    if branches_platforms is None:
        return list(branches)
    by_platform = {
        p: branch
        for branch, ps in zip(branches, branches_platforms, strict=True)
        for p in ps or [None]
    }
    return [by_platform.get(jax.default_backend(), by_platform.get(None))]


def _of(equation: Any) -> int:
    name, options = equation.primitive.name, equation.params
    if name in ("while", "pallas_call"):
        raise ValueError(f"operations of {name} cannot be counted: how often it turns is not known")
    if name == "cond":
        # The most expensive branch, which is an upper bound.
        return max(_count(branch.jaxpr) for branch in _branches(**options))
    inside = [p for p in options.values() if isinstance(p, core.Jaxpr | core.ClosedJaxpr)]
    if inside and not name.startswith("scatter"):
        # A loop counts its body once for each iteration.
        turns = options["length"] if name == "scan" else 1
        return turns * sum(_count(getattr(part, "jaxpr", part)) for part in inside)
    out = equation.outvars[0].aval
    if name in _MOVES or not (hasattr(out, "dtype") and jnp.issubdtype(out.dtype, jnp.inexact)):
        return 0
    read = equation.invars[0].aval if equation.invars else out
    is_complex = any(jnp.issubdtype(side.dtype, jnp.complexfloating) for side in (read, out))
    if name == "dot_general":
        # A sum of k products for each entry of the result: a multiplication and an addition each.
        ((contracted, _), _) = options["dimension_numbers"]
        return (
            (8 if is_complex else 2) * out.size * math.prod(read.shape[axis] for axis in contracted)
        )
    size = out.size
    if name.startswith("scatter"):  # the addition
        size = equation.invars[2].aval.size
    elif name.startswith("reduce_"):
        size = read.size
    return size * (_COMPLEX.get(name, 2) if is_complex else 1)
