"""Multi-layer RTRL truncated at d layers: errors also pass through d higher recurrences.

For the parameters of group j (see `foretrace._credit.groups`), gradients pass through time in the
recurrences j … j + d. Through the recurrences above, they pass only at the present step. The
outputs of block j + d are written as a function of only these parameters, a *window*:

   x[j + d]  =  window_j(parameters of group j)
   h[m]      =  attach(h[m], e[m][j], parameters of group j)  inside the window

The derivative of the window is added to the derivative of the spatial pass, so that automatic
differentiation of the loss gives the gradient of all groups at once. The d + 1 groups nearest to
the output share one window, because gradients pass through time in all recurrences above them. If d
equals the number of recurrences, this window is the whole network and costs as much as
backpropagation through time. After a chunk, `e[m][j]` is the derivative of the last states inside
the window.

If only the first groups have a credit depth, the other groups learn in the spatial pass, as under a
rule without credit depth.

Python loops over the groups, so the size of the program and its compile time grow with the depth.

If only some modules carry sensitivities (`foretrace._credit.modules`), no error of the past passes
through the other modules. The sampled modules are weighted to make up for them, so e[m][j] is
unbiased also at a lag above one, where errors pass only through the sampled modules in between.

Source: Meert and Ludik, A multilayer real-time recurrent learning algorithm, 1997; Irie et al.,
    Exploring the promise and limits of real-time recurrent learning, 2024.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._credit.blocks import advanced, windows
from foretrace._credit.groups import (
    DeepSensitivity,
    Groups,
    attach_subset,
    depth_of,
    gather,
    num_credited_groups,
    row,
    split,
)
from foretrace._credit.modules import sample_modules
from foretrace._network import Network
from foretrace._recurrence.chunk import Carry, Chunk, Modules
from foretrace._recurrence.sensitivity import advance, attach, is_full, own_derivatives
from foretrace._recurrence.unroll import states, straight_through, unroll
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, Sensitivity, State, States, UInt32


class Passage(NamedTuple):
    """Inputs of a chunk, and intermediate values of each recurrence that are not differentiated.

    Args:
        rule: rule with a credit depth.
        chunk: inputs, resets and dropout masks.
        e: sensitivities before the chunk; None if no sensitivity is attached.
        modules: modules of each recurrence that carry sensitivities to lower layers; None for all.
        h: states before the chunk.
        inputs: inputs of each block, and inputs of its recurrence.
        hs: states of each recurrence.
    """

    rule: LearningRule
    chunk: Chunk
    e: DeepSensitivity | None
    modules: Modules | None
    h: dict[int, State]
    inputs: dict[int, tuple[Float[Array, "C H"], Float[Array, "C H"]]]
    hs: dict[int, States]

    def dropout_masks(self, m: int) -> Float[Array, "2 H"] | None:
        """Return the dropout masks of block m."""
        masks = self.chunk.dropout_masks
        return None if masks is None else masks[m - 1]

    def modules_of(self, m: int) -> Modules | None:
        """Return the modules of recurrence m that carry sensitivities; None for all."""
        return row(self.modules, m - 1)


def run_in_depth(
    network: Network,
    carry: Carry,
    chunk: Chunk,
    *,
    rule: LearningRule,
    starts: bool,
    return_carry: bool,
    accepted: bool | Bool[Array, ""] = True,
) -> tuple[Float[Array, "C H"], Carry | None]:
    """Run encoder and blocks over a chunk of one stream, under a rule with a credit depth.

    Args:
        network: the network.
        carry: states, sensitivities and key before the chunk.
        chunk: inputs, resets and dropout masks.
        rule: rule with a credit depth.
        starts: whether the chunk starts the stream, so that no sensitivity is attached.
        return_carry: whether the carry after the chunk is computed.
        accepted: whether the sensitivities are updated; may be a traced array.

    Returns:
        The outputs of the last block, and the carry after the chunk (None if not returned).
    """
    groups = split(network, rule)
    all_ = range(1, network.depth + 1)
    h, e = lax.stop_gradient(({m: row(carry.h, m - 1) for m in all_}, carry.e))
    x, passage = _features(
        groups, Passage(rule, chunk, None if starts else e, carry.modules, h, {}, {})
    )
    if not return_carry:
        return x, None
    last = jax.tree.map(
        lambda *leaves: jnp.stack([leaf[-1] for leaf in leaves]), *[passage.hs[m] for m in all_]
    )
    if accepted is False:
        return x, lax.stop_gradient(carry._replace(h=last))
    key, modules = _sampled_after(network, rule, carry, chunk.reset)
    # Where the key is new, the old sensitivities are zero or do not pass the reset.
    passage = passage._replace(e=e, modules=modules)
    after = Carry(last, _advance(lax.stop_gradient(groups), passage, accepted), key, modules)
    return x, lax.stop_gradient(after)


NEXT_EPISODE = 0x6E657874
"""Number folded into a key for the next episode; `jax.random.split` folds in small numbers."""


def _sampled_after(
    network: Network, rule: LearningRule, carry: Carry, reset: Bool[Array, "C"] | None
) -> tuple[UInt32[Array, "1 K"] | None, Modules | None]:
    """Return key and modules after a chunk; both are new if a sequence began in the chunk."""
    if carry.key is None or reset is None:
        return carry.key, carry.modules
    key = jax.random.fold_in(jax.random.wrap_key_data(carry.key[0]), NEXT_EPISODE)
    renewed = jax.random.key_data(key)[None], sample_modules(network, rule, key)
    return optax.tree.where(reset.any(), renewed, (carry.key, carry.modules))


def _features(groups: Groups, passage: Passage) -> tuple[Float[Array, "C H"], Passage]:
    """Return the features, differentiable in every window, and the intermediate values."""
    rule, chunk = passage.rule, passage.chunk
    depth, credited = len(groups) - 1, num_credited_groups(groups, rule)
    reach = min(depth_of(rule).depth, depth)
    # The groups without a credit depth learn in the spatial pass, by the rule itself.
    spatial = [*lax.stop_gradient(groups[:credited]), *groups[credited:]]
    x, z = spatial[0].enter(chunk.xs)
    for m in range(1, depth + 1):
        cell, h = spatial[m].block.cell, passage.h[m]
        if m >= credited and passage.e is not None:
            h = attach(h, passage.e.to(m, m), cell.coefficients())
        hs, emitted = unroll(cell, cell.coefficients(), h, z, rule, chunk.reset)
        inputs, closed = lax.stop_gradient(((x, z), hs))
        passage = passage._replace(inputs=passage.inputs | {m: inputs}, hs=passage.hs | {m: closed})
        x = spatial[m].leave(x, z, emitted, passage.dropout_masks(m))
        # Windows that end at block m: group m - d, and at the last block all remaining groups.
        opened = range(m - reach, min(credited, depth + 1 if m == depth else m - reach + 1))
        if m >= reach and opened:
            x = straight_through(x, _outputs(_only(groups, opened), opened, m, passage))
        z = spatial[m].onward(x)
    return x, passage


def _only(groups: Groups, opened: range) -> Groups:
    return [group if j in opened else lax.stop_gradient(group) for j, group in enumerate(groups)]


def _outputs(groups: Groups, opened: range, m: int, passage: Passage) -> Float[Array, "C H"]:
    """Return the outputs of block m, differentiable in the groups of the window."""
    # One step up the window: x[m] = block m of (x[m-1], states of recurrence m).
    x, z = _inputs(groups, opened, m, passage)
    return groups[m].leave(x, z, _through(groups, opened, m, z, passage), passage.dropout_masks(m))


def _inputs(
    groups: Groups, opened: range, m: int, passage: Passage
) -> tuple[Float[Array, "C H"], Float[Array, "C H"]]:
    """Return inputs of block m and of its recurrence, differentiable in groups of the window."""
    if m <= opened.start:
        # Below the window nothing is differentiated: these are the values computed for the chunk.
        return passage.inputs[m]
    if m == 1:
        return groups[0].enter(passage.chunk.xs)
    x = _outputs(groups, opened, m - 1, passage)
    return x, groups[m - 1].onward(x)


def _through(
    groups: Groups, attached: range, m: int, z: Float[Array, "C H"], passage: Passage
) -> States:
    """Return the states of recurrence number m, with sensitivities to the attached groups.

    The states are differentiable in the inputs of the recurrence and in these groups.
    """
    cell, h = groups[m].block.cell, passage.h[m]
    theta = cell.coefficients()
    if passage.e is not None:
        for j in range(attached.start, min(attached.stop, m + 1)):
            if j == m:
                # A recurrence's own coefficients have the plain sensitivity (Eq. 5 to 7 of the
                # paper).
                h = attach(h, passage.e.to(m, m), theta)
            else:
                h = attach_subset(h, passage.e.to(m, j), groups[j], passage.modules_of(m))
    # Inside the window, errors pass from a recurrence to its inputs at all steps of the chunk.
    through = dataclasses.replace(passage.rule, inputs=True)
    return states(cell, theta, h, z, through, passage.chunk.reset, known=passage.hs[m])


def _advance(groups: Groups, passage: Passage, accepted: bool | Bool[Array, ""]) -> DeepSensitivity:
    """Return the sensitivities after the chunk."""
    rule, e, depth = passage.rule, passage.e, len(groups) - 1
    assert e is not None
    # found[m, j] is the new sensitivity of recurrence m to group j.
    own: list[Sensitivity] = []
    found: dict[tuple[int, int], Sensitivity] = {}
    for m in range(1, depth + 1):
        cell, z, hs = groups[m].block.cell, passage.inputs[m][1], passage.hs[m]
        own.append(
            advance(
                cell,
                cell.coefficients(),
                passage.h[m],
                e.to(m, m),
                z,
                hs,
                rule,
                passage.chunk.reset,
            )
        )
        diagonal = None if is_full(cell, rule) else _state_jacobian_diagonal(groups, m, passage)
        modules = passage.modules_of(m)
        for opened in windows(m, depth, rule, groups):
            # Groups that share a window also share its derivative.
            last, old = (
                partial(_last_state, groups, opened, m, passage),
                [e.to(m, j) for j in opened],
            )
            some = None if modules is None else modules.chosen
            new = advanced(
                last, groups[opened.start : opened.stop], old, diagonal, some, z.size, accepted
            )
            found |= {(m, j): one for j, one in zip(opened, new, strict=True)}
    return gather(optax.tree.where(accepted, own, [e.to(m, m) for m in range(1, depth + 1)]), found)


def _last_state(
    groups: Groups, opened: range, m: int, passage: Passage, parameters: Groups
) -> State:
    """Return the last state of recurrence m as a function of the differentiated groups.

    In a layer of independent modules, the result is without the part that passes through the state
    before the chunk (see `_state_jacobian_diagonal`).
    """
    # A dense layer mixes its modules, so the past must pass through the same product as the rest.
    attached = opened if is_full(groups[m].block.cell, passage.rule) else range(0)
    mixed = [*groups[: opened.start], *parameters, *groups[opened.stop :]]
    _, z = _inputs(mixed, opened, m, passage)
    return row(_through(mixed, attached, m, z, passage), -1)


def _state_jacobian_diagonal(groups: Groups, m: int, passage: Passage) -> list[State]:
    """Return the derivative of each module's last state with respect to its own first one.

    Sensitivities then pass the recurrence in a product of their entries, instead of a product of N
    x N with N x |group|.
    """
    cell, z = groups[m].block.cell, passage.inputs[m][1]

    def last(h: State) -> State:
        return row(
            states(
                cell,
                cell.coefficients(),
                h,
                z,
                passage.rule,
                passage.chunk.reset,
                known=passage.hs[m],
            ),
            -1,
        )

    diagonal = own_derivatives(last, passage.h[m])
    modules = passage.modules_of(m)
    return diagonal if modules is None else row(diagonal, modules.chosen)
