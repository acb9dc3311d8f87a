"""Update in place of the sensitivities to lower layers, over a chunk.

   e'[m][j]  =  (dh'/dh) e[m][j]  +  derivative of the chunk's last state by group j

The derivative on the right is as large as the sensitivity itself. If it were computed for all
modules at once, as vector-Jacobian products, it would be written to memory and read again. On a
CPU, half of the time would be spent on the pages of that memory (dev/log/2026-11.md). Large
derivatives are therefore computed for a block of modules at a time. The products of a block stay in
the cache, the decayed sensitivity of its modules is added to them, and the sum replaces the old
sensitivity.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._credit.groups import Groups, depth_of, num_credited_groups, row, split
from foretrace._network import Network
from foretrace._recurrence.sensitivity import is_full, one_leaf_cotangent
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Int, Sensitivity, State

AT_ONCE = 4 * 2**20
"""Bytes of derivatives that are computed at once on a CPU, so that they stay in its cache."""

ERRORS = 4
"""Number of arrays C x H that a chunk's errors need, with the derivatives computed from them."""


def windows(m: int, depth: int, rule: LearningRule, groups: Groups) -> Iterator[range]:
    """Yield the groups whose sensitivities recurrence m carries, one range for each window."""
    reach, credited = min(depth_of(rule).depth, depth), num_credited_groups(groups, rule)
    for j in range(max(m - reach, 0), min(m, depth - reach, credited)):
        yield range(j, j + 1)
    together = range(depth - reach, min(m, credited))
    if together:
        yield together


def in_place(network: Network, rule: LearningRule, steps: int) -> bool:
    """Return whether sensitivities are overwritten block by block after they are read.

    Args:
        network: the network, or a network of shapes.
        rule: rule with a credit depth.
        steps: length of the chunk.
    """
    cell, depth = network.block(0).cell, network.depth
    if is_full(cell, rule):
        return False
    groups, state = jax.eval_shape(lambda: (split(network, rule), cell.init_state()))
    carried = depth_of(rule).modules or len(jax.tree.leaves(state)[0])
    opened = [
        groups[w.start : w.stop]
        for m in range(1, depth + 1)
        for w in windows(m, depth, rule, groups)
    ]
    return any(
        _block_size(parameters, state, carried, steps * network.model_size) < carried
        for parameters in opened
    )


def advanced(
    function: Callable[[Groups], State],
    parameters: Groups,
    e: list[Sensitivity],
    diagonal: list[State] | None,
    modules: Int[Array, "M"] | None,
    features: int,
    accepted: bool | Bool[Array, ""] = True,
) -> list[Sensitivity]:
    """Return the new sensitivities of a state to several trees of real parameters.

    Args:
        function: last state of the chunk as a function of the parameters.
        parameters: trees of real parameters.
        e: sensitivities to each of these trees before the chunk.
        diagonal: derivative of each module's last state with respect to its first state,
            `diagonal[i][k]` for leaf i of the last state and leaf k of the first. None if
            `function` already contains the past before the chunk.
        modules: modules that carry sensitivities; None for all.
        features: number of features in a chunk, C x H.
        accepted: True for the new sensitivities, False for the old ones.
    """
    value, pull = jax.vjp(function, parameters)
    leaves, structure = jax.tree.flatten(value)
    # One vector-Jacobian product for each real number of the state.
    ones = [jnp.diag(jnp.ones_like(leaf)) for leaf in leaves]
    ones = ones if modules is None else row(ones, modules)

    def block(
        ones: list[Array], e: list[Sensitivity], diagonal: list[State] | None
    ) -> list[Sensitivity]:
        rows = []
        for k, one in enumerate(ones):

            def read(cotangent: Array, k: int = k) -> Groups:
                return pull(one_leaf_cotangent(value, k, cotangent))[0]

            if jnp.iscomplexobj(one):
                # A cotangent c of a complex state reads Re[c dh]: Re[1 dh] and Re[-i dh] = Im[dh].
                parts, n = jax.vmap(read)(jnp.concatenate([one, -1j * one])), len(one)
                rows.append(jax.tree.map(lambda part, n=n: lax.complex(part[:n], part[n:]), parts))
            else:
                rows.append(jax.vmap(read)(one))
        found = [structure.unflatten([row[j] for row in rows]) for j in range(len(parameters))]
        if diagonal is not None:
            found = [
                jax.tree.map(jnp.add, _decayed(diagonal, old), new)
                for old, new in zip(e, found, strict=True)
            ]
        return optax.tree.where(accepted, found, e)

    size = (
        len(ones[0]) if diagonal is None else _block_size(parameters, value, len(ones[0]), features)
    )
    if size == len(ones[0]):
        return block(ones, e, diagonal)

    def step(e: list[Sensitivity], start: Array) -> tuple[list[Sensitivity], None]:
        def cut(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), tree)

        new = block(cut(ones), cut(e), cut(diagonal))
        return jax.tree.map(
            lambda leaf, rows: lax.dynamic_update_slice_in_dim(leaf, rows, start, 0), e, new
        ), None

    return lax.scan(step, e, jnp.arange(0, len(ones[0]), size))[0]


def _block_size(parameters: Any, state: Any, carried: int, features: int) -> int:
    """Return the number of modules in a block, a divisor, so that all blocks have one shape.

    `parameters` and `state` may be arrays or only shapes.
    """
    if jax.default_backend() != "cpu":
        return carried
    # The parameters, and the errors that pass through the window.
    leaves = jax.tree.leaves(parameters)
    numbers = sum(
        2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1
        for leaf in jax.tree.leaves(state)
    )
    each = (
        numbers * leaves[0].dtype.itemsize * (sum(leaf.size for leaf in leaves) + ERRORS * features)
    )
    if carried * each <= 2 * AT_ONCE:
        # A loop would gain nothing.
        return carried
    fitting = [
        size for size in range(1, carried + 1) if carried % size == 0 and size * each <= AT_ONCE
    ]
    return max(fitting, default=1)


def _decayed(diagonal: list[State], e: Sensitivity) -> Sensitivity:
    """Return `sum_k diagonal[i][k] * e[k]` for each leaf i of the state."""
    # Leaf i of the state after the chunk, leaf k before it: an LSTM's cell and output, for example.
    structure = jax.tree.structure(diagonal[0])
    parts = structure.flatten_up_to(e)

    def weigh(factor: Array, part: Any) -> Any:
        return jax.tree.map(lambda p: factor.reshape(-1, *[1] * (p.ndim - 1)) * p, part)

    rows = [
        [weigh(*pair) for pair in zip(jax.tree.leaves(factors), parts, strict=True)]
        for factors in diagonal
    ]
    return structure.unflatten([jax.tree.map(lambda *terms: sum(terms), *row) for row in rows])
