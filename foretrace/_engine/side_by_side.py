"""A `ModuleNetwork` over a chunk: several cells in each layer, whose outputs are features."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell
from foretrace._engine.cell import run_cell
from foretrace._engine.layers import each_step_and_stream, each_stream
from foretrace._modules import ModuleNetwork
from foretrace._recurrence.chunk import Carry, Chunk
from foretrace._rule import LearningRule
from foretrace._types import Array, Float


def run_modules(
    network: ModuleNetwork,
    carry: Carry | None,
    chunk: Chunk,
    *,
    rule: LearningRule,
    return_carry: bool,
    flatten_batch: bool,
    differentiate_carry: bool,
) -> tuple[Float[Array, "C *B F"], Carry | None]:
    """Return the features of each step (the inputs come first), and the carry after the chunk."""
    features = chunk.xs
    after: list[list[Carry | None]] = []
    for number, layer in enumerate(network.layers):
        emitted, ends = [features], []
        for place, cell in enumerate(layer):
            before = None if carry is None else _of_cell(carry, number, place)
            ys, end = _run_one(
                cell,
                before,
                features,
                chunk,
                rule,
                return_carry,
                flatten_batch,
                differentiate_carry,
            )
            emitted.append(ys)
            ends.append(end)
        # Higher layers read all outputs below, and so does the decoder.
        features = jnp.concatenate(emitted, axis=-1)
        after.append(ends)
    return features, _gathered(after) if return_carry else None


def _run_one(
    cell: AbstractCell,
    carry: Carry | None,
    zs: Float[Array, "C *B I"],
    chunk: Chunk,
    rule: LearningRule,
    return_carry: bool,
    flatten_batch: bool,
    differentiate_carry: bool,
) -> tuple[Float[Array, "C *B O"], Carry | None]:
    batched = zs.ndim == 3
    cell = cell if rule.trains_cells else lax.stop_gradient(cell)
    recur = partial(
        run_cell,
        cell,
        cell.coefficients(),
        rule=rule,
        return_carry=return_carry,
        differentiate_carry=differentiate_carry,
    )
    run = each_stream(recur, batched, in_axes=(0, 1, 1), out_axes=(1, 0))
    states, after = run(carry, zs, chunk.reset)
    return each_step_and_stream(cell.readout, batched, flatten_batch)(states, zs), after


def _of_cell(carry: Carry, layer: int, place: int) -> Carry:
    """Return the carry of one cell, without its leading axis."""
    e = None if carry.e is None else carry.e[layer][place]
    return jax.tree.map(lambda leaf: leaf[0], Carry(carry.h[layer][place], e))


def _gathered(carries: list[list[Carry | None]]) -> Carry:
    """Return the carry of all cells, with a leading axis of size one."""

    def each(name: str) -> Any:
        found = tuple(tuple(getattr(carry, name) for carry in layer) for layer in carries)
        return jax.tree.map(lambda leaf: leaf[None], found)

    has_none = all(carry.e is None for layer in carries for carry in layer if carry is not None)
    return Carry(each("h"), None if has_none else each("e"))
