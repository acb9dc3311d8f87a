"""The nodes of an ONNX graph while it is written: names, constants, and no node twice."""

import importlib
from typing import Any

import numpy as np

from foretrace._graph.real_valued import NotExportable

OPSET, IR_VERSION = 18, 9
"""Versions of ONNX from early 2023, which every runtime of today reads."""


def onnx_package() -> Any:
    """Return the package `onnx`.

    Raises:
        ImportError: it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            "format='onnx' needs the package onnx, which is not installed; pip install "
            "'foretrace[export]'"
        ) from error


class Nodes:
    """Nodes and constants in the order in which they are needed."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._known: dict[Any, Any] = {}
        self._helper = onnx_package().helper

    def constant(self, value: Any) -> str:
        """Return the name of a constant; equal ones are stored once."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants[self._known[key]] = np.array(array)
        return self._known[key]

    def integers(self, values: Any) -> str:
        """Return the name of a constant vector of sizes or positions."""
        return self.constant(np.array(tuple(values), np.int64))

    def many(self, operator: str, inputs: list[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; return their names."""
        key = (
            operator,
            tuple(inputs),
            count,
            tuple(sorted((name, str(v)) for name, v in attributes.items())),
        )
        if key not in self._known:
            names = [f"v{len(self.nodes)}" + (f"_{i}" if count > 1 else "") for i in range(count)]
            self.nodes.append(self._helper.make_node(operator, inputs, names, **attributes))
            self._known[key] = names
        return self._known[key]

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        return self.many(operator, list(inputs), 1, **attributes)[0]

    def dtype(self, dtype: Any) -> int:
        """Return the number of a dtype in ONNX.

        Raises:
            NotExportable: a dtype that the format lacks.
        """
        try:
            return self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        except (KeyError, ValueError, TypeError) as error:
            raise NotExportable(f"ONNX has no numbers of dtype {dtype}") from error
