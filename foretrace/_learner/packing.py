"""A tree of arrays as few arrays: a compiled program pays about a microsecond for each array it takes and returns.

Arrays of at most `SMALL` elements lie behind each other in one vector for each dtype. Larger ones stay as they are, so
that a program changes them in place, and so does a PRNG key.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array

SMALL = 1024
"""Largest number of elements of an array that is put into a vector with others."""


class Packed(NamedTuple):
    """A tree of arrays as few arrays.

    Args:
        large: arrays of more than `SMALL` elements, and PRNG keys.
        small: a vector of all others for each dtype.
    """

    large: tuple[Array, ...]
    small: tuple[Array, ...]


class Packing:
    """Turn trees of one structure into few arrays and back, also inside of a compiled program.

    Args:
        like: tree of arrays, or of their shapes.

    >>> packing = Packing({"a": jnp.ones(2), "b": jnp.zeros((1, 3)), "c": jnp.zeros(2000)})
    >>> packed = packing.pack({"a": jnp.ones(2), "b": jnp.zeros((1, 3)), "c": jnp.zeros(2000)})
    >>> [leaf.shape for leaf in jax.tree.leaves(packed)], packing.unpack(packed)["b"].shape
    ([(2000,), (5,)], (1, 3))
    """

    def __init__(self, like: Any):
        self._like, self._tree = jax.tree.flatten(like)
        self._is_large = [math.prod(leaf.shape) > SMALL or is_key(leaf) for leaf in self._like]
        small = [leaf for leaf, large in zip(self._like, self._is_large, strict=True) if not large]
        self._dtypes = sorted({np.dtype(leaf.dtype) for leaf in small}, key=str)

    def pack(self, tree: Any) -> Packed:
        """Return the arrays of a tree as few arrays."""
        leaves = jax.tree.leaves(tree)
        large = tuple(leaf for leaf, is_large in zip(leaves, self._is_large, strict=True) if is_large)
        small = [leaf for leaf, is_large in zip(leaves, self._is_large, strict=True) if not is_large]
        return Packed(
            large, tuple(jnp.concatenate([leaf.ravel() for leaf in small if leaf.dtype == d]) for d in self._dtypes)
        )

    def unpack(self, packed: Packed) -> Any:
        """Return the tree of arrays that `pack` was called on."""
        large, ends, leaves = iter(packed.large), dict.fromkeys(self._dtypes, 0), []
        vectors = dict(zip(self._dtypes, packed.small, strict=True))
        for like, is_large in zip(self._like, self._is_large, strict=True):
            if is_large:
                leaves.append(next(large))
                continue
            dtype = np.dtype(like.dtype)
            at, ends[dtype] = ends[dtype], ends[dtype] + math.prod(like.shape)
            leaves.append(vectors[dtype][at : ends[dtype]].reshape(like.shape))
        return jax.tree.unflatten(self._tree, leaves)

    def taking_packed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of a tree, and more, that also takes the tree packed.

        Args:
            function: function whose first argument is the tree.
        """
        return lambda tree, *more: function(self.unpack(tree) if isinstance(tree, Packed) else tree, *more)

    def keeping_packed(self, function: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Return a function from a tree to the next one, and more, that returns the tree packed if it got it packed.

        Args:
            function: function whose first argument is the tree, and whose first result is the next tree.
        """

        def kept(tree: Any, *more: Any) -> tuple[Any, Any]:
            if not isinstance(tree, Packed):
                return function(tree, *more)
            after, found = function(self.unpack(tree), *more)
            return self.pack(after), found

        return kept


def is_key(leaf: Any) -> bool:
    """Return whether an array holds PRNG keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
