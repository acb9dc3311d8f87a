"""Truncated backpropagation through a window of the newest steps, again for every chunk.

    window    <- its last steps and the newest chunk
    gradient  of the newest chunk's losses, through the whole window, from the state before it
    state     <- the state one chunk later, so that it stands before the next window

It lives here and not in the library, where a rule is data: a window is kept inputs that are run
again, which the online rules exist to spare.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import foretrace as ft


def window_gradient(network, carry, window, ys, *, chunk, loss, mask=None):
    """Return the newest steps' loss, its gradient through the window, and the next carry.

    Args:
        network: the network.
        carry: states before the window.
        window: inputs of one stream.
        ys: targets of its newest steps; the others have none.
        chunk: steps by which the window moves on.
        loss: loss of one step.
        mask: weights of the newest steps; 1 if not given.
    """
    past = len(window) - len(ys)
    labels = jnp.pad(ys, [(past, 0)] + [(0, 0)] * (ys.ndim - 1))
    weights = jnp.ones(len(ys), window.dtype) if mask is None else mask.astype(window.dtype)
    given = {"rule": ft.BPTT, "loss": loss, "mask": jnp.pad(weights, (past, 0))}
    value, grads, _ = ft.gradient(network, carry, window, labels, **given)
    return value, grads, ft.forward(network, carry, window[:chunk])[1]


class State(NamedTuple):
    """Learner with the carry before the next window, the last window's inputs, and resets."""

    learner: ft.LearnerState
    window: jax.Array
    starts: jax.Array


class Rolling:
    """Learn from the newest rows of a window of `reach` steps, which moves on by `chunk` steps.

    A reach shorter than the chunk learns from the last `reach` steps of each chunk alone. With a
    `batch_size`, streams run side by side, and stand in front of the steps.
    """

    def __init__(self, network, *, optimizer, loss, reach, chunk=1, batch_size=None):
        settings = {"optimizer": optimizer, "loss": loss, "warn": False, "train_encoder": True}
        self.learner = ft.Learner(network, rule=ft.BPTT, batch_size=batch_size, **settings)
        self.reach, self.chunk, self.length = reach, chunk, max(reach, chunk)
        self.front = () if batch_size is None else (batch_size,)

    def init(self, key=None):
        """Return the state before the first step; zeros stand where nothing has been."""
        shape = (*self.front, self.length)
        window = jnp.zeros((*shape, self.learner.network.input_size))
        return State(self.learner.init(key), window, jnp.zeros(shape, bool))

    def step(self, state, xs, ys, *, mask, reset=None):
        """Predict `chunk` steps, learn from their labels, move on; return as `Learner.step`."""
        fresh = jnp.zeros(xs.shape[:-1], bool) if reset is None else reset
        window = jnp.concatenate([state.window[..., self.chunk :, :], xs], -2)
        starts = jnp.concatenate([state.starts[..., self.chunk :], fresh], -1)

        def reset_of(part):
            return {} if reset is None else {"reset": starts[..., part]}

        early, filler = self.length - self.reach, self.length - self.chunk
        before = state.learner
        outputs = jnp.zeros((*self.front, 0, self.learner.network.output_size))
        if early:
            outputs, before = self.learner.predict(
                before, window[..., :early, :], **reset_of(slice(early))
            )
        ys, mask = (_behind(filler, early, leaf, len(self.front)) for leaf in (ys, mask))
        learned, info = self.learner.step(
            before, window[..., early:, :], ys, mask=mask, **reset_of(slice(early, None))
        )
        learner = learned._replace(carry=state.learner.carry, key=state.learner.key)
        _, learner = self.learner.predict(
            learner, window[..., : self.chunk, :], **reset_of(slice(self.chunk))
        )
        outputs = jnp.concatenate([outputs, info.outputs], -2)[..., filler:, :]
        return State(learner, window, starts), info._replace(outputs=outputs)


def _behind(filler, early, leaf, axis):
    """Return labels or weights of the newest steps behind uncounted ones of the window."""
    shape = (*leaf.shape[:axis], filler, *leaf.shape[axis + 1 :])
    return jnp.concatenate([jnp.zeros(shape, leaf.dtype), leaf], axis)[
        (*[slice(None)] * axis, slice(early, None))
    ]
