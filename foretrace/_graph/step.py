"""One step of a network or a learner as a function of named real arrays."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._engine.carry import init_carry
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._graph.real_valued import real_valued, traced
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import BPTT
from foretrace._types import Array, PyTree

NEXT = "next."
"""Prefix that a state's name has among the outputs."""


class Graph(NamedTuple):
    """One traced step.

    Args:
        closed: traced function of real arrays, without loops.
        state: initial value of each state, by name, in the order of the inputs.
        data: shape and dtype of the inputs after the states: x, and y if the step learns.
        results: names of the outputs before the states.
    """

    closed: Any
    state: dict[str, np.ndarray]
    data: dict[str, jax.ShapeDtypeStruct]
    results: list[str]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs."""
        return [*self.state, *self.data]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs; the names of the next states have the prefix `NEXT`."""
        return [*self.results, *(NEXT + name for name in self.state)]


def inference_graph(
    network: AbstractNetwork,
    readout: Callable[[Array], Array] | None = None,
    inputs: Callable[[Array], Array] | None = None,
    outputs: Callable[[Array], Array] | None = None,
) -> Graph:
    """Return the step `x, h -> outputs, h`, with the parameters as constants.

    Args:
        network: network to export.
        readout: function of the features of a step, instead of the network's decoder.
        inputs: function of x that returns the network's inputs, such as a normalisation. Default: x
            itself.
        outputs: function of the network's outputs that is returned. Default: the outputs.

    Raises:
        ValueError: the network runs only on whole sequences.
    """
    _check_network(network)
    start = Carry(init_carry(network, BPTT).h, None)

    def step(carry: Carry, x: Array) -> tuple[list[Array], Carry]:
        row = x if inputs is None else inputs(x)
        (found,), after = run(network, carry, Data(row[None]), rule=BPTT, readout=readout)
        assert after is not None
        return [found if outputs is None else outputs(found)], after

    x = jax.ShapeDtypeStruct((network.input_size,), network.dtype)
    return traced_graph(step, start, "carry.", {"x": x}, ["outputs"])


def learning_graph(learner: Learner, state: LearnerState | None, target: Any) -> Graph:
    """Return the step `x, y, state -> outputs, loss, accepted, state` of `Learner.step`.

    Raises:
        ValueError: the learner takes several streams, or its step depends on random numbers.
    """
    check_learner(learner)
    start = without_key(learner.init() if state is None else state)

    def step(bare: Any, x: Array, y: Array) -> tuple[list[Array], Any]:
        # The key is used by dropout and by rules that sample, and neither can be exported.
        after, info = learner.step(bare._replace(key=jax.random.key(0)), x[None], y[None])
        return [info.outputs[0], info.loss, info.accepted], without_key(after)

    x = jax.ShapeDtypeStruct((learner.network.input_size,), learner.network.dtype)
    y = _target(learner, x.dtype) if target is None else _shape_of(target)
    return traced_graph(step, start, "", {"x": x, "y": y}, ["outputs", "loss", "accepted"])


def without_key(state: Any) -> Any:
    """Return a state without its PRNG key, because no exported step uses a key."""
    return state._replace(key=None)


def traced_graph(
    step: Callable,
    start: PyTree[Array],
    prefix: str,
    data: dict[str, jax.ShapeDtypeStruct],
    results: list[str],
) -> Graph:
    """Return a function of a state and data as a graph of real arrays.

    Args:
        step: function of the state and the data that returns a list of results and the next state.
        start: initial state.
        prefix: prefix of the names of the states.
        data: name, shape and dtype of each data input.
        results: names of the results.

    Raises:
        NotExportable: an operation has no real-valued form.
    """
    leaves, structure = jax.tree.flatten(start)
    state: dict[str, Array] = {}
    for path, leaf in jax.tree.leaves_with_path(start):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        state |= _real_arrays(prefix + name, leaf)

    def of_real_arrays(*arguments: Array) -> list[Array]:
        pieces = iter(arguments[: len(state)])
        parts = [
            jax.lax.complex(next(pieces), next(pieces)) if jnp.iscomplexobj(leaf) else next(pieces)
            for leaf in leaves
        ]
        found, after = step(structure.unflatten(parts), *arguments[len(state) :])
        for leaf in jax.tree.leaves(after):
            found += _real_arrays("", leaf).values()
        return found

    shapes = [*map(_shape_of, state.values()), *data.values()]
    closed = traced(real_valued(of_real_arrays, shapes), shapes)
    # A tree would sort the names.
    values = {name: np.asarray(value) for name, value in state.items()}
    return Graph(closed, values, data, results)


def _real_arrays(name: str, leaf: Array) -> dict[str, Array]:
    """Return an array by its name, or a complex array as two parts."""
    is_complex = jnp.iscomplexobj(leaf)
    return {f"{name}.re": leaf.real, f"{name}.im": leaf.imag} if is_complex else {name: leaf}


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    value = value if hasattr(value, "dtype") else jnp.asarray(value)
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _target(learner: Learner, dtype: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of a target that the loss takes: a number for each output, or a class."""
    output = jax.ShapeDtypeStruct((learner.network.output_size,), dtype)
    for target in (output, jax.ShapeDtypeStruct((), jnp.int32)):
        with contextlib.suppress(TypeError, ValueError, AssertionError):
            if jax.eval_shape(learner.loss, output, target).shape == ():
                return target
    raise ValueError(
        "export(learn=True): the loss takes neither a number for each output nor one integer class "
        "as its target; give an example of a target: target=…"
    )


def _check_network(network: AbstractNetwork) -> None:
    if network.cumulative_mean:
        raise ValueError(
            "a network with cumulative_mean=True decodes a mean over the whole sequence and has no "
            "single step to export; train one with cumulative_mean=False"
        )


def check_learner(learner: Learner) -> None:
    """Raise a ValueError with the reason if the learning step cannot be a plain graph."""
    _check_network(learner.network)
    masks = jax.eval_shape(learner.network.dropout_masks, jax.random.key(0))
    for what, is_set in {
        "accumulate=True": learner.accumulate,
        "whole_sequences=True": learner.whole_sequences,
        f"batch_size={learner.batch_size}": learner.batch_size is not None,
        f"the rule {learner.rule}, which samples what it carries": learner.rule.samples,
        "dropout, which samples masks": masks is not None,
    }.items():
        if is_set:
            raise ValueError(
                "export(learn=True) writes the step of one stream that learns at every step and "
                f"draws no random numbers, and this learner has {what}; make a Learner with the "
                "trained network and without that"
            )
