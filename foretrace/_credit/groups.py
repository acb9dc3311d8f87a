"""Groups of parameters that share the recurrences above them, and the sensitivities of those recurrences to them.

Recurrences are numbered 1 to D. Group 0 acts before the first; group j is recurrence j with all that acts between it
and recurrence j + 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._network import Block, LayerNorm, Linear, Network
from foretrace._recurrence.sensitivity import attach, is_full, only
from foretrace._rule import LearningRule
from foretrace._types import Array, Float, Int, Sensitivity, State, States, UInt32


class Below(NamedTuple):
    """Group 0: the encoder, and the norm of the first block if it stands before the recurrence."""

    encoder: Linear
    norm: LayerNorm | None

    def enter(self, xs: Float[Array, "C I"]) -> tuple[Float[Array, "C H"], Float[Array, "C H"]]:
        """Return the inputs of the first block and those of its recurrence."""
        x = jax.vmap(self.encoder)(xs)
        return x, _normalise(self.norm, x)


class Group(NamedTuple):
    """Group j: block j but for a norm before its recurrence, and that norm of block j + 1."""

    block: Block
    norm: LayerNorm | None

    def leave(
        self, x: Float[Array, "C H"], z: Float[Array, "C H"], hs: States, keep: Float[Array, "2 H"] | None
    ) -> Float[Array, "C H"]:
        """Return the outputs of the block from its inputs x, the recurrence's inputs z and its states."""
        ys = jax.vmap(self.block.cell.readout)(hs, z)
        return jax.vmap(self.block.after, in_axes=(0, 0, None))(x, ys, keep)

    def onward(self, x: Float[Array, "C H"]) -> Float[Array, "C H"]:
        """Return the inputs of the next recurrence from those of its block."""
        return _normalise(self.norm, x)


Groups = list[Any]
"""`[Below, Group 1, …, Group D]`."""


Columns = list[Int[Array, "K"] | None]
"""For each leaf of a group, which entries of its last axis are carried; None for all."""


_TOGETHER = 16
"""Derivatives that are computed at once where only their columns are kept."""


DRAWN = np.uint32(2**31)
"""Seeds from here on are those of sequences that have begun."""


class DeepSensitivity(NamedTuple):
    """Sensitivities of every recurrence to its own coefficients and to the groups of the next d recurrences below.

    Each leaf of a state stands for a group whose leaves have the module axis in front: (rows, N, *parameter), real
    parameters, complex where the state is. To the groups below, N and the last axis are those that were drawn.

    Args:
        own: to its own coefficients, as without depth: row m - 1 is recurrence m.
        below: to group 0: row m - 1 is recurrence m, 1 <= m <= d.
        between: for each lag k = 1 … d, recurrence j + k to group j: row j - 1, j >= 1; of the groups that have
            credit in depth.
        seed: what columns and modules of this sequence are drawn from, the same number in every row; before its
            first chunk the number of the stream, below `DRAWN`; None if all are carried.
    """

    own: Sensitivity
    below: Sensitivity
    between: tuple[Sensitivity, ...]
    seed: UInt32[Array, "D"] | None = None

    def to(self, m: int, j: int) -> Sensitivity:
        """Return the sensitivity of recurrence m to group j; to its own coefficients if j is m."""
        if j == m:
            return row(self.own, m - 1)
        return row(self.below, m - 1) if j == 0 else row(self.between[m - j - 1], j - 1)


def split(network: Network, rule: LearningRule) -> Groups:
    """Return the parameters of a network but for the decoder, group by group."""
    blocks, norms = network.blocks, None
    if not rule.trains_cells:
        blocks = eqx.tree_at(lambda b: b.cell, blocks, lax.stop_gradient(blocks.cell))
    if blocks.norm_place == "pre":
        blocks, norms = eqx.tree_at(lambda b: b.norm, blocks, None), blocks.norm
    depth = network.depth
    above = [Group(row(blocks, j - 1), row(norms, j) if j < depth else None) for j in range(1, depth + 1)]
    return [Below(network.encoder, row(norms, 0)), *above]


def init_deep_sensitivity(network: Network, rule: LearningRule, own: Sensitivity) -> DeepSensitivity:
    """Return the sensitivities before the first step, zero, around those to the own coefficients.

    Raises:
        ValueError: columns or modules for a dense cell, under a rule that carries each module's derivative by all
            coefficients.
    """
    check_drawn(network, rule)
    groups = jax.eval_shape(lambda: split(network, rule))
    state = jax.eval_shape(network.block(0).cell.init_state)

    def zeros(group: Any, rows: int) -> Sensitivity:
        def like(leaf: jax.ShapeDtypeStruct) -> Any:
            carried = min(rule.modules or leaf.size, leaf.size)
            return jax.tree.map(lambda p: jnp.zeros((rows, carried, *p.shape), leaf.dtype), narrow)

        narrow = jax.eval_shape(lambda g: narrowed(g, draw_columns(g, 0, jnp.uint32(0), rule.columns)), group)

        return jax.tree.map(like, state)

    given = given_depth(groups, rule)
    lags = range(1, min(rule.depth, network.depth - 1) + 1 if given > 1 else 1)
    between = tuple(zeros(groups[1], min(network.depth - k, given - 1)) for k in lags)
    seed = jnp.zeros(network.depth, jnp.uint32) if rule.drawn else None
    return DeepSensitivity(own, zeros(groups[0], min(rule.depth, network.depth)), between, seed)


