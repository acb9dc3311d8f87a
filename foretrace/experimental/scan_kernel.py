"""The linear scan as a kernel for GPUs (Pallas): equal to the others in the interpreter; missing: a time on a GPU.

One pass over memory instead of the logarithmic many of a tree. Each program runs a block of modules through time with
their state in registers; it asks for the next steps before it needs them. Complex numbers are pairs. Elsewhere than on
a GPU the kernel is interpreted: slow, for tests.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from foretrace._types import Array

_MODULES = 32
"""Modules of a program: one for each thread of a warp, so that many programs share the chip."""


_AHEAD = 8
"""Steps whose operands are read before the first of them is needed."""


Parts = tuple[Any, ...]


def scan_by_kernel(a: Array, b: Array, h: Array, starts: Array | None, reverse: bool) -> Array:
    """Return all states of `h_t = a_t h_{t-1} + b_t`; see `linear_scan`."""
    length, modules = b.shape
    dtype = jnp.result_type(a, b, h)
    padded = -(-modules // _MODULES) * _MODULES

    def parts(x: Array) -> list[Array]:
        x = jnp.pad(jnp.atleast_2d(x).astype(dtype), ((0, 0), (0, padded - modules)))
        return [x.real, x.imag] if jnp.iscomplexobj(x) else [x]

    operands = [parts(a), parts(b), parts(h)]
    rows = [x.shape[0] for group in operands for x in group]
    specs = [pl.BlockSpec((count, _MODULES), lambda i: (0, i)) for count in rows]
    given = [x for group in operands for x in group]
    if starts is not None:
        given.append(starts.astype(jnp.int32)[:, None])
        specs.append(pl.BlockSpec((length, 1), lambda i: (0, 0)))
    out = jax.ShapeDtypeStruct((length, padded), given[0].dtype)
    run = pl.pallas_call(
        partial(_run, width=len(operands[0]), varying=a.ndim == 2, resets=starts is not None, reverse=reverse),
        out_shape=[out] * len(operands[0]),
        grid=(padded // _MODULES,),
        in_specs=specs,
        out_specs=[pl.BlockSpec((length, _MODULES), lambda i: (0, i))] * len(operands[0]),
        # Through Triton operands stay where they are; the other way, Mosaic, would copy all of time into shared memory.
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=jax.default_backend() != "gpu",
    )
    hs = run(*given)
    return (lax.complex(*hs) if len(hs) == 2 else hs[0])[:, :modules]


def _run(*refs: Any, width: int, varying: bool, resets: bool, reverse: bool) -> None:
    a, b, h, rest = refs[:width], refs[width : 2 * width], refs[2 * width : 3 * width], refs[3 * width :]
    starts, out = (rest[0], rest[1:]) if resets else (None, rest)
    length = b[0].shape[0]
    first_a = _row(a, 0)  # the only one if it is constant

    def several(first: Any, state: Parts, count: int) -> Parts:
        times = [length - 1 - (first + i) if reverse else first + i for i in range(count)]
        read = [(_row(a, t) if varying else first_a, _row(b, t)) for t in times]
        cuts = [None if starts is None else starts[t, 0] for t in times]
        for t, (a_t, b_t), cut in zip(times, read, cuts, strict=True):
            if cut is not None:
                state = tuple(jnp.where(cut != 0, jnp.zeros_like(s), s) for s in state)
            state = _step(a_t, state, b_t)
            for ref, s in zip(out, state, strict=True):
                ref[t, :] = s
        return state

    whole = length // _AHEAD
    state = lax.fori_loop(0, whole, lambda i, state: several(i * _AHEAD, state, _AHEAD), _row(h, 0))
    several(whole * _AHEAD, state, length % _AHEAD)


def _row(refs: Parts, t: Any) -> Parts:
    return tuple(ref[t, :] for ref in refs)


def _step(a: Parts, h: Parts, b: Parts) -> Parts:
    if len(a) == 1:
        return (a[0] * h[0] + b[0],)
    return a[0] * h[0] - a[1] * h[1] + b[0], a[0] * h[1] + a[1] * h[0] + b[1]
