"""The C header file of a model: its context, its sizes and its functions."""

from collections.abc import Sequence

import numpy as np

from foretrace._graph.step import Graph
from foretrace._native.expression import C_TYPES, c_type
from foretrace._native.reserved import identifier

Field = tuple[str, str, int]
"""Name, C type and number of elements of a field of a context."""

_BYTES = {c_type(name): np.dtype(name).itemsize for name in C_TYPES}


def arguments(graph: Graph, part: str) -> list[str]:
    """Return the declarations of the arguments of a function behind the context."""
    if part == "reset":
        return []
    data = graph.data if part == "step" else {"x": graph.data["x"]}
    results = zip(graph.results, graph.closed.jaxpr.outvars, strict=False)
    arrays = [(name, var.aval) for name, var in results if var.aval.shape and part != "predict"]
    arrays = arrays or [("outputs", graph.closed.jaxpr.outvars[0].aval)]
    inputs = [f"const {c_type(shape.dtype)} *restrict {name}" for name, shape in data.items()]
    return [*inputs, *(f"{c_type(aval.dtype)} *restrict {name}" for name, aval in arrays)]


def header_of_network(name: str, graph: Graph, fields: list[Field]) -> str:
    """Return the header file of a network, or of a learner.

    Args:
        name: name of the file, and what the names of its functions begin with.
        graph: its step.
        fields: fields of a context.
    """
    name, learns = identifier(name), "loss" in graph.results
    functions = [
        "/* Begin with the parameters and the carry of the export. */",
        f"void {name}_init({name} *ctx);",
        "",
        "/* Write the outputs for the next row and move on, without learning. */",
        f"void {_declared(name, graph, 'predict')};",
        "",
        "/* Begin a sequence: forget the rows so far and keep the parameters. */",
        f"void {name}_reset({name} *ctx);",
    ]
    if learns:
        loss = graph.closed.jaxpr.outvars[graph.results.index("loss")].aval.dtype
        functions += [
            "",
            "/* Loss of a row; accepted is 0 if loss, gradient or update was not finite: nothing "
            "has changed then. */",
            f"typedef struct {name}_result",
            "{",
            f"    {c_type(loss)} loss;",
            "    int32_t accepted;",
            f"}} {name}_result;",
            "",
            "/* Learn from a row and its target; write the outputs from before the update. */",
            f"{name}_result {_declared(name, graph, 'step')};",
        ]
    first = f"one step of a network{' that learns' if learns else ''}, in C99"
    return _header(name, graph, fields, [first], functions)


def header_of_stream(
    name: str, graph: Graph, fields: list[Field], notes: Sequence[str], predicts: bool
) -> str:
    """Return the header file of the model of a stream.

    Args:
        name: name of the file, and what the names of its functions begin with.
        graph: its step.
        fields: fields of a context.
        notes: lines that say what rows, labels and outputs are.
        predicts: whether there is a function that predicts alone.
    """
    name = identifier(name)
    functions = [
        "/* Begin with what the run has learned. */",
        f"void {name}_init({name} *ctx);",
        "",
        "/* Write the prediction of the next row, then learn from the label that came with it. */",
        f"void {_declared(name, graph, 'step')};",
    ]
    if predicts:
        functions += [
            "",
            "/* Write the prediction of a row if it came next; nothing changes. */",
            f"void {_declared(name, graph, 'predict')};",
        ]
    first = ["the model of a stream, one row at a time, in C99", *notes]
    return _header(name, graph, fields, first, functions)


def _declared(name: str, graph: Graph, part: str) -> str:
    given = ", ".join([f"{name} *ctx", *arguments(graph, part)])
    return f"{name}_{part}({given})"


def _header(
    name: str, graph: Graph, fields: list[Field], about: Sequence[str], functions: list[str]
) -> str:
    upper, next_state = name.upper(), _size(fields, "_both") // 2
    outputs = graph.closed.jaxpr.outvars[0].aval
    struct = [
        f"    {kind} {field}{'' if field == 'now' else f'[{n}]'};" for field, kind, n in fields
    ]
    first, *more = about
    comment = [f"/* Written by foretrace: {first}.", *(f"   {line}" for line in more)]
    comment[-1] += " */"
    lines = [
        *comment,
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {upper}_INPUTS {int(np.prod(graph.data['x'].shape))}",
        f"#define {upper}_OUTPUTS {int(np.prod(outputs.shape))}",
        "/* Bytes of a context: parameters, optimiser and carry; and what a step needs beside "
        "them. */",
        f"#define {upper}_STATE_BYTES {_size(fields, '_kept') + next_state}",
        f"#define {upper}_SCRATCH_BYTES {_size(fields, '_work') + next_state}",
        "",
        "/* Everything that a model changes; two contexts are two models. */",
        f"typedef struct {name}",
        "{",
        *struct,
        f"}} {name};",
        "",
        *functions,
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _size(fields: list[Field], part: str) -> int:
    return sum(_BYTES[kind] * count for name, kind, count in fields if name.endswith(part))
