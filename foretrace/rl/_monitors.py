"""Values that a run watches beside its score: the memory's reach, and inactive modules."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._cells.abstract import AbstractCell, AbstractDiagonalCell, Coefficients
from foretrace._modules import ModuleNetwork
from foretrace._network import AbstractNetwork, Block, Network
from foretrace._types import Array, Float, State

STILL = 1e-6
"""Largest relative change of what counts as unchanged: some roundings of float32."""

SQUARINGS = 16
"""Squarings of a Jacobian for its spectral radius: a relative error of 1e-4."""


class Range(NamedTuple):
    """Smallest and largest states so far, of each module; real and imaginary parts apart."""

    lowest: tuple[tuple[Float[Array, "D B N ..."], ...], ...]
    highest: tuple[tuple[Float[Array, "D B N ..."], ...], ...]

    @classmethod
    def empty(cls, network: AbstractNetwork, h: State) -> "Range":
        """Return the range of no states."""
        parts = _states(network, h)
        return cls(*(jax.tree.map(partial(jnp.full_like, fill_value=f), parts) for f in _ENDS))

    def including(self, network: AbstractNetwork, h: State) -> "Range":
        """Return the range with one more state."""
        parts = _states(network, h)
        return Range(
            jax.tree.map(jnp.minimum, self.lowest, parts),
            jax.tree.map(jnp.maximum, self.highest, parts),
        )

    def dead(self) -> Float[Array, ""]:
        """Return the share of modules whose state did not move in any stream."""
        moved = [
            [
                _per_module((high - low) > STILL * jnp.maximum(jnp.abs(low), jnp.abs(high))).any(1)
                for low, high in zip(*ends, strict=True)
            ]
            for ends in zip(self.lowest, self.highest, strict=True)
        ]
        return _share_unmoved(moved)


_ENDS = (float("inf"), float("-inf"))
"""Smallest and largest of no numbers."""


def untrained(before: AbstractNetwork, after: AbstractNetwork) -> Float[Array, ""]:
    """Return the share of modules of the recurrent layers whose coefficients did not change."""
    moved = [
        [
            _per_module((jnp.abs(b - a) > STILL * jnp.abs(a))[:, None])[:, 0]
            for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        ]
        for old, new in zip(_coefficients(before), _coefficients(after), strict=True)
    ]
    return _share_unmoved(moved)


def spectral_radius(network: AbstractNetwork, h: State, x: Float[Array, "I"]) -> Float[Array, ""]:
    """Return the largest |eigenvalue| of `d h_t / d h_{t-1}` over the layers, for one stream.

    For a diagonal cell it is the largest |lambda|; at 1 and above, a state does not forget. A dense
    cell's Jacobian depends on where it is taken: at the next step of the stream.

        radius = lim ||J^k||^(1/k)        (Gelfand)

    Args:
        network: network.
        h: states before the step.
        x: input of the step.
    """
    if isinstance(network, ModuleNetwork):
        radii = []
        for cells, states in zip(network.layers, h, strict=True):
            outputs = [x]
            for cell, stacked in zip(cells, states, strict=True):
                theta, own = cell.coefficients(), jax.tree.map(lambda leaf: leaf[0], stacked)
                radii.append(_radius(cell, theta, own, x))
                outputs.append(cell.readout(cell.step(theta, own, own, x), x))
            x = jnp.concatenate(outputs)
        return jnp.stack(radii).max()
    assert isinstance(network, Network)

    def layer(x: Array, now: tuple[Block, State]) -> tuple[Array, Array]:
        block, h = now
        z, theta = block.before(x), block.cell.coefficients()
        radius = _radius(block.cell, theta, h, z)
        return block.after(x, block.cell.readout(block.cell.step(theta, h, h, z), z), None), radius

    return lax.scan(layer, network.encoder(x), (network.blocks, h))[1].max()


def _radius(
    cell: AbstractCell, theta: Coefficients, h: State, z: Float[Array, "H"]
) -> Float[Array, ""]:
    if isinstance(cell, AbstractDiagonalCell):
        return jnp.abs(cell.decay_and_drive(theta, z)[0]).max()
    flat, restore = ravel_pytree(real_parts(h))

    def step(flat: Array) -> Array:
        own = _with_parts(h, restore(flat))
        return ravel_pytree(real_parts(cell.step(theta, own, own, z)))[0]

    jacobian, logarithm = jax.jacfwd(step)(flat), jnp.zeros((), flat.dtype)
    for k in range(SQUARINGS):
        size = jnp.maximum(jnp.linalg.norm(jacobian), jnp.finfo(flat.dtype).tiny)
        jacobian, logarithm = jacobian / size, logarithm + jnp.log(size) / 2**k
        jacobian = jacobian @ jacobian
    return jnp.exp(logarithm)


def real_parts(tree: Any) -> tuple[Array, ...]:
    """Return the leaves of a tree, complex ones as real and imaginary part."""
    parts: list[Array] = []
    for leaf in jax.tree.leaves(tree):
        parts += [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]
    return tuple(parts)


def _with_parts(tree: Any, parts: tuple[Array, ...]) -> Any:
    """Undo `real_parts` in the structure of a tree."""
    rest, leaves = iter(parts), []
    for leaf in jax.tree.leaves(tree):
        leaves.append(lax.complex(next(rest), next(rest)) if jnp.iscomplexobj(leaf) else next(rest))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _states(network: AbstractNetwork, h: State) -> tuple[tuple[Array, ...], ...]:
    """Return the states of each kind of cell with axes (D, B, N, …)."""
    if not isinstance(network, ModuleNetwork):
        return (real_parts(h),)
    return tuple(real_parts(state) for states in h for state in states)


def _coefficients(network: AbstractNetwork) -> list[Coefficients]:
    """Return the coefficients of each kind of cell with axes (D, N, …)."""
    if isinstance(network, ModuleNetwork):
        cells = [cell for layer in network.layers for cell in layer]
        return [jax.tree.map(lambda leaf: leaf[None], cell.coefficients()) for cell in cells]
    assert isinstance(network, Network)
    return [jax.vmap(lambda cell: cell.coefficients())(network.blocks.cell)]


def _share_unmoved(moved: list[list[Array]]) -> Float[Array, ""]:
    """Return the share of modules of which nothing moved, for each kind of cell its parts."""
    return (~jnp.concatenate([jnp.stack(parts).any(0).ravel() for parts in moved])).mean()


def _per_module(moved: Array) -> Array:
    """Return whether anything of a module moved: (D, B, N, …) becomes (D, B, N)."""
    return moved.reshape(*moved.shape[:3], -1).any(-1)
