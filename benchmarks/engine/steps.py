"""Time and memory of a step by every way of running, beside the matrix products alone.

    python -m benchmarks.engine.steps [--parts whole memory] [--rounds 15] [--table]

What is compared takes turns in one process, and ratios are medians of the ratios of rounds, so
that a noisy machine disturbs both sides alike. Run it on a machine that does nothing else. Each
part is a line of records/steps.jsonl.
"""

import statistics
from functools import partial
from typing import NamedTuple

import jax

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import classifier, ratio, timed
from foretrace.experiment import GRU, LRU, LinearRNN

DEPTH = 4
CHUNKS, STREAMS, LENGTHS = (1, 16, 64, 1024), (1, 8), (1024, 4096, 16384, 65536)


class Shape(NamedTuple):
    """Sizes of a network of four LRU layers and of its data."""

    batch: int
    length: int
    state: int
    model: int
    inputs: int
    outputs: int

    @property
    def maps(self):
        """Inputs and outputs of each linear map; complex B and C as real and imaginary part."""
        n, h = self.state, self.model
        return DEPTH * [(h, 2 * n), (2 * n, h), (h, 2 * h)] + [(self.inputs, h), (h, self.outputs)]


SHAPES = {
    "copy": Shape(50, 48, 64, 128, 8, 14),
    "long": Shape(1, 1024, 128, 256, 3, 10),
    "long8": Shape(8, 1024, 128, 256, 3, 10),
}
"""The paper's copy task; its images one at a time, and eight at a time."""


def network(shape, cell=None):
    """Draw the network of a shape; of LRUs if no other cell is given."""
    cell = LRU(shape.state).factory() if cell is None else cell
    sizes = {"model_size": shape.model, "depth": DEPTH}
    return ft.Network(shape.inputs, shape.outputs, **sizes, cell=cell, key=jax.random.key(0))


def data(shape, *front):
    """Draw inputs and targets."""
    xs = jax.random.normal(jax.random.key(1), (*front, shape.inputs))
    return xs, jax.random.randint(jax.random.key(2), front, 0, shape.outputs)


def compiled_step(made, state, xs, ys):
    """Compile a step without running it."""
    return made._step.lower(state, xs, ys, None, None, end=False).compile()


def memory_of(program):
    """Return the temporary memory of a compiled program in MiB."""
    return program.memory_analysis().temp_size_in_bytes / 2**20


def products(shape):
    """List a training step's matrix products (m, k, n): each map forward, and twice backward.

    Nothing is asked for the error of the network's input.
    """
    rows, encoder = shape.batch * shape.length, len(shape.maps) - 2
    found = []
    for number, (k, n) in enumerate(shape.maps):
        found += [(rows, k, n), (k, rows, n), *([] if number == encoder else [(rows, n, k)])]
    return found


def _products_alone(shape):
    draw = jax.random.normal
    pairs = [
        (draw(jax.random.key(i), (m, k)), draw(jax.random.key(i + 1), (k, n)))
        for i, (m, k, n) in enumerate(products(shape))
    ]
    run = jax.jit(lambda pairs: [a @ b for a, b in pairs])
    return lambda: run(pairs)


def whole(rounds):
    """Yield a training step on whole sequences by rule, beside BPTT and its products alone."""
    for name, shape in SHAPES.items():
        yield from _beside_bptt({"shape": name}, shape, None, rounds)
    for cell, width in ((GRU(), 91), (LinearRNN(64), 146)):
        shape = SHAPES["copy"]._replace(model=width)
        yield from _beside_bptt({"shape": type(cell).__name__}, shape, cell.factory(), rounds)


