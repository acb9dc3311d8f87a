"""Rows of any bytes for models in C, with sanitizers; `fuzz.c` says what is checked."""

import subprocess
from pathlib import Path

import numpy as np

from foretrace._graph.step import learning_graph
from foretrace._native.expression import c_type
from foretrace._native.program import learning_program

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
IMAGE = """#include "model.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
typedef {real} real;
typedef {target} target;
#define SMALLEST {smallest}
#define TINY {short}_MIN
#define LARGEST {short}_MAX
#define TARGETS {targets}
#define REALS {reals}
#define LEARNED {learned}
#define BYTES {bytes}
{classes}
static void copy_state(const model *ctx, uint8_t *to)
{{
{state}
}}
static void copy_reals(const model *ctx, real *to)
{{
{numbers}
}}
"""


def write(learner, target, folder):
    """Write model.c, model.h and image.h: the layout of a state, learned before carried."""
    graph = learning_graph(learner, None, target)
    program = learning_program(learner, "model", None, graph)
    real, y = graph.data["x"].dtype, graph.data["y"]
    leaves = [leaf for leaf in program.layout.leaves if leaf.name != "skipped"]
    leaves.sort(key=lambda leaf: leaf.name.startswith("carry."))
    learned = [leaf for leaf in leaves if not leaf.name.startswith("carry.")]
    reals = [leaf for leaf in leaves if leaf.value.dtype == real]
    counts = {name: count for name, _, count in program.fields}

    def place(leaf):
        now = f"(ctx->now ? {counts[leaf.field] // 2} : 0) + " if leaf.twice else ""
        return f"ctx->{leaf.field} + {now}{leaf.offset}"

    def copies(leaves):
        return "\n".join(
            f"    memcpy(to, {place(leaf)}, {leaf.value.nbytes}); to += {leaf.value.nbytes} / "
            "sizeof *to;"
            for leaf in leaves
            if leaf.value.size
        )

    outputs = graph.closed.jaxpr.outvars[0].aval.size
    is_class = np.issubdtype(y.dtype, np.integer)
    text = IMAGE.format(
        real=c_type(real),
        target=c_type(y.dtype),
        smallest="1.4e-45f" if real == np.float32 else "4.9e-324",
        short="FLT" if real == np.float32 else "DBL",
        targets=int(np.prod(y.shape)),
        reals=sum(leaf.value.size for leaf in reals),
        learned=sum(leaf.value.nbytes for leaf in learned),
        bytes=sum(leaf.value.nbytes for leaf in leaves),
        classes=f"#define CLASSES {outputs // int(np.prod(y.shape))}" if is_class else "",
        state=copies(leaves),
        numbers=copies(reals),
    )
    for name, content in {
        "model.c": program.source,
        "model.h": program.header,
        "image.h": text,
    }.items():
        (folder / name).write_text(content)


def build(folder, *flags, name="fuzz"):
    """Compile the model with the rows of bytes."""
    source = Path(__file__).parent / "fuzz.c"
    call = ["cc", "-std=c99", *WARNINGS, *flags, "-I.", "-o", name, source, "model.c", "-lm"]
    subprocess.run(call, cwd=folder, check=True)
    return folder / name
