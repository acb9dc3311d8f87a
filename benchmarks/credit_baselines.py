"""What else can be done with little memory, beside credit in depth: a window of the past, or layer after layer.

window(reach)   backpropagation through time, from the newest chunk through the last `reach` steps, at every chunk
stages          blocks are added and trained one after another; those below stay as they are, so that the paper's
                rule leaves out nothing of the newest recurrence's coefficients (constructive training)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate


def window_gradient(network, batch, *, reach, chunk, loss):
    """Return loss and gradient of whole sequences, each chunk's losses differentiated through the last `reach` steps.

    Args:
        network: the network.
        batch: sequences with targets and masks.
        reach: steps of a window, the chunk included; a multiple of it.
        chunk: steps between two windows.
        loss: loss of one step.
    """
    assert reach % chunk == 0, f"reach={reach} must be a multiple of chunk={chunk}"
    carry, before, value, grads = ft.init_carry(network, ft.BPTT, len(batch.xs)), {}, 0.0, None
    for start in range(0, batch.xs.shape[1], chunk):
        before[start] = carry
        _, carry = ft.forward(network, carry, batch.xs[:, start : start + chunk])
        first, end = max(start + chunk - reach, 0), start + chunk
        newest = jnp.arange(first, min(end, batch.xs.shape[1])) >= start
        out = evaluate(
            network,
            lax.stop_gradient(before[first]),
            Data(batch.xs[:, first:end], batch.ys[:, first:end], jnp.where(newest, batch.mask[:, first:end], 0)),
            rule=ft.BPTT,
            loss=loss,
            return_carry=False,
        )
        value = value + out.loss
        grads = out.grads if grads is None else jax.tree.map(jnp.add, grads, out.grads)
    return value, grads


def window_step(network, carry, xs, ys, *, chunk, loss):
    """Return what a stream computes for a chunk: the gradient through a window xs, and the state one chunk later."""
    newest = jnp.arange(len(xs)) >= len(xs) - chunk
    out = evaluate(network, carry, Data(xs, ys, newest), rule=ft.BPTT, loss=loss, return_carry=False)
    return out.grads, ft.forward(network, carry, xs[:chunk])[1]


def grown(network, wider):
    """Return the deeper network with the blocks, encoder and decoder of another."""
    blocks = jax.tree.map(lambda new, old: new.at[: len(old)].set(old), wider.blocks, network.blocks)
    return eqx.tree_at(_parts, wider, (network.encoder, blocks, network.decoder))


def newest_only(network):
    """Return the transformation by which the last block and the decoder learn, and of one block alone the encoder."""
    depth = network.depth
    last = jnp.arange(depth) == depth - 1
    blocks = jax.tree.map(lambda leaf: last.reshape(-1, *[1] * (leaf.ndim - 1)), network.blocks)
    encoder = jax.tree.map(lambda _: jnp.asarray(depth == 1), network.encoder)
    decoder = jax.tree.map(lambda _: jnp.asarray(True), network.decoder)
    moves = eqx.tree_at(_parts, network, (encoder, blocks, decoder))
    return optax.stateless(lambda updates, _: jax.tree.map(lambda u, move: jnp.where(move, u, 0), updates, moves))


def _parts(network):
    return network.encoder, network.blocks, network.decoder
