"""A training step on whole sequences beside the same network written in plain JAX and in torch, in turn in one process.

pip install torch
python benchmarks/peer_steps.py [--rounds 25]

Four GRU layers of 91 features on the copy task's shape (48 steps, batch 50), each in the block of the paper's Figure 1:
norm, GRU, GELU, gated linear unit, sum. The gradient is that of BPTT everywhere, and AdamW makes the update after
clipping. Plain JAX is `lax.scan` and `jax.grad` with Optax. Torch is `nn.GRU` with fused AdamW, eager: its own kernels.
"""

import argparse
import importlib.metadata
import json
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._rule import BPTT, ONLINE
from foretrace._runs.machine import surroundings
from foretrace._types import Array
from foretrace.bench._parts import compiled_step
from foretrace.bench._timing import DEPTH, SHAPES, bytes_of, data, learner, ratio, timed
from foretrace.experiment._cells import GRU

WIDTH, RATE, CLIP = 91, 1e-3, 1.0
SHAPE = SHAPES["copy"]._replace(model=WIDTH)


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="timed rounds, of which medians are reported")
    print(json.dumps(compare(parser.parse_args().rounds)))


def compare(rounds: int) -> dict[str, Any]:
    """Return the milliseconds of a step of each, and the ratio of ours to the others."""
    calls = {"foretrace, BPTT": _ours(BPTT), "foretrace, SnAp-1": _ours(ONLINE), "plain JAX": _plain_jax()}
    if find_spec("torch") is not None:
        calls["torch"] = _torch()
    seconds = timed(calls, rounds)
    ours = "foretrace, BPTT"
    return {
        "ms": {name: round(1e3 * statistics.median(found), 1) for name, found in seconds.items()},
        "over_bptt": {name: round(ratio(seconds, name, ours), 2) for name in calls if name != ours},
        "rounds": rounds,
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "torch") if find_spec(name)},
        "surroundings": surroundings(),
    }


def _ours(rule: Any) -> Callable:
    made = learner(SHAPE, rule, cell=GRU().factory(), whole_sequences=True)
    xs, ys = data(SHAPE, SHAPE.batch, SHAPE.length)
    program = compiled_step(made, made.init(), xs, ys).program
    state = made.init()

    def call() -> Any:
        nonlocal state
        state, info = program(state, xs, ys, None, None)
        return info.loss

    return call


def _plain_jax() -> Callable:
    parameters = _parameters()
    xs, ys = data(SHAPE, SHAPE.batch, SHAPE.length)
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(RATE, weight_decay=0.0))

    @jax.jit
    def step(parameters: dict, moments: Any) -> tuple:
        loss, grads = jax.value_and_grad(_loss)(parameters, jnp.swapaxes(xs, 0, 1), jnp.swapaxes(ys, 0, 1))
        updates, moments = optimizer.update(grads, moments, parameters)
        return optax.apply_updates(parameters, updates), moments, loss

    state = parameters, optimizer.init(parameters)

    def call() -> Any:
        nonlocal state
        *state, loss = step(*state)
        return loss

    assert bytes_of(parameters) == bytes_of(learner(SHAPE, BPTT, cell=GRU().factory()).init().network)
    return call


def _parameters() -> dict:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return jnp.asarray(random.normal(0, shape[0] ** -0.5, shape), jnp.float32)

    layer = lambda: {  # noqa: E731 - four times the same
        "norm": {"scale": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)},
        "gru": {"W": normal(WIDTH, 3 * WIDTH), "U": normal(WIDTH, 3 * WIDTH), "b": jnp.zeros(3 * WIDTH)}
        | {"b_n": jnp.zeros(WIDTH)},
        "glu": {"W": normal(WIDTH, 2 * WIDTH), "b": jnp.zeros(2 * WIDTH)},
    }
    return {
        "encoder": {"W": normal(SHAPE.inputs, WIDTH), "b": jnp.zeros(WIDTH)},
        "layers": [layer() for _ in range(DEPTH)],
        "decoder": {"W": normal(WIDTH, SHAPE.outputs), "b": jnp.zeros(SHAPE.outputs)},
    }


def _loss(parameters: dict, xs: Array, ys: Array) -> Array:
    """Return the mean over streams of the sum over steps, as ours is; time is the first axis."""
    x = xs @ parameters["encoder"]["W"] + parameters["encoder"]["b"]
    for layer in parameters["layers"]:
        centred = x - x.mean(-1, keepdims=True)
        normed = centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
        z = normed * layer["norm"]["scale"] + layer["norm"]["bias"]
        _, hs = lax.scan(partial(_gru, layer["gru"]), jnp.zeros_like(z[0]), z)
        value, gate = jnp.split(jax.nn.gelu(hs) @ layer["glu"]["W"] + layer["glu"]["b"], 2, axis=-1)
        x = x + value * jax.nn.sigmoid(gate)
    outputs = x @ parameters["decoder"]["W"] + parameters["decoder"]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(outputs, ys).sum() / xs.shape[1]


def _gru(parameters: dict, h: Array, x: Array) -> tuple[Array, Array]:
    now_r, now_z, now_n = jnp.split(x @ parameters["W"] + parameters["b"], 3, axis=-1)
    past_r, past_z, past_n = jnp.split(h @ parameters["U"], 3, axis=-1)
    r, z = jax.nn.sigmoid(now_r + past_r), jax.nn.sigmoid(now_z + past_z)
    h = (1 - z) * jnp.tanh(now_n + r * (past_n + parameters["b_n"])) + z * h
    return h, h


def _torch() -> Callable:
    import torch
    from torch import nn

    torch.manual_seed(0)
    xs, ys = (torch.tensor(np.asarray(part)) for part in data(SHAPE, SHAPE.batch, SHAPE.length))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.glu = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
            self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, x: Any) -> Any:
            hs, _ = self.gru(self.norm(x))
            return x + nn.functional.glu(self.glu(nn.functional.gelu(hs, approximate="tanh")), -1)

    network = nn.Sequential(
        nn.Linear(SHAPE.inputs, WIDTH), *(Block() for _ in range(DEPTH)), nn.Linear(WIDTH, SHAPE.outputs)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0, fused=True)

    def call() -> Any:
        optimizer.zero_grad()
        outputs = network(xs)
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), ys.long().flatten(), reduction="sum") / len(xs)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return call


if __name__ == "__main__":
    main()
