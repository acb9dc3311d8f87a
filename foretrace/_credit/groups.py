"""Groups of parameters between the recurrent layers, and the sensitivities to these groups.

The recurrences are numbered from 1 to D. Group 0 contains all parameters in front of recurrence 1.
Group j contains recurrence j and all parameters between it and recurrence j + 1.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._network import Block, LayerNorm, Linear, Network
from foretrace._recurrence.chunk import Modules
from foretrace._recurrence.sensitivity import attach, is_full
from foretrace._recurrence.unroll import straight_through
from foretrace._rule import ONLINE, Depth, LearningRule
from foretrace._types import Array, Float, Sensitivity, Stack, State, States


class InputGroup(NamedTuple):
    """Group 0: the encoder, and the norm of the first block if it precedes the recurrence."""

    encoder: Linear
    norm: LayerNorm | None

    def enter(self, xs: Float[Array, "C I"]) -> tuple[Float[Array, "C H"], Float[Array, "C H"]]:
        """Return the inputs of the first block and of its recurrence."""
        x = jax.vmap(self.encoder)(xs)
        return x, _normalise(self.norm, x)


class BlockGroup(NamedTuple):
    """Group j: block j without the norm before its recurrence, and the same norm of block j + 1."""

    block: Block
    norm: LayerNorm | None

    def leave(
        self,
        x: Float[Array, "C H"],
        z: Float[Array, "C H"],
        hs: States,
        keep: Float[Array, "2 H"] | None,
    ) -> Float[Array, "C H"]:
        """Return a block's outputs from its inputs x, the recurrence's inputs z and its states."""
        ys = jax.vmap(self.block.cell.readout)(hs, z)
        return jax.vmap(self.block.after, in_axes=(0, 0, None))(x, ys, keep)

    def onward(self, x: Float[Array, "C H"]) -> Float[Array, "C H"]:
        """Return the inputs of the next recurrence from the inputs of its block."""
        return _normalise(self.norm, x)


Groups = list[Any]
"""`[InputGroup, BlockGroup 1, …, BlockGroup D]`."""


class DeepSensitivity(NamedTuple):
    """Sensitivities of every recurrence to itself and to the groups of d recurrences below.

    For each leaf of a state there is a copy of the group, whose leaves have the module axis in
    front: (N, *parameter). The sensitivities are to real parameters, and they are complex if the
    state is. For the groups below, N is the number of modules that carry sensitivities to them.
    Each pair of a recurrence and a group has separate arrays. If the pairs were stacked, each would
    be copied before every product.

    Args:
        own: sensitivities to a recurrence's own coefficients, as under a rule without credit depth.
            They are stacked: row m - 1 belongs to recurrence m.
        below: sensitivities to group 0. Entry `m - 1` belongs to recurrence `m`, `1 <= m <= d`.
        between: sensitivities of recurrence `j + k` to group `j`, for each lag `k = 1 … d`. Entry
            `j - 1` belongs to group `j >= 1`, and only groups with a credit depth have an entry.
    """

    own: Sensitivity
    below: tuple[Sensitivity, ...]
    between: tuple[tuple[Sensitivity, ...], ...]

    def to(self, m: int, j: int) -> Sensitivity:
        """Return the sensitivity of recurrence m to group j; if j is m, to its own coefficients."""
        if j == m:
            return row(self.own, m - 1)
        return self.below[m - 1] if j == 0 else self.between[m - j - 1][j - 1]

    def moved_from_below(self, h: Stack, change: Network) -> Stack:
        """Return the states of all recurrences after a change of the groups below them."""
        groups = split(change, ONLINE)
        pairs = [(m, 0) for m in range(1, len(self.below) + 1)]
        for k, lag in enumerate(self.between, 1):
            pairs += [(j + k, j) for j in range(1, len(lag) + 1)]
        for m, j in pairs:
            attached = partial(attach, row(h, m - 1), self.to(m, j))
            _, d = jax.jvp(attached, (groups[j],), (groups[j],))
            h = jax.tree.map(lambda leaf, moved, m=m: leaf.at[m - 1].add(moved), h, d)
        return h


def split(network: Network, rule: LearningRule) -> Groups:
    """Return the parameters of a network, without its decoder, as a list of groups."""
    # A norm in front of recurrence j + 1 acts after recurrence j, so it belongs to group j.
    blocks, norms = network.blocks, None
    if not rule.trains_cells:
        blocks = eqx.tree_at(lambda b: b.cell, blocks, lax.stop_gradient(blocks.cell))
    if blocks.norm_place == "pre":
        blocks, norms = eqx.tree_at(lambda b: b.norm, blocks, None), blocks.norm
    depth = network.depth
    above = [
        BlockGroup(row(blocks, j - 1), row(norms, j) if j < depth else None)
        for j in range(1, depth + 1)
    ]
    return [InputGroup(network.encoder, row(norms, 0)), *above]


def depth_of(rule: LearningRule) -> Depth:
    """Return the options of a rule's credit depth. The rule must have one."""
    assert rule.credit is not None
    return rule.credit


