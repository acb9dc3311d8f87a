"""Agents that backpropagate through the last `reach` steps again at every step.

    window     <- its last reach - 1 observations and the newest one
    gradient   of the newest step's objective, through the whole window, from the state h before it
    h          <- the state one step later, computed with the parameters of now

All else is the agent's own: traces in value, updates, episodes. It lives here and not in the
library, where a rule is data (what is open to the derivative, and what is carried for it): a window
is kept observations that are run again, which an agent exists to spare.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._engine.gradient import evaluate
from foretrace._recurrence.chunk import Carry


class Window(NamedTuple):
    """A stream's carry instead of sensitivities; an axis of one stands for the layers."""

    before: Any
    xs: jax.Array
    reset: jax.Array


class RollingAgent(ft.rl.Agent):
    """An agent that learns by a rolling window of `reach` steps."""

    def __init__(self, network, method, *, reach, **options):
        self.reach = reach
        super().__init__(network, method, rule=ft.BPTT, **options)

    def init(self, key=None):
        """Return the state before the first observation; zeros stand where nothing has been."""
        state = super().init(key)
        front = (1, *self._front, self.reach)
        xs = jnp.zeros((*front, self.network.input_size), self._dtype)
        window = Window(jax.tree.map(jnp.copy, state.carry.h), xs, jnp.zeros(front, bool))
        return state._replace(carry=state.carry._replace(e=window))

    def _gradient(self, network, carry, data, loss):
        old = carry.e
        oldest = Data(old.xs[0, :1], reset=old.reset[0, :1])
        _, moved = run(network, Carry(old.before, None), oldest, rule=self.rule)
        xs = jnp.concatenate([old.xs[0, 1:], data.xs])
        starts = jnp.concatenate([old.reset[0, 1:], data.reset])
        newest = jnp.arange(self.reach) == self.reach - 1
        noises = jnp.broadcast_to(data.ys, (self.reach, *data.ys.shape[1:]))
        window = Data(xs, noises, mask=newest, reset=starts)
        found = evaluate(network, Carry(moved.h, None), window, rule=self.rule, loss=loss)
        after = Carry(found.carry.h, Window(moved.h, xs[None], starts[None]))
        return found._replace(carry=after, outputs=found.outputs[-1:])
