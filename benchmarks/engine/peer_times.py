"""Time of a step beside braintrace, deep-river, plain JAX and torch, where installed.

pip install braintrace deep-river torch
python -m benchmarks.engine.peer_times [--rounds 15]

Calls take turns in one process. Each comparison is recorded in `records/peer_times.jsonl`, and is
not measured again.
"""

import importlib.metadata
import random
import statistics
import warnings
from functools import partial
from importlib.util import find_spec

import jax
import optax

import foretrace as ft
from benchmarks import ledger
from benchmarks.engine import peer_steps
from benchmarks.engine.steps import DEPTH, SHAPES, data, network
from benchmarks.networks import ratio, streamed_gradient, timed

STREAMS, STEPS = 8, 64
"""Beside braintrace."""

FEATURES, ROWS = 8, 50
"""Beside deep-river: numbers of a row, and rows of a timed round."""


def _row(peer, what, seconds, ours, theirs, calls):
    return {
        "peer": f"{peer} {importlib.metadata.version(peer)}",
        "foretrace": what,
        "foretrace_us": round(1e6 * statistics.median(seconds[ours]) / calls, 1),
        "peer_us": round(1e6 * statistics.median(seconds[theirs]) / calls, 1),
        "times_faster": round(ratio(seconds, theirs, ours), 1),
    }


def beside_braintrace(rounds):
    """Compare the exact online gradient of 4 LRU layers over 64 steps of 8 streams, per time step.

    Each call is one compiled program without an optimiser. Ours has norms and gated units between
    the layers, braintrace's layers stand on each other directly. Its chunks are its multi-step
    mode, the fastest that it documents: inside a chunk, the error also goes back through time.
    """
    names = {"chunks of 64": 64, "chunks of 16": 16, "step by step": None}
    calls = {name: _chunked(chunk) if chunk else _by_steps() for name, chunk in names.items()}
    calls |= {f"braintrace, {name}": _braintrace(chunk) for name, chunk in names.items()}
    seconds = timed(calls, rounds)
    for name in names:
        yield _row("braintrace", name, seconds, name, f"braintrace, {name}", STEPS)


def beside_plain_loops(rounds):
    """Compare a training step of four GRU layers with plain JAX and torch, per sequence."""
    seconds = timed(peer_steps.calls(), rounds)
    for theirs in ("plain JAX", "torch"):
        for ours in ("BPTT", "SnAp-1"):
            row = _row("torch", f"{ours}, GRU x 4, 48 steps, batch 50", seconds, ours, theirs, 1)
            yield row if theirs == "torch" else row | {"peer": f"plain JAX {jax.__version__}"}


def beside_deep_river(rounds):
    """Compare its LSTM with our `Classifier` of two layers of 32, by default and online.

    The LSTM has 32 units and goes through a window of 10 rows anew at each row. Rows have 8
    numbers, two classes.
    """
    from deep_river.classification import LSTMClassifier

    options = {"n_features": FEATURES, "hidden_size": 32, "window_size": 10, "optimizer_fn": "adam"}
    ours = {"features": 2 * FEATURES, "classes": 2}
    by_paper = ft.stream.ModelConfig("small", rule="hybrid")
    models = {
        "": ft.stream.Classifier(size="small", **ours),
        ", the paper's rule": ft.stream.Classifier(model=by_paper, **ours),
        "deep-river": LSTMClassifier(**options, lr=1e-3),
    }
    draw = random.Random(0)
    rows = [
        ({f"x{i}": draw.gauss(0, 1) for i in range(FEATURES)}, draw.random() < 0.5)
        for _ in range(ROWS)
    ]

    def both(model):
        for x, y in rows:
            model.predict_one(x)  # waits for what was learned before
            model.learn_one(x, y)

    def predict(model):
        for x, _ in rows:
            model.predict_one(x)

    for name, call in (("predict_one, learn_one", both), ("predict_one", predict)):
        seconds = timed({kind: partial(call, model) for kind, model in models.items()}, rounds)
        for kind in models:
            if kind != "deep-river":
                yield _row("deep-river", name + kind, seconds, kind, "deep-river", ROWS)


def _chunked(chunk):
    """Return our rule over the steps, one call of a compiled program for each chunk."""
    made, carry, xs, ys = _ours()
    run = jax.jit(partial(ft.gradient, rule=ft.ONLINE, loss=ft.losses.softmax_cross_entropy))
    parts = [
        (xs[:, first : first + chunk], ys[:, first : first + chunk])
        for first in range(0, STEPS, chunk)
    ]

    def call():
        now, gradients = carry, []
        for part in parts:
            _, gradient, now = run(made, now, *part)
            gradients.append(gradient)
        return gradients, now

    return call


def _by_steps():
    """Return our rule over the steps in one compiled program, as braintrace's driver is."""
    given = {"chunk": 1, "rule": ft.ONLINE, "loss": ft.losses.softmax_cross_entropy}
    run, given = jax.jit(partial(streamed_gradient, **given)), _ours()
    return lambda: run(*given)


def _ours():
    shape = SHAPES["copy"]
    made = network(shape)
    return made, ft.init_carry(made, ft.ONLINE, STREAMS), *data(shape, STREAMS, STEPS)


def _braintrace(chunk):
    """Return braintrace's exact rule on its own LRU cells, by its own driver."""
    import brainstate
    import braintrace

    shape = SHAPES["copy"]
    xs, ys = data(shape, STEPS, STREAMS)

    class Stack(brainstate.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = brainstate.nn.Linear(shape.inputs, shape.model)
            self.layers = [braintrace.nn.LRUCell(shape.model, shape.state) for _ in range(DEPTH)]
            self.decoder = braintrace.nn.Linear(shape.model, shape.outputs)

        def update(self, x):
            x = self.encoder(x)
            for layer in self.layers:
                x = layer(x)
            return self.decoder(x)

    made = Stack()
    with warnings.catch_warnings():
        # One for each weight that it treats as acting at once.
        warnings.simplefilter("ignore", UserWarning)
        mode = "single-step" if chunk is None else "multi-step"
        learner = braintrace.compile(made, "d_rtrl", xs[0], batch_size=STREAMS, vjp_method=mode)

    def loss(x, y):
        outputs = learner(x if chunk is None else braintrace.MultiStepData(x))
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean(-1)

    @brainstate.transform.jit
    def run(xs, ys):
        return learner.etrace_grad(xs, ys, step_fn=loss, chunk_size=chunk, reduction="sum")

    return lambda: run(xs, ys)


COMPARISONS = {
    "braintrace": beside_braintrace,
    "deep_river": beside_deep_river,
    "torch": beside_plain_loops,
}
"""By the package that has to be installed."""


def cells(rounds=15):
    """Return a cell for each peer that is installed.

    Args:
        rounds: timed rounds, of which medians are reported.
    """
    return ledger.grid(beside=[peer for peer in COMPARISONS if find_spec(peer)], rounds=rounds)


def measure(cell):
    """Return the rows of a comparison."""
    return {"rows": list(COMPARISONS[cell["beside"]](cell["rounds"]))}


if __name__ == "__main__":
    ledger.run(__doc__, "peer_times", cells, measure)