def _beside_bptt(named, shape, cell, rounds):
    xs, ys = data(shape, shape.batch, shape.length)
    calls, memory = {"products": _products_alone(shape)}, {}
    for rule in (ft.ONLINE, ft.BPTT, ft.TRUNCATED, ft.SPATIAL):
        made = classifier(network(shape, cell), rule, whole_sequences=True)
        state = made.init()
        program = compiled_step(made, state, xs, ys)
        calls[rule.name] = partial(program, state, xs, ys, None, None)
        memory[rule.name] = memory_of(program)
    seconds = timed(calls, rounds)
    for rule, used in memory.items():
        yield named | {
            "rule": "online" if rule == "ONLINE" else rule,
            "ms": round(1e3 * statistics.median(seconds[rule]), 2),
            "time_over_bptt": round(ratio(seconds, rule, "BPTT"), 3),
            "memory_mib": round(used, 1),
            "memory_over_bptt": round(used / memory["BPTT"], 3),
            "share_of_floor": round(ratio(seconds, "products", rule), 3) if cell is None else "",
        }


def streaming(rounds):
    """Yield online learning from a stream, chunk by chunk, beside inference, for each time step."""
    for streams in STREAMS:
        for chunk in CHUNKS:
            shape, front = SHAPES["copy"], [] if streams == 1 else [streams]
            made = classifier(network(shape), batch_size=None if streams == 1 else streams)
            state, (xs, ys) = made.init(), data(shape, *front, chunk)
            # A call is 256 time steps, or one chunk of more.
            several = range(max(1, 256 // chunk))
            calls = {
                "learn": partial(_learn, made, state, xs, ys, several),
                "infer": partial(_infer, made, state, xs, several),
            }
            seconds, steps = timed(calls, rounds), chunk * len(several)
            medians = {name: 1e6 * statistics.median(seconds[name]) / steps for name in calls}
            found = {f"{name}_us": round(median, 1) for name, median in medians.items()}
            found["learn_over_infer"] = round(ratio(seconds, "learn", "infer"), 2)
            yield {"streams": streams, "chunk": chunk} | found


def _learn(made, state, xs, ys, several):
    for _ in several:
        state, _ = made.step(state, xs, ys)
    return state.step


def _infer(made, state, xs, several):
    y = None
    for _ in several:
        y, state = made.predict(state, xs, sensitivity=False)
    return y


def memory(rounds):
    """Yield temporary memory of a compiled step against the sequence's length; nothing is run."""
    shape = SHAPES["long"]
    rules = {"BPTT": ft.BPTT, "online": ft.ONLINE, "truncated": ft.TRUNCATED}
    rules |= {"spatial": ft.SPATIAL, "reservoir": ft.RESERVOIR}
    streamed = rules | {"RTRL": ft.RTRL, "hybrid": ft.HYBRID, "UORO": ft.UORO}
    sequences = {"whole_sequences": True}
    ways = {f"{name}, whole sequences": (rule, sequences, None) for name, rule in rules.items()}
    for name in ("BPTT", "online"):
        ways[f"{name}, in segments of 512"] = (rules[name], sequences | {"segment": 512}, None)
    ways |= {f"{name}, chunks of 64": (rule, {}, 64) for name, rule in streamed.items()}
    ways["online, row by row"] = (ft.ONLINE, {}, 1)
    for way, (rule, options, chunk) in ways.items():
        made = classifier(network(shape), rule, batch_size=1, **options)
        state = made.init()
        # A stream runs one program, however long it is.
        needed = {}
        for steps in [chunk] if chunk else LENGTHS:
            given = jax.eval_shape(partial(data, shape, 1, steps))
            needed[steps] = memory_of(compiled_step(made, state, *given))
        carried = sum(leaf.nbytes for leaf in jax.tree.leaves(state.carry))
        yield {"way": way, "carry_kib": round(carried / 2**10, 1)} | {
            f"T={length}_mib": round(needed[chunk or length], 2) for length in LENGTHS
        }


PARTS = {"whole": whole, "streaming": streaming, "memory": memory}


def cells(parts=PARTS, rounds=15):
    """Return the cells.

    Args:
        rounds: timed rounds.
    """
    return ledger.grid(part=parts, rounds=rounds)


def measure(cell):
    """Return the rows of a part."""
    return {"rows": list(PARTS[cell["part"]](cell["rounds"]))}


if __name__ == "__main__":
    ledger.run(__doc__, "steps", cells, measure)
