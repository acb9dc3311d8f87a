"""Nodes of a network: groups of parameters that share a covariance in a second-order step.

In a recurrent layer, a node is one module: all parameters of its recurrence, and the parameters of
the readout that belong to it. In other layers, a node is one unit: a row of a weight matrix with
its bias. Nodes of equal shape are stacked, so that all of them are updated at once.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, marked, read_by_coefficients
from foretrace._types import Array, Float, PyTree


class NodeGroup(NamedTuple):
    """Nodes of equal shape.

    Args:
        leaves: indices of the network's leaves that contain the nodes.
        front: leading axes of these leaves. Each entry along these axes is a node.
    """

    leaves: tuple[int, ...]
    front: tuple[int, ...]


def node_groups(network: PyTree, held: PyTree[bool]) -> tuple[NodeGroup, ...]:
    """Return the nodes of a network, without its frozen parameters.

    Args:
        network: network, or a network of shapes.
        held: tree like the network, True for parameters that are frozen.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    paths = jax.tree.leaves_with_path(network)
    for number, ((path, leaf), hold) in enumerate(zip(paths, jax.tree.leaves(held), strict=True)):
        if not hold:
            found.setdefault(_node_of(network, path, leaf), []).append(number)
    return tuple(NodeGroup(tuple(leaves), key[-1]) for key, leaves in found.items())


def gathered(
    groups: tuple[NodeGroup, ...], tree: PyTree[Array], axes: int = 0
) -> list[Float[Array, "... M p"]]:
    """Return the entries of each group as arrays of nodes times parameters.

    Args:
        groups: groups of nodes.
        tree: tree like the network. Every leaf has `axes` additional axes in front.
        axes: number of additional axes, which stay in front.
    """
    leaves = jax.tree.leaves(tree)

    def vectors(group: NodeGroup) -> Array:
        parts = [leaves[number] for number in group.leaves]
        shape = (*parts[0].shape[:axes], math.prod(group.front), -1)
        return jnp.concatenate([part.reshape(shape) for part in parts], axis=-1)

    return [vectors(group) for group in groups]


def scattered(
    groups: tuple[NodeGroup, ...], vectors: list[Float[Array, "M p"]], like: PyTree[Array]
) -> Any:
    """Undo `gathered`. Parameters that are in no group are zero."""
    leaves, structure = jax.tree.flatten(like)
    found = [jnp.zeros_like(leaf) for leaf in leaves]
    for group, rows in zip(groups, vectors, strict=True):
        at = 0
        for number in group.leaves:
            size = leaves[number].size // rows.shape[0]
            found[number] = rows[:, at : at + size].reshape(leaves[number].shape)
            at += size
    return structure.unflatten(found)


def _node_of(network: PyTree, path: tuple, leaf: Any) -> tuple[Any, ...]:
    """Return a key for the nodes of a leaf (equal keys share nodes), with its order of axes."""
    # The blocks of a network are stacked.
    stacked = 1 if getattr(path[0], "name", None) == "blocks" else 0
    front = leaf.shape[: stacked + 1]
    cells = jax.tree.leaves_with_path(network, is_leaf=lambda node: isinstance(node, AbstractCell))
    for at, cell in cells:
        if isinstance(cell, AbstractCell) and path[: len(at)] == at:
            own = module_fields(cell if not stacked else _first(cell))
            name = jax.tree_util.keystr(path[len(at) :])
            if name in own and front[stacked:] == (cell.state_size,):
                return jax.tree_util.keystr(at), "modules", front
    return jax.tree_util.keystr(path[:-1]), "rows", front


def module_fields(cell: AbstractCell) -> set[str]:
    """Return the paths of a cell's parameters that belong to single modules."""
    paths = [path for path, _ in jax.tree.leaves_with_path(cell)]
    read = read_by_coefficients(cell)
    own = {jax.tree_util.keystr(path) for path, hit in zip(paths, read, strict=True) if hit}
    return own | marked(cell, "module_readout")


def _first(cell: AbstractCell) -> AbstractCell:
    """Return the shapes of a single cell of a stack."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), cell)
