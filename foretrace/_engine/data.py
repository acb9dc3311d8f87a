"""Targets, mask and loss of a chunk."""

from typing import NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Keys, Mask


class Data(NamedTuple):
    """A chunk of one stream, or of a batch of streams.

    Args:
        xs: inputs.
        ys: targets; not needed for a forward pass.
        mask: weight of each step, or whether the step counts; None if all count.
        reset: whether each step starts an episode; None if no step does.
        key: PRNG key of the dropout masks, or a key for each stream; None for no dropout.
    """

    xs: Float[Array, "*B C I"]
    ys: Array | None = None
    mask: Mask | None = None
    reset: Bool[Array, "*B C"] | None = None
    key: Keys | None = None


def weighted(data: Data, *, mean_loss: bool, last: bool) -> Data:
    """Return the chunk with targets and weights of every step.

    Args:
        data: chunk as given by the caller.
        mean_loss: whether the weights of each stream are divided by their sum.
        last: whether the targets have no axis of time. Each target then belongs to the last step of
            its stream that counts.
    """
    if not (mean_loss or last):
        return data
    xs, ys, mask = data.xs, data.ys, data.mask
    assert ys is not None, "weights are for targets"
    weights = jnp.ones(xs.shape[:-1], xs.dtype) if mask is None else mask.astype(xs.dtype)
    if last:
        length, there = xs.shape[-2], weights != 0
        final = length - 1 - jnp.argmax(jnp.flip(there, -1), axis=-1)
        steps = jnp.arange(length).reshape(*[1] * final.ndim, length)
        is_final = steps == final[..., None]
        weights = jnp.where(is_final & there, weights, jnp.zeros_like(weights))
        axis = xs.ndim - 2
        ys = jnp.broadcast_to(
            jnp.expand_dims(ys, axis), (*ys.shape[:axis], length, *ys.shape[axis:])
        )
    if mean_loss:
        total = weights.sum(-1, keepdims=True)
        weights = weights / jnp.where(total == 0, jnp.ones_like(total), total)
    return data._replace(ys=ys, mask=weights)


def counts_any(mask: Mask | None) -> Bool[Array, ""]:
    """Return whether a step of any stream counts."""
    # A sum of floats: in a batch that is sharded over devices, it is part of the gradient's
    # exchange.
    return jnp.array(True) if mask is None else jnp.asarray(mask).astype(bool).sum(dtype=float) > 0
