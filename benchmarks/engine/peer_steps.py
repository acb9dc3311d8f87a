"""One training step of a GRU network by foretrace, in plain JAX and in torch, for `peer_times.py`.

Four GRU layers of 91 features on the shape of the copy task (48 steps, batch 50), each in the block
of the paper's Figure 1: norm, GRU, GELU, gated linear unit, sum. Plain JAX and torch compute the
gradient of BPTT. All clip it and update by AdamW. Plain JAX is `lax.scan` and `jax.grad` with
Optax, one compiled program. Torch is `nn.GRU`, its own kernel, with fused AdamW, run eagerly.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from benchmarks.engine.steps import DEPTH, SHAPES, compiled_step, data, network
from benchmarks.networks import classifier
from foretrace.experiment import GRU

WIDTH, RATE, CLIP = 91, 1e-3, 1.0
SHAPE = SHAPES["copy"]._replace(model=WIDTH)


def calls():
    """Return a call for each; it makes one step from where the last one ended."""
    ours = {"BPTT": _ours(ft.BPTT), "SnAp-1": _ours(ft.ONLINE)}
    return ours | {"plain JAX": _plain_jax(), "torch": _torch()}


def _ours(rule):
    made = classifier(network(SHAPE, GRU().factory()), rule, whole_sequences=True)
    xs, ys = data(SHAPE, SHAPE.batch, SHAPE.length)
    state = made.init()
    program = compiled_step(made, state, xs, ys)

    def call():
        nonlocal state
        state, info = program(state, xs, ys, None, None)
        return info.loss

    return call


def _plain_jax():
    parameters = parameters_of(network(SHAPE, GRU().factory()))
    xs, ys = data(SHAPE, SHAPE.batch, SHAPE.length)
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(RATE, weight_decay=0.0))

    @jax.jit
    def step(parameters, moments):
        value, grads = jax.value_and_grad(loss)(parameters, xs, ys)
        updates, moments = optimizer.update(grads, moments, parameters)
        return optax.apply_updates(parameters, updates), moments, value

    state = parameters, optimizer.init(parameters)

    def call():
        nonlocal state
        *state, value = step(*state)
        return value

    return call


def parameters_of(network):
    """Return a GRU network's parameters as in plain JAX: matrices right, gates side by side."""

    def linear(layer):
        return {"W": layer.weight.T, "b": layer.bias}

    def side_by_side(weights):
        return jnp.transpose(weights, (2, 1, 0)).reshape(weights.shape[2], -1)

    def layer(block):
        cell, norm = block.cell, {"scale": block.norm.scale, "bias": block.norm.bias}
        gru = {"W": side_by_side(cell.W_i), "U": side_by_side(cell.W_h)}
        gru |= {"b": cell.b_i.T.reshape(-1), "b_n": cell.b_hn}
        return {"norm": norm, "gru": gru, "glu": linear(block.glu.linear)}

    layers = [layer(network.block(i)) for i in range(network.depth)]
    ends = {"encoder": linear(network.encoder), "decoder": linear(network.decoder.linear)}
    return {"layers": layers, **ends}


def loss(parameters, xs, ys):
    """Return the mean over streams of the sum over steps, as ours is."""
    xs, ys = jnp.swapaxes(xs, 0, 1), jnp.swapaxes(ys, 0, 1)
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


def _gru(parameters, h, x):
    now_r, now_z, now_n = jnp.split(x @ parameters["W"] + parameters["b"], 3, axis=-1)
    past_r, past_z, past_n = jnp.split(h @ parameters["U"], 3, axis=-1)
    r, z = jax.nn.sigmoid(now_r + past_r), jax.nn.sigmoid(now_z + past_z)
    h = (1 - z) * jnp.tanh(now_n + r * (past_n + parameters["b_n"])) + z * h
    return h, h


def _torch():
    import torch
    from torch import nn

    torch.manual_seed(0)
    xs, ys = (torch.tensor(np.asarray(part)) for part in data(SHAPE, SHAPE.batch, SHAPE.length))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.glu = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
            self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, x):
            hs, _ = self.gru(self.norm(x))
            return x + nn.functional.glu(self.glu(nn.functional.gelu(hs, approximate="tanh")), -1)

    model = nn.Sequential(
        nn.Linear(SHAPE.inputs, WIDTH),
        *(Block() for _ in range(DEPTH)),
        nn.Linear(WIDTH, SHAPE.outputs),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)

    def call():
        optimizer.zero_grad()
        outputs, labels = model(xs).flatten(0, 1), ys.long().flatten()
        value = nn.functional.cross_entropy(outputs, labels, reduction="sum") / len(xs)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return value.item()

    return call
