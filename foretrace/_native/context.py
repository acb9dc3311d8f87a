"""The memory of a compiled model, which is filled from a state and read back into a state."""

import ctypes
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._native.function import Leaf
from foretrace._native.program import Program
from foretrace._types import PyTree


class Context:
    """The struct of a program, to which all its functions refer.

    Args:
        program: the program.
        state: initial state.
    """

    def __init__(self, program: Program, state: PyTree):
        self.program = program
        fields: list[tuple[str, Any]] = [
            (name, np.ctypeslib.as_ctypes_type(dtype) * size)
            for name, dtype, size in program.fields
        ]
        self._struct = type("Context", (ctypes.Structure,), {"_fields_": fields})()
        self._leaves, self._tree = jax.tree.flatten(jax.eval_shape(lambda: state))
        self.pointer = ctypes.c_void_p(ctypes.addressof(self._struct))
        self._fill(state)

    def state(self) -> PyTree:
        """Return a copy of the present state."""
        parts = iter([self._read(leaf) for leaf in self.program.layout.leaves])
        with jax.enable_x64(True):  # float64 stays float64 in any mode
            leaves = [
                jnp.asarray(next(parts) + 1j * next(parts), leaf.dtype)
                if jnp.iscomplexobj(leaf)
                else jnp.asarray(next(parts))
                for leaf in self._leaves
            ]
        return jax.tree.unflatten(self._tree, leaves)

    def _fill(self, state: PyTree) -> None:
        found = []
        for leaf in jax.tree.leaves(state):
            value = np.asarray(leaf)
            found += [value.real, value.imag] if np.iscomplexobj(value) else [value]
        for leaf, value in zip(self.program.layout.leaves, found, strict=True):
            self._place(leaf)[:] = value.ravel()

    def _read(self, leaf: Leaf) -> np.ndarray:
        return self._place(leaf).reshape(leaf.value.shape).copy()

    def _place(self, leaf: Leaf) -> np.ndarray:
        """Return the present value of a state as a view into the struct."""
        array = np.ctypeslib.as_array(getattr(self._struct, leaf.field)).view(leaf.value.dtype)
        start = leaf.offset + (len(array) // 2 if leaf.twice and self._struct.now[0] else 0)
        return array[start : start + leaf.value.size]
