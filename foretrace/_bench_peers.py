"""Peers that install from PyPI, measured in the same run as ours where they are installed."""

import importlib.metadata
import statistics
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._bench_parts import Row, Setting
from foretrace._bench_timing import DEPTH, SHAPES, data, network, ratio, timed
from foretrace._carry import init_carry
from foretrace._gradient import evaluate
from foretrace._loss import softmax_cross_entropy
from foretrace._rule import ONLINE
from foretrace._types import Array

STREAMS, STEPS = 8, 64


def peers(setting: Setting) -> Iterator[Row]:
    """Compare the exact online gradient of 4 LRU layers over 64 steps of 8 streams, per time step, with braintrace's.

    Each call is one compiled program without an optimiser. Ours has norms and gated units between the layers,
    braintrace's layers stand on each other directly. No rows if it is not installed.
    """
    if find_spec("braintrace") is None:
        return
    calls = {"chunk of 64": _chunked(), "step by step": _by_steps(), "braintrace": _braintrace()}
    seconds = timed(calls, setting.rounds)
    theirs = 1e6 * statistics.median(seconds["braintrace"]) / STEPS
    for name in ("chunk of 64", "step by step"):
        yield {
            "foretrace": name,
            "foretrace_us": round(1e6 * statistics.median(seconds[name]) / STEPS, 1),
            "braintrace_us": round(theirs, 1),
            "times_faster": round(ratio(seconds, "braintrace", name), 1),
            "braintrace": importlib.metadata.version("braintrace"),
        }


def _chunked() -> Callable:
    made, carry, xs, ys = _ours()
    run = jax.jit(lambda *given: evaluate(*given, rule=ONLINE, loss=softmax_cross_entropy)[:3])
    return lambda: run(made, carry, xs, ys)


def _by_steps() -> Callable:
    made, carry, xs, ys = _ours()

    def step(now: tuple, row: tuple[Array, Array]) -> tuple[tuple, Array]:
        carry, total = now
        x, y = row
        found = evaluate(made, carry, x[:, None], y[:, None], rule=ONLINE, loss=softmax_cross_entropy)
        return (found.carry, optax.tree.add(total, found.grads)), found.loss

    def run(carry: Any, xs: Array, ys: Array) -> Any:
        rows = jnp.swapaxes(xs, 0, 1), jnp.swapaxes(ys, 0, 1)
        return lax.scan(step, (carry, optax.tree.zeros_like(made)), rows)

    compiled = jax.jit(run)
    return lambda: compiled(carry, xs, ys)


def _ours() -> tuple[Any, Any, Array, Array]:
    shape = SHAPES["copy"]
    made = network(shape)
    return made, init_carry(made, ONLINE, STREAMS), *data(shape, STREAMS, STEPS)


def _braintrace() -> Callable:
    """Return braintrace's exact rule on its own LRU cells, run over the steps by its own driver."""
    import brainstate
    import braintrace

    shape = SHAPES["copy"]
    xs, ys = data(shape, STEPS, STREAMS)

    class Stack(brainstate.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = brainstate.nn.Linear(shape.inputs, shape.model)
            self.layers = [braintrace.nn.LRUCell(shape.model, shape.state) for _ in range(DEPTH)]
            self.decoder = braintrace.nn.Linear(shape.model, shape.outputs)

        def update(self, x: Array) -> Array:
            x = self.encoder(x)
            for layer in self.layers:
                x = layer(x)
            return self.decoder(x)

    made = Stack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one for each weight that it treats as acting at once
        learner = braintrace.compile(made, "d_rtrl", xs[0], batch_size=STREAMS)

    def loss(x: Array, y: Array) -> Array:
        return optax.softmax_cross_entropy_with_integer_labels(learner(x), y).mean()

    @brainstate.transform.jit
    def run(xs: Array, ys: Array) -> Any:
        return learner.etrace_grad(xs, ys, step_fn=loss, reduction="sum")

    return lambda: run(xs, ys)
