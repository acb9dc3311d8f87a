"""Rows of any bytes for models in C, with clang's libFuzzer and sanitizers.

`python tests/native/fuzz.py --minutes 20` runs them.

`fuzz.c` says what is checked. The minutes are shared among the models of
`benchmarks.engine.native_parity`.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from foretrace._graph.step import learning_graph
from foretrace._native.expression import c_type
from foretrace._native.program import learning_program

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
FUZZER = (
    "-fsanitize=fuzzer,address,bounds,float-cast-overflow,signed-integer-overflow,shift,integer-divide-by-zero",
    "-fno-sanitize-recover=all",
)
"""Fewer than `SANITIZERS`: with all of them clang takes minutes for a model."""
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


def build(folder, *flags, compiler="cc", name="fuzz"):
    """Compile the model with the rows of bytes."""
    source = Path(__file__).parent / "fuzz.c"
    call = [compiler, "-std=c99", *WARNINGS, *flags, "-I.", "-o", name, source, "model.c", "-lm"]
    subprocess.run(call, cwd=folder, check=True)
    return folder / name


def main():
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks.engine import native_parity as parity

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--models", type=int, nargs="*", default=range(len(parity.MODELS)))
    given = parser.parse_args()
    for number in given.models:
        model, rule = parity.MODELS[number]
        learner, classes = parity.learner_of(model, rule)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(learner, parity.rows_of(learner, 1, classes)[1][0], folder)
            build(folder, "-O1", "-DFUZZER", *FUZZER, compiler="clang")
            seconds = round(60 * given.minutes / len(given.models))
            options = f"-max_total_time={seconds} -max_len=2048 -len_control=0 -print_final_stats=1"
            call = ["nice", "-n", "19", "./fuzz", *options.split(), "-verbosity=0"]
            done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
            executed = re.findall(r"executed_units: *(\d+)", done.stderr)
            outcome = "clean" if done.returncode == 0 else done.stderr[-2000:]
            print(number, model, rule, outcome, *executed, flush=True)


if __name__ == "__main__":
    main()
