"""Nodes of an ONNX graph under construction, each stored once."""

import importlib
from typing import Any

import numpy as np

from foretrace._graph.real_valued import NotExportable

OPSET, IR_VERSION = 18, 9
"""Versions of ONNX from early 2023, which every present runtime reads."""


def onnx_package() -> Any:
    """Return the package `onnx`.

    Raises:
        ImportError: the package is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            "format='onnx' needs the package onnx, which is not installed; pip install "
            "'foretrace[export]'"
        ) from error


class Nodes:
    """Nodes and constants, in the order in which they are needed."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._known: dict[Any, Any] = {}
        self._helper = onnx_package().helper

    def constant(self, value: Any) -> str:
        """Return the name of a constant. Equal constants are stored once."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants[self._known[key]] = np.array(array)
        return self._known[key]

    def integers(self, values: Any) -> str:
        """Return the name of a constant vector of sizes or positions."""
        return self.constant(np.array(tuple(values), np.int64))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of a node's output; add the node unless there is an equal one."""
        key = (operator, inputs, str(attributes))
        if key not in self._known:
            self._known[key] = f"v{len(self.nodes)}"
            node = self._helper.make_node(operator, inputs, [self._known[key]], **attributes)
            self.nodes.append(node)
        return self._known[key]

    def dtype(self, dtype: Any) -> int:
        """Return the number of a dtype in ONNX.

        Raises:
            NotExportable: ONNX does not have the dtype.
        """
        try:
            return self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        except (KeyError, ValueError, TypeError) as error:
            raise NotExportable(f"ONNX has no numbers of dtype {dtype}") from error