def check_drawn(network: Network, rule: LearningRule) -> None:
    """Raise a ValueError for columns or modules where the carried derivatives are those of a whole dense layer."""
    if rule.drawn and is_full(network.block(0).cell, rule):
        raise ValueError(
            f"{rule}: columns and modules are for cells of independent modules; leave them out for a dense one"
        )


def given_depth(groups: Groups, rule: LearningRule) -> int:
    """Return how many groups, counted from the input, are given credit in depth."""
    return rule.groups or len(groups)


def draw_columns(group: Any, j: int, seed: UInt32[Array, ""], number: int) -> Columns | None:
    """Return which columns of each matrix of group j are carried; vectors and narrower matrices are carried whole."""
    if not number:
        return None
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), j)

    def some(i: int, leaf: Any) -> Array | None:
        if leaf.ndim < 2 or leaf.shape[-1] <= number:
            return None
        return jax.random.permutation(jax.random.fold_in(key, i), leaf.shape[-1])[:number]

    return [some(i, leaf) for i, leaf in enumerate(jax.tree.leaves(group))]


def draw_modules(h: State, m: int, seed: UInt32[Array, ""], number: int) -> Int[Array, "M"] | None:
    """Return which modules of recurrence m, of states h, carry sensitivities to the layers below; None for all."""
    size = jax.tree.leaves(h)[0].size
    if not 0 < number < size:
        return None
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), seed), m)
    return jax.random.permutation(key, size)[:number]


def attach_some(h: State, e: Sensitivity, theta: Any, modules: Int[Array, "M"] | None) -> State:
    """Attach the sensitivities of some modules to a state, weighed by how many there are for each: on average all."""
    if modules is None:
        return attach(h, e, theta)
    share = jax.tree.leaves(h)[0].size / modules.size
    some = attach(row(h, modules), e, jax.tree.map(lambda leaf: leaf * share, theta))
    return jax.tree.map(lambda leaf, new: leaf.at[modules].set(new), h, some)


def narrowed(group: Any, columns: Columns | None, weigh: bool = False) -> Any:
    """Return a group with the given columns alone; weighed by how many there are for each, as an estimate of all."""
    if columns is None:
        return group
    leaves, structure = jax.tree.flatten(group)

    def few(leaf: Array, chosen: Array | None) -> Array:
        if chosen is None:
            return leaf
        return leaf[..., chosen] * (leaf.shape[-1] / chosen.size if weigh else 1.0)

    return structure.unflatten([few(*pair) for pair in zip(leaves, columns, strict=True)])


def gather(
    own: list[Sensitivity], found: dict[tuple[int, int], Sensitivity], seed: UInt32[Array, "D"] | None
) -> DeepSensitivity:
    """Return all sensitivities from those to the own coefficients and those found for recurrence m and group j."""
    depth, reach = len(own), max(m - j for m, j in found)

    def stack(rows: list[Sensitivity]) -> Sensitivity:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)

    below = stack([found[m, 0] for m in range(1, min(reach, depth) + 1)])
    given = max(j for _, j in found) + 1
    lags = range(1, min(reach, depth - 1) + 1 if given > 1 else 1)
    between = tuple(stack([found[j + k, j] for j in range(1, min(depth - k + 1, given))]) for k in lags)
    return DeepSensitivity(stack(own), below, between, seed)


def jacobian(
    function: Callable[[Groups], State],
    parameters: Groups,
    columns: list[Columns | None],
    modules: Int[Array, "M"] | None,
) -> list[Sensitivity]:
    """Return the derivative of a state by each of several trees of real parameters, or of some modules by some columns.

    One vector-Jacobian product for each real number of the state, all at once. A cotangent c of a complex state reads
    Re[c dh]: 1 gives the real part and -i the imaginary one.
    """
    value, pull = jax.vjp(function, parameters)
    leaves, structure = jax.tree.flatten(value)
    rows = []
    # All at once, each would hold whole matrices before their columns are taken.
    few = any(leaf is not None for chosen in columns if chosen is not None for leaf in chosen)
    each: Any = (lambda f: partial(lax.map, f, batch_size=_TOGETHER)) if few else jax.vmap
    for k, leaf in enumerate(leaves):

        def read(cotangent: Array, k: int = k) -> Groups:
            found = pull(only(value, k, cotangent))[0]
            return [narrowed(group, chosen) for group, chosen in zip(found, columns, strict=True)]

        one = jnp.diag(jnp.ones_like(leaf))
        one = one if modules is None else one[modules]
        if jnp.iscomplexobj(leaf):
            parts = each(read)(jnp.concatenate([one, -1j * one]))
            n = len(one)
            rows.append(jax.tree.map(lambda part, n=n: lax.complex(part[:n], part[n:]), parts))
        else:
            rows.append(each(read)(one))
    return [structure.unflatten([row[j] for row in rows]) for j in range(len(parameters))]


def row(tree: Any, i: Any) -> Any:
    """Return entry i of every leaf, or the entries i."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _normalise(norm: LayerNorm | None, x: Float[Array, "C H"]) -> Float[Array, "C H"]:
    return x if norm is None else jax.vmap(norm)(x)
