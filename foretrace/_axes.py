"""A function of one step or of one stream, applied along the axes of a chunk."""

from collections.abc import Callable
from typing import Any

import jax

from foretrace._types import Array, PyTree


def each_step_and_stream(function: Callable, batched: bool, merged: bool) -> Callable:
    """Apply a function of one step to all steps and, in a batch, to all streams.

    Args:
        function: of arrays without these axes.
        batched: there is an axis of streams behind that of time.
        merged: take both as one axis. Gradients of weights are products of two matrices then, without transposed
            copies: a tenth of a training step on a CPU. A compiler that is to spread the streams over devices by itself
            cannot do it behind such an axis.
    """
    if not batched:
        return jax.vmap(function)
    if not merged:
        return jax.vmap(jax.vmap(function))

    def apply(*args: PyTree[Array]) -> PyTree[Array]:
        steps, streams = jax.tree.leaves(args)[0].shape[:2]
        rows = jax.tree.map(lambda leaf: leaf.reshape(steps * streams, *leaf.shape[2:]), args)
        return jax.tree.map(lambda leaf: leaf.reshape(steps, streams, *leaf.shape[1:]), jax.vmap(function)(*rows))

    return apply


def each_stream(function: Callable, batched: bool, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
    """Apply a function of one stream to all streams."""
    return jax.vmap(function, in_axes, out_axes) if batched else function
