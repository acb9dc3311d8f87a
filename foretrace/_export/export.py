"""Write one step of a network or a learner as a graph, with its initial state and a header."""

import importlib.metadata
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.extend.core as core
import numpy as np
from jax import export as jax_export
from safetensors.numpy import save as to_bytes

from foretrace._export.onnx_graph import onnx_model
from foretrace._graph.real_valued import NotExportable
from foretrace._graph.step import NEXT, Graph, inference_graph, learning_graph
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._native.program import (
    Program,
    inference_program,
    learning_program,
    stream_program,
)
from foretrace._network import AbstractNetwork
from foretrace._runs.files import write_atomically
from foretrace._types import Array

Format = Literal["stablehlo", "onnx", "c"]


class Exported(NamedTuple):
    """The files of an export.

    Args:
        graph: the step, in the requested format.
        state: initial value of every state, by the name of its input (safetensors).
        header: names, shapes and dtypes of inputs and outputs in their order (JSON).
    """

    graph: Path
    state: Path
    header: Path

    @property
    def include(self) -> Path | None:
        """The C header file for format "c"; None for the other formats."""
        return self.graph.with_suffix(".h") if self.graph.suffix == ".c" else None


def export(
    model: AbstractNetwork | Learner,
    path: str | os.PathLike[str],
    format: Format = "stablehlo",
    learn: bool = False,
    *,
    state: LearnerState | None = None,
    target: Any = None,
) -> Exported:
    """Write one step as a plain graph that runs without Python, JAX or foretrace.

    An exact online step has no loop over time, so the learning step is a plain graph, too. All
    arrays are real: a complex state `h` is two inputs, `h.re` and `h.im`. A runtime calls the graph
    once for each row and passes each output `next.NAME` back as the input `NAME`:

        inference    state, x     -> outputs, next state                  parameters are constants
        learning     state, x, y  -> outputs, loss, accepted, next state  parameters are states

    In C, parameters and optimiser are fields of a context. The functions `NAME_init`, `NAME_step`,
    `NAME_predict` and `NAME_reset` take this context as an argument. NAME is the name of the file.
    If C already uses this name, as in `exp.c`, `_model` is added to it.

    Three files are written: the graph at `path`, and in the same folder the initial state
    (`.state.safetensors`) and a header (`.header.json`). They contain only data, and reading them
    executes nothing.

    Args:
        model: network, or learner with its rule, optimiser and loss.
        path: file of the graph, such as model.onnx. Its folder must exist.
        format: "stablehlo" is portable StableHLO bytecode. "onnx" needs the extra `export`. "c" is
            a C99 program with a header file (`.h`) that needs only <math.h> and <string.h> and
            allocates no memory.
        learn: whether to export the learning step of a learner, instead of the inference step.
        state: state of the learner, whose parameters are exported. Default: `model.init()`.
        target: example of a target for learn=True, of which shape and dtype are used. Default:
            whichever the loss takes, a number for each output or one integer class.

    Returns:
        The paths of the files.

    Raises:
        TypeError: the model is of another type, or learn=True is given for a network.
        ValueError: the format is unknown; the learner uses batches, whole sequences or accumulated
            gradients; the rule or dropout samples; the network has a cumulative mean; or the format
            cannot express an operation.
        ImportError: format="onnx" needs the package onnx, which is not installed.
        OSError: the folder is missing or not writable.

    >>> import foretrace as ft, jax, optax, tempfile
    >>> network = ft.Network(
    ...     2, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0)
    ... )
    >>> files = ft.export(network, tempfile.mkdtemp() + "/model.stablehlo")
    >>> files.state.name, files.header.name
    ('model.state.safetensors', 'model.header.json')
    """
    if format not in get_args(Format):
        raise ValueError(
            f"export(format={format!r}) is unknown; choose one of {', '.join(get_args(Format))}"
        )
    files = _files(path, format)
    graph, program = _graph(model, learn, state, target), None
    if format == "c":
        name = files.graph.stem
        if learn and isinstance(model, Learner):
            program = learning_program(model, name, state, graph)
        else:
            program = inference_program(name, graph)
    return _written(files, format, graph, program)


def export_network(
    network: AbstractNetwork,
    path: str | os.PathLike[str],
    format: Format,
    inputs: Callable[[Array], Array] | None,
    outputs: Callable[[Array], Array] | None = None,
) -> Exported:
    """Write the inference step of a network, as `export` does, with functions at both ends.

    Args:
        network: network to export.
        path: file of the graph.
        format: format of the graph.
        inputs: function of x that returns the network's inputs. Default: x itself.
        outputs: function of the network's outputs. Default: the outputs themselves.

    Raises:
        ValueError, ImportError, OSError: as for `export`.
    """
    files = _files(path, format)
    graph = inference_graph(network, inputs=inputs, outputs=outputs)
    return _written(
        files, format, graph, inference_program(files.graph.stem, graph) if format == "c" else None
    )


