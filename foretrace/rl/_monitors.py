"""Monitored values of a run: the range of the memory, and inactive modules."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from foretrace._cells.abstract import AbstractCell, AbstractDiagonalCell
from foretrace._network import AbstractNetwork
from foretrace._types import Array, Bool, Float, State

STILL = 1e-6
"""Largest relative change that counts as no change: a few rounding errors of float32."""

SQUARINGS = 16
"""Number of squarings of a Jacobian for its spectral radius, for a relative error of 1e-4."""


def dead(network: AbstractNetwork, moved: Any) -> Float[Array, ""]:
    """Return the fraction of modules whose state has not changed in any stream.

    Args:
        network: network.
        moved: whether each number of the states has changed.
    """
    return _share_without(network.each_cell(lambda _, part: _any_of_module(part, 1), moved))


def untrained(before: AbstractNetwork, after: AbstractNetwork) -> Float[Array, ""]:
    """Return the fraction of recurrent modules whose coefficients have not changed."""
    old, new = (network.each_cell(lambda cell: cell.coefficients()) for network in (before, after))
    return _share_without(
        after.each_cell(lambda _, part: _any_of_module(part, 0), has_moved(old, new))
    )


def has_moved(before: Any, after: Any) -> Any:
    """Return, for each number of a tree, whether it has changed by more than rounding errors."""

    def moved(a: Array, b: Array) -> Array:
        return jnp.abs(b - a) > STILL * jnp.maximum(jnp.abs(a), jnp.abs(b))

    return jax.tree.map(moved, before, after)


def spectral_radius(network: AbstractNetwork, h: State) -> Float[Array, ""]:
    """Return the largest |eigenvalue| of `d h_t / d h_{t-1}` at zero input, over all cells.

    For a diagonal cell it is the largest |lambda|. If it is 1 or larger, a state does not decay.
    The Jacobian of a dense cell is taken at the states of one stream.

        radius = lim ||J^k||^(1/k)        (Gelfand)

    Args:
        network: network.
        network: network.
        h: states of one stream.
    """
    radii = jax.tree.leaves(network.each_cell(_radius, h))
    return jnp.concatenate([*map(jnp.ravel, radii)]).max()


def _radius(cell: AbstractCell, h: State) -> Float[Array, ""]:
    theta, (flat, restore) = cell.coefficients(), ravel_pytree(h)
    z = jnp.zeros(cell.input_size, flat.real.dtype)
    if isinstance(cell, AbstractDiagonalCell):
        return jnp.abs(cell.decay_and_drive(theta, z)[0]).max()

    def step(flat: Array) -> Array:
        own = restore(flat)
        return ravel_pytree(cell.step(theta, own, own, z))[0]

    jacobian = jax.jacfwd(step, holomorphic=jnp.iscomplexobj(flat))(flat)
    logarithm = jnp.zeros((), flat.real.dtype)
    for k in range(SQUARINGS):
        size = jnp.maximum(jnp.linalg.norm(jacobian), jnp.finfo(flat.dtype).tiny)
        jacobian, logarithm = jacobian / size, logarithm + jnp.log(size) / 2**k
        jacobian = jacobian @ jacobian
    return jnp.exp(logarithm)


def _any_of_module(moved: Any, axis: int) -> Bool[Array, "N"]:
    """Return whether any number of a module has changed, along the cell's module axis."""
    parts = [jnp.moveaxis(leaf, axis, 0) for leaf in jax.tree.leaves(moved)]
    return jnp.stack([part.reshape(len(part), -1).any(1) for part in parts]).any(0)


def _share_without(modules: Any) -> Float[Array, ""]:
    """Return the fraction of modules, over all cells, whose value is False."""
    return (~jnp.concatenate([part.ravel() for part in jax.tree.leaves(modules)])).mean()
