"""A real-valued function as an ONNX model: one node for each operation, with known shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.extend.core as core
import numpy as np

from foretrace._export.onnx_nodes import IR_VERSION, OPSET, Nodes, onnx_package
from foretrace._export.onnx_operators import ELEMENTWISE, OTHERS, reshaped
from foretrace._graph.real_valued import NotExportable


class _Value(NamedTuple):
    """Name in the graph, and a shape that is broadcast to the variable's shape."""

    name: str
    shape: tuple[int, ...]


def onnx_model(closed: Any, inputs: Sequence[str], outputs: Sequence[str], header: str) -> bytes:
    """Return a serialised ONNX model.

    Args:
        closed: traced function of real arrays, without loops.
        inputs: name of each argument.
        outputs: name of each result.
        header: text that is stored in the model under the key "foretrace".

    Raises:
        NotExportable: ONNX cannot express an operation or a dtype.
    """
    onnx = onnx_package()
    graph = _Graph(closed, inputs)
    for eqn in closed.jaxpr.eqns:
        graph.write(eqn)
    nodes = graph.nodes
    for atom, name in zip(closed.jaxpr.outvars, outputs, strict=True):
        nodes.nodes.append(onnx.helper.make_node("Identity", [graph.read(atom)], [name]))

    def described(names: Sequence[str], atoms: Any) -> list[Any]:
        return [
            onnx.helper.make_tensor_value_info(name, nodes.dtype(atom.aval.dtype), atom.aval.shape)
            for name, atom in zip(names, atoms, strict=True)
        ]

    body = onnx.helper.make_graph(
        nodes.nodes,
        "foretrace",
        described(inputs, closed.jaxpr.invars),
        described(outputs, closed.jaxpr.outvars),
        [onnx.numpy_helper.from_array(value, name) for name, value in nodes.constants.items()],
    )
    model = onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.helper.set_model_props(model, {"foretrace": header})
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _Graph:
    def __init__(self, closed: Any, inputs: Sequence[str]) -> None:
        self.nodes = Nodes()
        self.values: dict[Any, _Value] = {}
        for var, name in zip(closed.jaxpr.invars, inputs, strict=True):
            self.values[var] = _Value(name, var.aval.shape)
        for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self.values[var] = self._constant(const)

    def write(self, eqn: Any) -> None:
        """Add the nodes of one operation."""
        name, out = eqn.primitive.name, eqn.outvars[0]
        if name == "broadcast_in_dim":
            self.values[out] = self._repeatable(eqn)
        elif name in ELEMENTWISE:
            operands = self._together(eqn)
            found = ELEMENTWISE[name](self.nodes, eqn, *(value.name for value in operands))
            shape = np.broadcast_shapes(*(value.shape for value in operands))
            self.values[out] = _Value(found, shape)
        elif name in OTHERS:
            found = OTHERS[name](self.nodes, eqn, *map(self.read, eqn.invars))
            self.values[out] = _Value(found, out.aval.shape)
        else:
            raise NotExportable(
                f"the operation {name} has no form in ONNX here; use format='stablehlo'"
            )

    def read(self, atom: Any) -> str:
        """Return the name of a value, broadcast to its full shape."""
        value = self._value(atom)
        if value.shape == tuple(atom.aval.shape):
            return value.name
        return self.nodes.add("Expand", value.name, self.nodes.integers(atom.aval.shape))

    def _value(self, atom: Any) -> _Value:
        if isinstance(atom, core.Literal):
            aval: Any = atom.aval
            return self._constant(np.asarray(atom.val, aval.dtype))
        return self.values[atom]

    def _together(self, eqn: Any) -> list[_Value]:
        """Return the operands of an elementwise operation, repeated if they do not broadcast."""
        operands = [self._value(atom) for atom in eqn.invars]
        whole = tuple(eqn.outvars[0].aval.shape)
        if np.broadcast_shapes(*(value.shape for value in operands)) != whole:
            largest = max(range(len(operands)), key=lambda i: len(eqn.invars[i].aval.shape))
            operands[largest] = _Value(
                self.read(eqn.invars[largest]), eqn.invars[largest].aval.shape
            )
        return operands

    def _repeatable(self, eqn: Any) -> _Value:
        """Return an array whose broadcast axes have size one, so that it is not copied."""
        shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
        known = self._value(eqn.invars[0])
        ones = [1] * len(shape)
        old = (1,) * (len(axes) - len(known.shape)) + tuple(known.shape)
        for axis, size in zip(axes, old, strict=True):
            ones[axis] = size
        return _Value(reshaped(self.nodes, known.name, known.shape, tuple(ones)), tuple(ones))

    def _constant(self, value: Any) -> _Value:
        array = np.asarray(value)
        if array.size > 1 and (array == array.flat[0]).all():
            # Equal elements are stored once, with the same number of axes.
            array = array.reshape(-1)[:1].reshape((1,) * array.ndim)
        return _Value(self.nodes.constant(array), array.shape)
