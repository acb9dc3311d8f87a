"""The mixture of a stream compiled to machine code: the option `backend`.

The traced step is that of `Mixture`, for one row. Its state stays in the memory of a context, and
becomes arrays where a checkpoint, a report or the weights ask for them.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._graph.step import Graph, check_learner, traced_graph
from foretrace._native.compiler import compiled
from foretrace._native.context import Context
from foretrace._native.program import stream_program
from foretrace._types import Array
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.rows import unpack, width
from foretrace.stream.model.state import Mixed, MixtureState, Report, network_in, with_network

_NAME = "model"


class _Kept(NamedTuple):
    """A state in the memory of a C context.

    Args:
        context: everything but the PRNG key of the network.
        key: this key; None without a network.
    """

    context: Context
    key: Any


class NativeMixture:
    """A mixture whose learning step is a compiled C program.

    Args:
        mixture: the mixture; its learner draws nothing.

    Raises:
        ValueError: the network draws.
        foretrace.CompilerError: there is no C compiler.
    """

    def __init__(self, mixture: Mixture):
        if mixture.network is not None:
            check_learner(mixture.network)
        self.mixture = mixture
        graph = _graph(mixture)
        self._program = program = stream_program(_NAME, graph, None)
        self.packing = self
        self._step: Callable[..., None] = getattr(
            compiled(program.source, program.header, _NAME), f"{_NAME}_step"
        )
        self._results = [
            (name, var.aval.shape, var.aval.dtype)
            for name, var in zip(graph.results, graph.closed.jaxpr.outvars, strict=False)
        ]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the JAX mixture, such as the names of the experts."""
        if name == "mixture":  # not there yet, in a copy
            raise AttributeError(name)
        return getattr(self.mixture, name)

    def pack(self, state: MixtureState) -> _Kept:
        """Return a state in the memory of a new context."""
        network = network_in(state)
        key = None if network is None else network.learner.key
        return _Kept(Context(self._program, with_key(state, None)), key)

    def unpack(self, kept: _Kept) -> MixtureState:
        """Return a copy of the arrays of a state."""
        return with_key(kept.context.state(), kept.key)

    def step(self, kept: _Kept, rows: np.ndarray) -> tuple[_Kept, Mixed]:
        """Predict each row, and learn from the row whose label arrived, in place."""
        found: dict[str, Any] = {
            name: np.zeros((len(rows), *shape), dtype) for name, shape, dtype in self._results
        }
        rows = np.ascontiguousarray(rows)
        for place, row in enumerate(rows):
            results = (ctypes.c_void_p(array[place].ctypes.data) for array in found.values())
            self._step(kept.context.pointer, ctypes.c_void_p(row.ctypes.data), *results)
        if (count := found.get("num_classes")) is not None:
            found["num_classes"] = count[:, 0]
        return kept, Mixed(**found)

    def newest(self, kept: _Kept, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return predictions of the last pending rows of streams, and their margins."""
        return self.mixture.newest(self.unpack(kept), slots)

    def outliers(self, kept: _Kept, rows: np.ndarray) -> Any:
        """Return which numbers of rows are outliers; the state is unchanged."""
        return self.mixture.outliers(self.unpack(kept), rows)

    def report(self, kept: _Kept) -> Report:
        """Return a state's values for a line of the record."""
        return self.mixture.report(self.unpack(kept))

    def ended(self, kept: _Kept, *, block: bool) -> _Kept:
        """Return the state with the sums since the last line and block reset."""
        state = jax.tree.map(jnp.asarray, self.unpack(kept))
        return self.pack(self.mixture.ended(state, block=block))


def _graph(mixture: Mixture) -> Graph:
    """Return the graph of a packed row and its label."""
    with jax.enable_x64(True):
        # The values are no part of the program: runs that differ in them alone share it.
        blank = jax.tree.map(jnp.zeros_like, with_key(mixture.init(), None))

        def row_of(before: MixtureState, row: Array) -> tuple[MixtureState, Mixed]:
            state = with_key(before, jax.random.key(0))
            return mixture.traced_step(state, unpack(mixture.shape, row))

        def step(before: MixtureState, row: Array) -> tuple[list[Array], MixtureState]:
            state, mixed = row_of(before, row)
            # C returns a single number, and takes the place of an array.
            found = [jnp.atleast_1d(leaf) for leaf in mixed if leaf is not None]
            return found, with_key(state, None)

        row = jax.ShapeDtypeStruct((width(mixture.shape),), jnp.float64)
        made = jax.eval_shape(row_of, blank, row)[1]._asdict()
        names = [name for name, part in made.items() if part is not None]
        return traced_graph(step, blank, "", {"x": row}, names)


def with_key(state: MixtureState, key: Any) -> MixtureState:
    """Return a state with another PRNG key, which C does not use."""
    network = network_in(state)
    return (
        state if network is None else with_network(state, learner=network.learner._replace(key=key))
    )