def init_deep_sensitivity(
    network: Network, rule: LearningRule, own: Sensitivity
) -> DeepSensitivity:
    """Return zero sensitivities to lower groups, beside the given ones to own coefficients.

    Raises:
        ValueError: the rule samples modules, but also carries each module's derivative with respect
            to all coefficients of a dense cell.
    """
    check_samples(network, rule)
    credit, depth = depth_of(rule), network.depth
    groups = jax.eval_shape(lambda: split(network, rule))
    state = jax.eval_shape(network.block(0).cell.init_state)

    def zeros(group: Any, pairs: int) -> tuple[Sensitivity, ...]:
        # For each leaf of a state, a copy of the group with the axis of carrying modules in front.
        def like(leaf: jax.ShapeDtypeStruct) -> Any:
            carried = min(credit.modules or leaf.size, leaf.size)
            return jax.tree.map(lambda p: jnp.zeros((carried, *p.shape), leaf.dtype), group)

        return tuple(jax.tree.map(like, state) for _ in range(pairs))

    # Recurrence j + k and group j: there are D - k pairs with lag k, and the pairs of the first
    # groups are carried.
    credited = num_credited_groups(groups, rule)
    lags = range(1, min(credit.depth, depth - 1) + 1 if credited > 1 else 1)
    between = tuple(zeros(groups[1], min(depth - k, credited - 1)) for k in lags)
    return DeepSensitivity(own, zeros(groups[0], min(credit.depth, depth)), between)


def check_samples(network: Network, rule: LearningRule) -> None:
    """Raise a ValueError if the rule samples modules of a dense layer."""
    if rule.samples and is_full(network.block(0).cell, rule):
        raise ValueError(
            f"{rule}: only a cell of independent modules can sample modules; set modules=0"
        )


def num_credited_groups(groups: Groups, rule: LearningRule) -> int:
    """Return the number of groups, counted from the input, that have a credit depth."""
    return depth_of(rule).groups or len(groups)


def attach_subset(h: State, e: Sensitivity, theta: Any, modules: Modules | None) -> State:
    """Attach the sensitivities of sampled modules to a state, weighted to stay unbiased."""
    if modules is None:
        return attach(h, e, theta)
    some = row(h, modules.chosen)
    # Only the derivatives attached here are weighted, not those that the state already has.
    attached = attach(lax.stop_gradient(some), e, theta)
    weighted = jax.tree.map(lambda leaf: leaf * modules.weight.astype(leaf.dtype), attached)
    return jax.tree.map(
        lambda leaf, new: leaf.at[modules.chosen].set(new), h, straight_through(some, weighted)
    )


def gather(own: list[Sensitivity], found: dict[tuple[int, int], Sensitivity]) -> DeepSensitivity:
    """Return all sensitivities in one structure.

    Args:
        own: sensitivities of each recurrence to its own coefficients.
        found: sensitivities of recurrence m to the parameters of group j, by (m, j).
    """
    depth, reach = len(own), max(m - j for m, j in found)

    below = tuple(found[m, 0] for m in range(1, min(reach, depth) + 1))
    credited = max(j for _, j in found) + 1
    lags = range(1, min(reach, depth - 1) + 1 if credited > 1 else 1)
    between = tuple(
        tuple(found[j + k, j] for j in range(1, min(depth - k + 1, credited))) for k in lags
    )
    return DeepSensitivity(jax.tree.map(lambda *leaves: jnp.stack(leaves), *own), below, between)


def row(tree: Any, i: Any) -> Any:
    """Return every leaf of a tree, indexed by i (an integer or an array of integers)."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _normalise(norm: LayerNorm | None, x: Float[Array, "C H"]) -> Float[Array, "C H"]:
    return x if norm is None else jax.vmap(norm)(x)
