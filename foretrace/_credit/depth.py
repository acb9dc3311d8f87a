"""Depth-d credit: errors that travel through the memory of the next d recurrences above a parameter.

For the parameters of group j (see `foretrace._credit.groups`), recurrences j … j + d are open through time and those
above only at the present step. The outputs of block j + d are written as a function of these parameters alone, a
*window*:

    x[j + d]  =  window_j(parameters of group j),   h[m] = attach(h[m], e[m][j], parameters of group j) in it

and its derivative is added to that of the spatial pass, so that plain autodiff of the loss gives the gradient of all
groups at once. The d + 1 groups nearest to the output share one window, because all that lies above them is open: with
d equal to the number of recurrences, that window is the whole network and costs what backpropagation through time
costs. After a chunk, `e[m][j]` is the derivative of the window's own last states.

Where only the first groups are given depth, the others stay open in the spatial pass and learn there as without it.

Groups are looped over in Python: the program, and the time to compile it, grow with depth.

Where only some columns of each matrix are carried, e[m][j] is the derivative by those, exact, and it is attached to
their parameters times n / K, for K columns of n. Columns are drawn uniformly for each sequence, so what they add to the
gradient is on average what all would add. The same holds for modules: those that carry nothing let no error of the
past through, and the others N / M times as much. So e[m][j] at a lag above one is made of some modules in between, and
right on average.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._credit.groups import (
    DRAWN,
    Columns,
    DeepSensitivity,
    Groups,
    attach_some,
    draw_columns,
    draw_modules,
    gather,
    given_depth,
    init_deep_sensitivity,
    jacobian,
    narrowed,
    row,
    split,
)
from foretrace._credit.noise import seed_of
from foretrace._network import Network
from foretrace._recurrence.sensitivity import advance, attach, init_sensitivity, is_full, only
from foretrace._recurrence.unroll import also_differentiate, states, unroll
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, Inexact, Int, PyTree, Sensitivity, State, States, UInt32


class _Chunk(NamedTuple):
    """What a chunk is run with and, by recurrence, what it went through; closed to the derivative.

    Args:
        rule: what is open to the derivative.
        xs: inputs of the network.
        reset: steps that start an episode.
        e: sensitivities before the chunk.
        columns: by group, of which columns these are; None if of all.
        modules: by recurrence, of which modules' states they are to the groups below; None if of all.
        estimates: they stand for all columns in an error; not where one sensitivity is made of others.
        h: states before the chunk.
        keep: dropout masks.
        inputs: inputs of the block and of its recurrence.
        hs: states.
    """

    rule: LearningRule
    xs: Float[Array, "C I"]
    reset: Bool[Array, "C"] | None
    e: DeepSensitivity | None
    columns: list[Columns | None]
    modules: dict[int, Int[Array, "M"] | None]
    estimates: bool
    h: dict[int, State]
    keep: dict[int, Float[Array, "2 H"] | None]
    inputs: dict[int, tuple[Float[Array, "C H"], Float[Array, "C H"]]]
    hs: dict[int, States]


def deep_stack(
    network: Network,
    before: tuple[PyTree[Inexact[Array, "D N"]], DeepSensitivity | None] | None,
    xs: Float[Array, "C I"],
    reset: Bool[Array, "C"] | None,
    keep: Float[Array, "D 2 H"] | None,
    *,
    rule: LearningRule,
    keep_carry: bool,
) -> tuple[Float[Array, "C H"], tuple[PyTree[Inexact[Array, "D N"]], DeepSensitivity] | None]:
    """Run encoder and blocks over a chunk of one stream, with credit in depth.

    Args:
        network: the network.
        before: states and sensitivities; None starts a sequence, with nothing attached.
        xs: inputs of the network.
        reset: steps that start an episode.
        keep: dropout masks of each block.
        rule: what is open to the derivative; its depth is at least 1.
        keep_carry: False spares the sensitivities at the end of the chunk.

    Returns:
        The outputs of the last block, and (states, sensitivities) after the chunk if kept.
    """
    groups = split(network, rule)
    h, e = before if before is not None else (jax.vmap(lambda b: b.cell.init_state())(network.blocks), None)
    all_ = range(1, network.depth + 1)
    masks = {m: None if keep is None else keep[m - 1] for m in all_}
    h, e = lax.stop_gradient(({m: row(h, m - 1) for m in all_}, e))
    drawn = _drawn(groups, h, rule, None if e is None else e.seed)
    chunk = _Chunk(rule, xs, reset, e, *drawn, True, h, masks, {}, {})
    x = _features(groups, chunk)
    if not keep_carry:
        return x, None
    if e is None:
        own = jax.vmap(lambda b: init_sensitivity(b.cell, rule))(network.blocks)
        chunk = chunk._replace(e=init_deep_sensitivity(network, rule, own))
    last = jax.tree.map(lambda *leaves: jnp.stack([leaf[-1] for leaf in leaves]), *[chunk.hs[m] for m in all_])
    return x, lax.stop_gradient((last, _advance(lax.stop_gradient(groups), chunk)))


def _drawn(
    groups: Groups, h: dict[int, State], rule: LearningRule, seed: UInt32[Array, "D"] | None
) -> tuple[list[Columns | None], dict[int, Int[Array, "M"] | None]]:
    """Return the columns that are carried of each group, and the modules of each recurrence that carry them."""
    first = jnp.zeros((), jnp.uint32) if seed is None else seed[0]
    columns = [draw_columns(group, j, first, rule.columns) for j, group in enumerate(groups)]
    return columns, {m: draw_modules(state, m, first, rule.modules) for m, state in h.items()}


def _begun(chunk: _Chunk) -> UInt32[Array, "D"] | None:
    """Return the seed after the chunk: a new one if its sequence began here, made of the states that it has reached.

    The one before is mixed in, by which streams differ that begin alike. A run that is resumed has the same.
    """
    assert chunk.e is not None
    if (seed := chunk.e.seed) is None:
        return None
    begun = seed < DRAWN if chunk.reset is None else (seed < DRAWN) | chunk.reset.any()
    new = seed_of([row(hs, -1) for hs in chunk.hs.values()]) ^ (seed * np.uint32(0x9E3779B9))
    return jnp.where(begun, new | DRAWN, seed)


def _features(groups: Groups, chunk: _Chunk) -> Float[Array, "C H"]:
    """Return the outputs of the last block, with the derivative of every window; notes down what it goes through."""
    depth, given = len(groups) - 1, given_depth(groups, chunk.rule)
    reach = min(chunk.rule.depth, depth)
    # The groups that are given no credit in depth learn as without it.
    spatial = [*lax.stop_gradient(groups[:given]), *groups[given:]]
    x, z = spatial[0].enter(chunk.xs)
    for m in range(1, depth + 1):
        cell, h = spatial[m].block.cell, chunk.h[m]
        if m >= given and chunk.e is not None:
            h = attach(h, chunk.e.to(m, m), cell.coefficients())
        hs, emitted = unroll(cell, cell.coefficients(), h, z, chunk.rule, chunk.reset)
        chunk.inputs[m], chunk.hs[m] = lax.stop_gradient(((x, z), hs))
        x = spatial[m].leave(x, z, emitted, chunk.keep[m])
        opened = range(m - reach, min(given, depth + 1 if m == depth else m - reach + 1))
        if m >= reach and opened:
            x = also_differentiate(x, _outputs(_only(groups, opened), opened, m, chunk))
        z = spatial[m].onward(x)
    return x


def _only(groups: Groups, opened: range) -> Groups:
    return [group if j in opened else lax.stop_gradient(group) for j, group in enumerate(groups)]


def _outputs(groups: Groups, opened: range, m: int, chunk: _Chunk) -> Float[Array, "C H"]:
    """Return the outputs of block m as a function of the opened groups."""
    x, z = _inputs(groups, opened, m, chunk)
    return groups[m].leave(x, z, _through(groups, opened, m, z, chunk), chunk.keep[m])


def _inputs(groups: Groups, opened: range, m: int, chunk: _Chunk) -> tuple[Float[Array, "C H"], Float[Array, "C H"]]:
    """Return the inputs of block m and of its recurrence as a function of the opened groups."""
    if m <= opened.start:
        return chunk.inputs[m]
    if m == 1:
        return groups[0].enter(chunk.xs)
    x = _outputs(groups, opened, m - 1, chunk)
    return x, groups[m - 1].onward(x)


def _through(groups: Groups, attached: range, m: int, z: Float[Array, "C H"], chunk: _Chunk) -> States:
    """Return the states of recurrence m, open through time to its inputs and, before the chunk, to attached groups."""
    cell, h = groups[m].block.cell, chunk.h[m]
    theta = cell.coefficients()
    if chunk.e is not None:
        for j in range(attached.start, min(attached.stop, m + 1)):
            if j == m:
                h = attach(h, chunk.e.to(m, m), theta)
            else:
                below = narrowed(groups[j], chunk.columns[j], chunk.estimates)
                h = attach_some(h, chunk.e.to(m, j), below, chunk.modules[m])
    through = dataclasses.replace(chunk.rule, inputs=True)
    return states(cell, theta, h, z, through, chunk.reset, known=chunk.hs[m])


def _advance(groups: Groups, chunk: _Chunk) -> DeepSensitivity:
    """Return the sensitivities after the chunk."""
    e, depth, given = chunk.e, len(groups) - 1, given_depth(groups, chunk.rule)
    assert e is not None
    reach = min(chunk.rule.depth, depth)
    seed = _begun(chunk)
    # Where it is new, the old sensitivities are zero, or do not pass the reset.
    columns, modules = _drawn(groups, chunk.h, chunk.rule, seed)
    chunk = chunk._replace(columns=columns, modules=modules, estimates=False)
    own, found = [], {}
    for m in range(1, depth + 1):
        cell, z, hs = groups[m].block.cell, chunk.inputs[m][1], chunk.hs[m]
        own.append(advance(cell, cell.coefficients(), chunk.h[m], e.to(m, m), z, hs, chunk.rule, chunk.reset))
        kept = None if is_full(cell, chunk.rule) else _kept(groups, m, chunk)
        # The groups that share a window share its derivative, too.
        alone = range(max(m - reach, 0), min(m, depth - reach, given))
        for opened in [*(range(j, j + 1) for j in alone), range(depth - reach, min(m, given))]:
            for j, new in zip(opened, _last_state(groups, opened, m, chunk), strict=True):
                found[m, j] = new if kept is None else jax.tree.map(jnp.add, _pass(kept, e.to(m, j)), new)
    return gather(own, found, seed)


def _last_state(groups: Groups, opened: range, m: int, chunk: _Chunk) -> list[Sensitivity]:
    """Return the derivative of the last state of recurrence m with respect to each opened group.

    Where modules see only themselves, without what goes through the state that the chunk began with (see `_kept`).
    """
    if not opened:
        return []
    attached = opened if is_full(groups[m].block.cell, chunk.rule) else range(0)

    def last(parameters: Groups) -> State:
        mixed = [*groups[: opened.start], *parameters, *groups[opened.stop :]]
        _, z = _inputs(mixed, opened, m, chunk)
        return row(_through(mixed, attached, m, z, chunk), -1)

    columns = chunk.columns[opened.start : opened.stop]
    return jacobian(last, groups[opened.start : opened.stop], columns, chunk.modules[m])


def _kept(groups: Groups, m: int, chunk: _Chunk) -> list[State]:
    """Return the derivative of modules' last states by their own first: for each leaf of the one, the other's.

    Sensitivities then pass a recurrence entry by entry, not by a product of N x N with N x |group|.
    """
    cell, z = groups[m].block.cell, chunk.inputs[m][1]

    def last(h: State) -> State:
        return row(states(cell, cell.coefficients(), h, z, chunk.rule, chunk.reset, known=chunk.hs[m]), -1)

    value, pull = jax.vjp(last, chunk.h[m])
    kept = [pull(only(value, k, jnp.ones_like(leaf)))[0] for k, leaf in enumerate(jax.tree.leaves(value))]
    return kept if chunk.modules[m] is None else row(kept, chunk.modules[m])


def _pass(kept: list[State], e: Sensitivity) -> Sensitivity:
    """Return `sum_k kept[i][k] * e[k]` for each leaf i of the state."""
    structure = jax.tree.structure(kept[0])
    parts = structure.flatten_up_to(e)

    def weigh(factor: Array, part: Any) -> Any:
        return jax.tree.map(lambda p: factor.reshape(-1, *[1] * (p.ndim - 1)) * p, part)

    rows = [[weigh(*pair) for pair in zip(jax.tree.leaves(factors), parts, strict=True)] for factors in kept]
    return structure.unflatten([jax.tree.map(lambda *terms: sum(terms), *row) for row in rows])
