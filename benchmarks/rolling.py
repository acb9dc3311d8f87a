"""Truncated backpropagation through time with a rolling window: at every step, the last `reach` steps are gone through.

    window      <- its last steps and the newest `chunk`
    parameters  <- learned from the newest losses, through the whole window, from the state h before it
    h           <- the state `chunk` steps later, computed with the parameters of now

Unlike chunks of `BPTT`, whose reach is anything from one step to the chunk, every label sees the same `reach` steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import foretrace as ft


class State(NamedTuple):
    """Network, optimiser and the state before the next window; inputs of the last one, and where an episode starts."""

    learner: ft.LearnerState
    window: jax.Array
    starts: jax.Array


class Rolling:
    """Learn from the newest rows of a window of `reach` steps, which moves on by `chunk` steps.

    A reach shorter than the chunk learns from the last `reach` steps of each chunk alone. With a `batch_size`, streams
    run side by side, and stand in front of the steps.
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
        """Predict `chunk` steps, learn from their labels, move on; return the state and what `Learner.step` returns."""
        window, starts = self._pushed(state, xs, reset)
        early = self.length - self.reach
        before = state.learner
        outputs = jnp.zeros((*self.front, 0, self.learner.network.output_size))
        if early:
            given = {} if reset is None else {"reset": starts[..., :early]}
            outputs, before = self.learner.predict(before, window[..., :early, :], **given)
        axis, filler = len(self.front), self.length - self.chunk
        ys, mask = (_behind(filler, early, leaf, axis) for leaf in (ys, mask))
        given = {} if reset is None else {"reset": starts[..., early:]}
        learned, info = self.learner.step(before, window[..., early:, :], ys, mask=mask, **given)
        learner = state.learner._replace(
            network=learned.network, opt_state=learned.opt_state, step=learned.step, skipped=learned.skipped
        )
        outputs = jnp.concatenate([outputs, info.outputs], -2)[..., filler:, :]
        return self._moved(learner, window, starts, reset), info._replace(outputs=outputs)

    def predict(self, state, xs, *, reset=None):
        """Move on without learning; return the outputs and the state."""
        window, starts = self._pushed(state, xs, reset)
        given = {} if reset is None else {"reset": starts}
        outputs, _ = self.learner.predict(state.learner, window, **given)
        outputs = outputs[..., self.length - self.chunk :, :]
        return outputs, self._moved(state.learner, window, starts, reset)

    def _pushed(self, state, xs, reset):
        fresh = jnp.zeros(xs.shape[:-1], bool) if reset is None else reset
        window = jnp.concatenate([state.window[..., self.chunk :, :], xs], -2)
        return window, jnp.concatenate([state.starts[..., self.chunk :], fresh], -1)

    def _moved(self, learner, window, starts, reset):
        given = {} if reset is None else {"reset": starts[..., : self.chunk]}
        carry = self.learner.predict(learner, window[..., : self.chunk, :], **given)[1].carry
        return State(learner._replace(carry=carry), window, starts)


def _behind(filler, early, leaf, axis):
    """Return labels or weights of the newest steps behind those of the window that count no more."""
    shape = (*leaf.shape[:axis], filler, *leaf.shape[axis + 1 :])
    return jnp.concatenate([jnp.zeros(shape, leaf.dtype), leaf], axis)[(*[slice(None)] * axis, slice(early, None))]
