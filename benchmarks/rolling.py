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
    """Network, optimiser and the state before the next window; the inputs of the last one."""

    learner: ft.LearnerState
    window: jax.Array


class Rolling:
    """Learn from the newest rows of a window of `reach` steps, which moves on by `chunk` steps.

    A reach shorter than the chunk learns from the last `reach` steps of each chunk alone.
    """

    def __init__(self, network, *, optimizer, loss, reach, chunk=1):
        settings = {"optimizer": optimizer, "loss": loss, "warn": False, "train_encoder": True}
        self.learner = ft.Learner(network, rule=ft.BPTT, **settings)
        self.reach, self.chunk, self.length = reach, chunk, max(reach, chunk)

    def init(self):
        """Return the state before the first step; zeros stand where nothing has been."""
        return State(self.learner.init(), jnp.zeros((self.length, self.learner.network.input_size)))

    def step(self, state, xs, ys, *, mask):
        """Predict `chunk` steps, learn from their labels, move on; return the state and what `Learner.step` returns."""
        window = jnp.concatenate([state.window[self.chunk :], xs])
        early = self.length - self.reach
        first, before = window[:early], state.learner
        outputs = jnp.zeros((0, self.learner.network.output_size))
        if early:
            outputs, before = self.learner.predict(before, first)
        filler = self.length - self.chunk
        ys = jnp.concatenate([jnp.zeros((filler, *ys.shape[1:]), ys.dtype), ys])[early:]
        mask = jnp.concatenate([jnp.zeros(filler, bool), mask])[early:]
        learned, info = self.learner.step(before, window[early:], ys, mask=mask)
        learner = state.learner._replace(network=learned.network, opt_state=learned.opt_state)
        outputs = jnp.concatenate([outputs, info.outputs])[filler:]
        return self._moved(learner, window), info._replace(outputs=outputs)

    def predict(self, state, xs):
        """Move on without learning; return the outputs and the state."""
        window = jnp.concatenate([state.window[self.chunk :], xs])
        outputs, _ = self.learner.predict(state.learner, window)
        return outputs[self.length - self.chunk :], self._moved(state.learner, window)

    def _moved(self, learner, window):
        carry = self.learner.predict(learner, window[: self.chunk])[1].carry
        return State(learner._replace(carry=carry), window)
