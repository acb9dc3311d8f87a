"""The C header file of a model, which declares its context, sizes and functions."""

from collections.abc import Sequence

import numpy as np

from foretrace._graph.step import Graph
from foretrace._native.expression import c_type
from foretrace._native.reserved import identifier

Field = tuple[str, np.dtype, int]
"""Name, dtype and number of elements of a field of a context."""

OF_NETWORK = {
    "init": "Begin with the parameters and the carry of the export.",
    "predict": "Write the outputs for the next row and move on, without learning.",
    "reset": "Begin a sequence: forget the rows so far and keep the parameters.",
    "step": "Learn from a row and its target; write the outputs from before the update.",
}
"""Description of each function of a network or of a learner."""

OF_STREAM = {
    "init": "Begin with what the run has learned.",
    "step": "Write the prediction of the next row, then learn from the label that came with it.",
    "predict": "Write the prediction of a row if it came next; nothing changes.",
}
"""Description of each function of a stream's model."""


def arguments(graph: Graph | None) -> dict[str, str]:
    """Return the declaration of each argument after the context, by name."""
    if graph is None:
        return {}
    results = zip(graph.results, graph.closed.jaxpr.outvars, strict=False)
    found = {name: f"const {c_type(data.dtype)} *restrict" for name, data in graph.data.items()}
    found |= {name: f"{c_type(v.aval.dtype)} *restrict" for name, v in results if v.aval.shape}
    return {name: f"{kind} {name}" for name, kind in found.items()}


def declaration(name: str, part: str, graph: Graph | None) -> str:
    """Return the declaration of a program's function, without a semicolon."""
    given = ", ".join([f"{name} *ctx", *arguments(graph).values()])
    return f"{result_type(name, part, graph)} {name}_{part}({given})"


def result_type(name: str, part: str, graph: Graph | None) -> str:
    """Return the C type of a function's result."""
    learns = graph is not None and part == "step" and "loss" in graph.results
    return f"{name}_result" if learns else "void"


def written_header(
    name: str,
    graphs: dict[str, Graph],
    fields: list[Field],
    about: Sequence[str],
    functions: dict[str, str],
) -> str:
    """Return the header file of a program.

    Args:
        name: name of the file, which is the prefix of its functions.
        graphs: graph of each function that has a graph; the first graph is the step.
        fields: fields of a context.
        about: lines that describe the program.
        functions: description of each function, in order.
    """
    name, graph = identifier(name), next(iter(graphs.values()))
    upper, next_state = name.upper(), _size(fields, "_both") // 2
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
        f"#define {upper}_OUTPUTS {int(np.prod(graph.closed.jaxpr.outvars[0].aval.shape))}",
        "/* Bytes of a context: parameters, optimiser and carry; and what a step needs beside "
        "them. */",
        f"#define {upper}_STATE_BYTES {_size(fields, '_kept') + next_state}",
        f"#define {upper}_SCRATCH_BYTES {_size(fields, '_work') + next_state}",
        "",
        "/* Everything that a model changes; two contexts are two models. */",
        f"typedef struct {name}",
        "{",
        *(
            f"    {c_type(dtype)} {field}{'' if field == 'now' else f'[{size}]'};"
            for field, dtype, size in fields
        ),
        f"}} {name};",
        "",
    ]
    if "loss" in graph.results:
        loss = graph.closed.jaxpr.outvars[graph.results.index("loss")].aval.dtype
        lines += [
            "/* Loss of a row; accepted is 0 if loss, gradient or update was not finite: nothing "
            "has changed then. */",
            f"typedef struct {name}_result",
            "{",
            f"    {c_type(loss)} loss;",
            "    int32_t accepted;",
            f"}} {name}_result;",
            "",
        ]
    for part, text in functions.items():
        if part in graphs or part in ("init", "reset"):
            lines += [f"/* {text} */", f"{declaration(name, part, graphs.get(part))};", ""]
    return "\n".join([*lines, "#endif", ""])


def _size(fields: list[Field], part: str) -> int:
    return sum(dtype.itemsize * count for name, dtype, count in fields if name.endswith(part))
