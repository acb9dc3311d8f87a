"""Pack a tree into few arrays, because each argument of a compiled program costs about 1 us.

Small arrays are joined to one vector for each dtype. Larger arrays are kept, so that a program can
change them in place, and PRNG keys are kept, too. An optimiser packs its moments in the same way,
which saves dozens of small operations in each step of a small network.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._cells.parts import is_key
from foretrace._types import Array

SMALL = 1024
"""Default of the largest number of elements with which an array is joined to a vector."""


class Packed(NamedTuple):
    """A tree of arrays, packed into few arrays.

    Args:
        large: arrays with many elements, and PRNG keys.
        small: for each dtype, a vector of all other arrays.
    """

    large: tuple[Array, ...]
    small: tuple[Array, ...]


class Packing:
    """Pack trees of one structure into few arrays, and unpack them, also in compiled programs.

    Args:
        like: tree of arrays, or of their shapes.
        most: largest number of elements with which an array is joined to a vector.

    >>> packing = Packing({"a": jnp.ones(2), "b": jnp.zeros((1, 3)), "c": jnp.zeros(2000)})
    >>> packed = packing.pack({"a": jnp.ones(2), "b": jnp.zeros((1, 3)), "c": jnp.zeros(2000)})
    >>> [leaf.shape for leaf in jax.tree.leaves(packed)], packing.unpack(packed)["b"].shape
    ([(2000,), (5,)], (1, 3))
    """

    def __init__(self, like: Any, most: int = SMALL):
        self._like, self._tree = jax.tree.flatten(like)
        self._is_large = [math.prod(leaf.shape) > most or is_key(leaf) for leaf in self._like]
        _, small = self._split(self._like)
        self._dtypes = sorted({np.dtype(leaf.dtype) for leaf in small}, key=str)

    def pack(self, tree: Any) -> Packed:
        """Return the arrays of a tree as few arrays.

        Raises:
            TypeError: an array has another shape or dtype than in `like`.
        """
        leaves = jax.tree.leaves(tree)
        for leaf, like in zip(leaves, self._like, strict=True):
            if leaf.shape != like.shape or (leaf.dtype != like.dtype and not is_key(like)):
                raise TypeError(
                    f"a state with an array {leaf.dtype}{list(leaf.shape)}, where its learner has "
                    f"{like.dtype}{list(like.shape)}; make learner and state with the same "
                    "jax_enable_x64"
                )
        large, small = self._split(leaves)
        vectors = (_behind([leaf for leaf in small if leaf.dtype == d]) for d in self._dtypes)
        return Packed(tuple(large), tuple(vectors))

    def _split(self, leaves: list[Any]) -> list[list[Any]]:
        """Return the leaves that are kept, and the leaves that are joined to vectors."""
        pairs = [*zip(leaves, self._is_large, strict=True)]
        return [[leaf for leaf, large in pairs if large == wanted] for wanted in (True, False)]

    def unpack(self, packed: Any) -> Any:
        """Return the tree that was packed.

        Outside of a compiled program, small arrays are NumPy arrays that share the memory of
        `packed`. JAX does not write into this memory while they exist.
        """
        large, ends, leaves = iter(packed.large), dict.fromkeys(self._dtypes, 0), []
        vectors = dict(zip(self._dtypes, packed.small, strict=True))
        for like, is_large in zip(self._like, self._is_large, strict=True):
            if is_large:
                leaves.append(next(large))
                continue
            dtype = np.dtype(like.dtype)
            at, ends[dtype] = ends[dtype], ends[dtype] + math.prod(like.shape)
            leaves.append(_part(vectors[dtype], at, ends[dtype], like.shape))
        return jax.tree.unflatten(self._tree, leaves)

    def taking_packed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a first argument that may also be packed."""

        @functools.wraps(function)
        def taking(tree: Any, *more: Any) -> Any:
            return function(self.unpack(tree) if isinstance(tree, Packed) else tree, *more)

        return taking

    def keeping_packed(
        self, function: Callable[..., tuple[Any, Any]]
    ) -> Callable[..., tuple[Any, Any]]:
        """Return the function with a first argument that may also be packed.

        If the argument is packed, the first result is packed, too.

        Args:
            function: function of a tree and further arguments. It returns the next tree and another
                result.
        """

        @functools.wraps(function)
        def keeping(tree: Any, *more: Any) -> tuple[Any, Any]:
            if not isinstance(tree, Packed):
                return function(tree, *more)
            after, found = function(self.unpack(tree), *more)
            return self.pack(after), found

        return keeping


def _behind(arrays: list[Array]) -> Array:
    """Return arrays as one vector. Outside of a compiled program, NumPy joins them."""
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        return jnp.concatenate([array.ravel() for array in arrays])
    return _copied(np.concatenate([np.ravel(array) for array in arrays]))


def _part(vector: Any, first: int, end: int, shape: tuple[int, ...]) -> Any:
    """Return a slice of a vector in its original shape."""
    inside = isinstance(vector, jax.core.Tracer)
    return (vector if inside else np.asarray(vector))[first:end].reshape(shape)


def _copied(array: np.ndarray) -> Array:
    # A program may receive the memory of either array, so they share none. float64 stays float64 in
    # any mode.
    with jax.enable_x64(True):
        # `jnp.array` would compile a program for each shape. The first array may be a view of
        # NumPy's memory.
        return jax.device_put(jax.device_put(np.array(array)), may_alias=False)
