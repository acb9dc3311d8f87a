"""The C program of a network or a learner: a context, and functions that use it.

   NAME_init(ctx)                  set parameters and carry to the values of the export
    NAME_step(ctx, x, y, outputs)   learn from a row; return its loss, and whether it was accepted
    NAME_predict(ctx, x, outputs)   advance by one row without learning
    NAME_reset(ctx)                 begin a sequence

NAME is the name of the files. If this name has another meaning in C, as in `int.c`, it is
`int_model`.

All memory is in the context: parameters, optimiser, carry, and the scratch memory of a step. A
learning step stores the next values separately from the present values, and uses them if the step
is accepted.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._graph.step import Graph, traced_graph, without_key
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._native.distinct import distinct
from foretrace._native.elements import helpers
from foretrace._native.expression import POOLS, c_type
from foretrace._native.function import Function, Layout, constant_text, first_layout, function
from foretrace._native.header import (
    OF_NETWORK,
    OF_STREAM,
    Field,
    arguments,
    declaration,
    result_type,
    written_header,
)
from foretrace._native.reserved import identifier
from foretrace._types import Array


class Program(NamedTuple):
    """A C program.

    Args:
        source: text of the C file.
        header: text of the header file.
        layout: positions of the state's arrays in a context.
        fields: fields of a context, in order.
        graph: step that determines the arguments and results of the functions.
    """

    source: str
    header: str
    layout: Layout
    fields: list[Field]
    graph: Graph


def learning_program(
    learner: Learner, name: str, state: LearnerState | None, step: Graph
) -> Program:
    """Return the program of a learner: `step`, `predict` and `reset`.

    Args:
        learner: learner of one stream that updates at every step.
        name: name of the files, which is the prefix of the functions.
        state: initial state. Default: `learner.init()`.
        step: graph of the learning step.

    Raises:
        ValueError: an operation cannot be written in C.
    """
    start, key = without_key(learner.init() if state is None else state), jax.random.key(0)

    def predict(bare: Any, x: Array) -> tuple[list[Array], Any]:
        outputs, after = learner.predict(bare._replace(key=key), x[None])
        return [outputs[0]], without_key(after)

    def reset(bare: Any) -> tuple[list[Array], Any]:
        return [], bare._replace(carry=learner.fresh_carry(bare.network, key))

    graphs = {
        "step": step,
        "predict": traced_graph(predict, start, "", {"x": step.data["x"]}, ["outputs"]),
        "reset": traced_graph(reset, start, "", {}, []),
    }
    about = ["one step of a network that learns, in C99"]
    return _program(name, graphs, about, OF_NETWORK, step.results.index("accepted"))


def inference_program(name: str, step: Graph) -> Program:
    """Return the program of a network, `predict` and `reset`, with the parameters as constants.

    Args:
        name: name of the files, which is the prefix of the functions.
        step: graph of the inference step.

    Raises:
        ValueError: an operation cannot be written in C.
    """
    return _program(name, {"predict": step}, ["one step of a network, in C99"], OF_NETWORK)


def stream_program(
    name: str, step: Graph, predict: Graph | None, notes: Sequence[str] = ()
) -> Program:
    """Return the program of a stream's model: `step`, and `predict`, which changes nothing.

    Args:
        name: name of the files, which is the prefix of the functions.
        step: graph that learns from a row and its label.
        predict: graph that returns the prediction of a row, with the same states. Default: no such
            function.
        notes: lines that describe rows, labels and outputs.

    Raises:
        ValueError: an operation cannot be written in C.
    """
    graphs = {"step": step} | ({} if predict is None else {"predict": predict})
    about = ["the model of a stream, one row at a time, in C99", *notes]
    return _program(name, graphs, about, OF_STREAM)


def _program(
    name: str,
    graphs: dict[str, Graph],
    about: Sequence[str],
    comments: dict[str, str],
    accepted: int | None = None,
) -> Program:
    graphs = {part: distinct(one) for part, one in graphs.items()}
    graph = next(iter(graphs.values()))
    layout = first_layout(graph, accepted)
    functions = {
        part: function(part, one, layout, accepted if part == "step" else None)
        for part, one in graphs.items()
    }
    fields = _fields(layout, functions.values())
    return Program(
        _source(name, graphs, layout, functions, fields),
        written_header(name, graphs, fields, about, comments),
        layout,
        fields,
        graph,
    )


def _fields(layout: Layout, functions: Iterable[Function]) -> list[Field]:
    functions, found = list(functions), []
    for short, dtype in POOLS.items():
        sizes = {
            "kept": layout.sizes[f"{short}_kept"],
            "both": 2 * layout.sizes[f"{short}_both"],
            "work": max(one.work.get(short, 0) for one in functions),
        }
        found += [(f"{short}_{part}", dtype, size) for part, size in sizes.items() if size]
    return [*found, ("now", np.dtype(np.int32), 1)]


def _source(
    file: str,
    graphs: dict[str, Graph],
    layout: Layout,
    functions: dict[str, Function],
    fields: list[Field],
) -> str:
    has, name = {field for field, _, _ in fields}, identifier(file)
    lines = [f'#include "{file}.h"', "", "#include <math.h>", "#include <string.h>"]
    text = _init(name, layout)
    for part, one in functions.items():
        text += ["", *_function(name, part, one, graphs[part], has)]
    if set(functions) == {"predict"}:
        text += ["", f"void {name}_reset({name} *ctx) {{ {name}_init(ctx); }}"]
    for dtype in (np.float32, np.float64):
        lines += ["", *_used(helpers(dtype), text)]
    return "\n".join([*lines, *text, ""])


def _used(definitions: list[tuple[str, str]], text: list[str]) -> list[str]:
    """Return the definitions of the helper functions that a text calls."""
    whole = "\n".join(text)
    return [line for name, line in definitions if re.search(rf"\b{name}\(", whole)]


def _init(name: str, layout: Layout) -> list[str]:
    """Return the initial states, and the function that sets them."""
    numbers, lines = [], [f"void {name}_init({name} *ctx)", "{", "    memset(ctx, 0, sizeof *ctx);"]
    for place, leaf in enumerate(layout.leaves):
        first, to = f"initial{place}", f"ctx->{leaf.field} + {leaf.offset}"
        comment = f"/* {leaf.name.replace('*/', '* /')} */"
        if leaf.value.any():
            numbers += [comment, constant_text(first, leaf.value)]
            lines.append(f"    memcpy({to}, {first}, sizeof {first}); {comment}")
        else:
            lines.append(f"    /* {to}: zeros */ {comment}")
    return [*numbers, "", *lines, "}"]


def _pointers(has: set[str]) -> dict[str, tuple[str, str]]:
    """Return the declaration and the value of each pointer into a context, by name."""
    found = {}
    for short, dtype in POOLS.items():
        both = f"ctx->{short}_both"
        half = f"(sizeof {both} / sizeof {both}[0] / 2)"
        values = {
            f"k_{short}": (f"{short}_kept", f"ctx->{short}_kept"),
            f"s_{short}": (f"{short}_both", f"{both} + (ctx->now ? {half} : 0)"),
            f"n_{short}": (f"{short}_both", f"{both} + (ctx->now ? 0 : {half})"),
            f"w_{short}": (f"{short}_work", f"ctx->{short}_work"),
        }
        for pointer, (field, value) in values.items():
            if field in has:
                found[pointer] = (f"{c_type(dtype)} *restrict {pointer}", value)
    return found


def _function(name: str, part: str, one: Function, graph: Graph, has: set[str]) -> list[str]:
    """Return a function of pointers without aliases, and the public function that calls it."""
    words = set(re.findall(r"\w+", "\n".join([*one.body, *one.results.values()])))
    pointers = {word: both for word, both in _pointers(has).items() if word in words}
    given, result = arguments(graph), result_type(name, part, graph)
    used = {word: text for word, text in given.items() if word in words}
    inner = ", ".join([*(text for text, _ in pointers.values()), *used.values()]) or "void"
    call = f"run_{part}({', '.join([*(value for _, value in pointers.values()), *used])})"
    constants = [
        constant_text(word, array.value)
        for word, array in one.constants.items()
        if array.value is not None
    ]
    lines = [*constants, f"static {result} run_{part}({inner})", "{"]
    lines += [f"    {line}" for line in one.body]
    public = [f"    (void){word};" for word in given if word not in used]
    if result != "void":
        values = f"{one.results['loss']}, {one.results['accepted']}"
        lines += [f"    {result} result = {{{values}}};", "    return result;"]
        public += [
            f"    {result} result = {call};",
            "    if (result.accepted) ctx->now = 1 - ctx->now;",
            "    return result;",
        ]
    else:
        public.append(f"    {call};" if pointers else f"    (void)ctx; {call};")
    return [*lines, "}", "", declaration(name, part, graph), "{", *public, "}"]