def export_stream(
    path: str | os.PathLike[str],
    step: Graph,
    predict: Graph,
    notes: Sequence[str],
    about: dict[str, Any],
) -> Exported:
    """Write the model of a stream as a C program.

    Args:
        path: C file.
        step: graph that learns from a row and its label.
        predict: graph that returns the prediction of a row.
        notes: lines of the header file about rows, labels and outputs.
        about: entries of the JSON header with the same content.

    Raises:
        ValueError, OSError: as for `export`.
    """
    files = _files(path, "c")
    program = stream_program(files.graph.stem, step, predict, notes)
    return _written(files, "c", step, program, about)


def _files(path: str | os.PathLike[str], format: Format) -> Exported:
    """Return the files of an export.

    Raises:
        ValueError: the name of the file is not allowed.
        OSError: the folder does not exist.
    """
    path = Path(path)
    if format == "c" and (
        path.suffix != ".c" or not re.fullmatch(r"[a-z]\w*", path.stem, re.ASCII)
    ):
        raise ValueError(
            f"export(path={str(path)!r}): the name of a C file begins the names of its functions; "
            "expected letters, digits and underscores with the suffix .c, such as model.c"
        )
    if path.suffix in (".safetensors", ".json"):
        raise ValueError(
            f"export(path={str(path)!r}): the suffix is that of a file beside it; use .onnx or "
            ".stablehlo"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot export to {path}: there is no folder {path.parent}; make it first"
        )
    return Exported(path, path.with_suffix(".state.safetensors"), path.with_suffix(".header.json"))


def _written(
    files: Exported,
    format: Format,
    graph: Graph,
    program: Program | None,
    about: dict[str, Any] | None = None,
) -> Exported:
    header = json.dumps(_header(graph, format, files.state.name) | (about or {}), indent=1)
    if program is None:
        write_atomically(files.graph, _WRITERS[format](graph, header))
    else:
        write_atomically(files.graph.with_suffix(".h"), program.header.encode())
        write_atomically(files.graph, program.source.encode())
    arrays = {
        name: np.ascontiguousarray(value).reshape(value.shape)
        for name, value in graph.state.items()
    }
    write_atomically(files.state, to_bytes(arrays, metadata={"foretrace": header}))
    write_atomically(files.header, header.encode())
    return files


def _graph(
    model: AbstractNetwork | Learner, learn: bool, state: LearnerState | None, target: Any
) -> Graph:
    if isinstance(model, Learner):
        if learn:
            return learning_graph(model, state, target)
        trained = model.init() if state is None else state
        return inference_graph(trained.network, model.readout(trained))
    if not isinstance(model, AbstractNetwork):
        raise TypeError(f"export writes a Network or a Learner, got {type(model).__name__}")
    if learn or state is not None:
        raise TypeError(
            "export(learn=True) and export(state=…) need a Learner, which knows rule, optimiser "
            "and loss; got a Network"
        )
    return inference_graph(model)


def _header(graph: Graph, format: str, state_file: str) -> dict[str, Any]:
    """Return names, shapes and dtypes of a graph's arguments and results, in order."""
    invars, outvars = graph.closed.jaxpr.invars, graph.closed.jaxpr.outvars

    def described(names: list[str], variables: Any) -> list[dict[str, Any]]:
        return [
            {"name": name, "shape": list(var.aval.shape), "dtype": str(var.aval.dtype)}
            for name, var in zip(names, variables, strict=True)
        ]

    return {
        "foretrace": importlib.metadata.version("foretrace"),
        "format": format,
        "step": "learning" if "y" in graph.data else "inference",
        "initial_state": state_file,
        "inputs": described(graph.inputs, invars),
        "outputs": described(graph.outputs, outvars),
        "state": {NEXT + name: name for name in graph.state},
    }


def _to_stablehlo(graph: Graph, header: str) -> bytes:
    step = core.jaxpr_as_fun(graph.closed)
    shapes = [
        jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in graph.closed.jaxpr.invars
    ]
    # An input that no output needs is kept, so that names and positions agree with the header.
    found = jax_export.export(jax.jit(step, keep_unused=True), platforms=("cpu",))(*shapes)
    if "custom_call" in found.mlir_module():
        raise NotExportable(
            "the step calls a function of the JAX runtime, which a portable graph cannot hold"
        )
    return bytes(found.mlir_module_serialized)


def _to_onnx(graph: Graph, header: str) -> bytes:
    return onnx_model(graph.closed, graph.inputs, graph.outputs, header)


_WRITERS: dict[str, Callable[[Graph, str], bytes]] = {"stablehlo": _to_stablehlo, "onnx": _to_onnx}
