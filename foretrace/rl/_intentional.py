"""The step size that moves a value by a share of its error: intentional updates."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from foretrace._types import Array, Arrays, Float, Int
from foretrace.rl._checks import check_ranges
from foretrace.rl._transition import Outcome
from foretrace.rl._update import Change, Update, check_learns_values, rows

KEEP_SQUARES, KEEP_ERRORS = 0.999, 0.9998
"""Decays of the running means of squared gradients and of squared errors."""

CLIP = 20.0
"""Largest error that counts in full, relative to the root mean square of all errors."""


class IntentionalState(NamedTuple):
    """Exponential means, uncorrected, about P parameters.

    Args:
        squares: mean of the squared gradient of a value, for each parameter.
        size: mean of the squared norm of that gradient, each square divided by d.
        errors: mean of squared temporal-difference errors; it begins at 1.
        gradients: number of steps in `squares` and `size`.
        known: number of steps in `errors`.
    """

    squares: Float[Array, "P"]
    size: Float[Array, ""]
    errors: Float[Array, ""]
    gradients: Int[Array, ""]
    known: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Intentional(Update):
    """Intentional TD(lambda): the step that is meant to reduce the error by a share of it.

        d        = sqrt(mean of g^2) + 1e-8               one number for each parameter
        sigma    = mean of sum g^2 / d                    with decay discount * trace_decay
        step     = learning_rate / sqrt(sigma * sum z^2 / d)
        theta   <- theta + step * clip(delta) z / d

    with the gradient g of a step's value and the trace z of an agent. The error delta is clipped at
    20 times the root of the mean of its square. Means are exponential and corrected for their
    beginning at zero; the one of squared errors begins at 1. In a batch each stream has a step of
    its own, and the changes are averaged. Learns values alone: the authors give the policy of an
    actor-critic a trace and an update of its own.

    Args:
        learning_rate: share of the error that a step is meant to remove (eta).
        decay: decay of sigma, the authors' discount * trace_decay of the agent.

    Raises:
        TypeError: no numbers.
        ValueError: a learning rate that is not positive and finite, or a decay outside [0, 1).

    Source: Sharifnassab, Elsayed, De Asis, Mahmood and Sutton, Intentional updates for streaming
        reinforcement learning, arXiv 2604.19033, and `optimizer.py` of the authors' code.
    """

    learning_rate: float = 0.5
    decay: float = 0.99 * 0.8

    def __post_init__(self) -> None:
        check_ranges(self)

    def check(self, name: str, agent: Any) -> None:
        """Raise a ValueError if the agent learns more than values."""
        check_learns_values(name, agent)

    def init(self, network: Any, front: tuple[int, ...]) -> IntentionalState:
        """Return the state before the first step."""
        flat = ravel_pytree(network)[0]
        none, one = jnp.zeros((), jnp.int32), jnp.ones((), flat.dtype)
        return IntentionalState(jnp.zeros_like(flat), 0 * one, one, none, none)

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a step along the trace."""
        delta, known = td_error.reshape(-1), outcome.known.sum()
        square = (delta**2).sum() / jnp.maximum(known, 1)
        more = KEEP_ERRORS * state.errors + (1 - KEEP_ERRORS) * square
        errors = jnp.where(known > 0, more, state.errors)
        count = state.known + (known > 0)
        limit = CLIP * jnp.sqrt(_corrected(errors, KEEP_ERRORS, count))
        z, d = rows(trace, delta.size), _roots(state.squares, state.gradients)
        sigma = _corrected(state.size, self.decay, state.gradients)
        length = jnp.sqrt(sigma * (z**2 / d[None]).sum(1))
        # Without a trace there is no step.
        step = jnp.where(length > 0, self.learning_rate / jnp.maximum(length, 1e-8), 0)
        moved = (step * jnp.clip(delta, -limit, limit)) @ z / d / delta.size
        before, restored = ravel_pytree(network)
        return Change(
            restored(before + moved),
            state._replace(errors=errors, known=count),
            step.reshape(td_error.shape),
            jnp.linalg.norm(moved),
        )

    def remembering(self, state: IntentionalState, gradient: Arrays) -> IntentionalState:
        """Return the state with the gradient of each stream's newest value in the means."""
        streams = ravel_pytree(gradient)[0].size // state.squares.size
        square = (rows(gradient, streams) ** 2).mean(0)
        squares = KEEP_SQUARES * state.squares + (1 - KEEP_SQUARES) * square
        count = optax.safe_increment(state.gradients)
        size = (square / _roots(squares, count)).sum()
        size = self.decay * state.size + (1 - self.decay) * size
        return state._replace(squares=squares, size=size, gradients=count)


def _roots(squares: Float[Array, "P"], count: Int[Array, ""]) -> Float[Array, "P"]:
    """Return what a parameter's gradients and traces are divided by: d."""
    return jnp.sqrt(_corrected(squares, KEEP_SQUARES, count)) + 1e-8


def _corrected(mean: Array, decay: float, count: Int[Array, ""]) -> Array:
    """Return an exponential mean, corrected for its beginning at zero."""
    return optax.tree.bias_correction(mean, decay, jnp.maximum(count, 1))
