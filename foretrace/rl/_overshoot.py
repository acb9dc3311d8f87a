"""The bounded step size of ObGD, which does not overshoot."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._learner.optimizer import norm
from foretrace._types import Array, Arrays, Float
from foretrace.rl._checks import check_ranges
from foretrace.rl._transition import Outcome
from foretrace.rl._update import Change, Update, mean


@dataclasses.dataclass(frozen=True)
class ObGD(Update):
    """Overshooting-bounded gradient descent: the error bounds the update along the trace.

        M        = learning_rate * kappa * max(|delta|, 1) * ||z||_1
        step     = learning_rate / max(M, 1)
        theta   <- theta + step * delta * z

    z is the trace of the gradients of predictions, and delta is the error. If the prediction is
    smooth enough for the chosen kappa, an update along z changes it by less than delta. In a batch,
    each stream has a separate step size, and the changes are averaged.

    Args:
        learning_rate: largest step size.
        kappa: safety factor, above 1. A larger factor makes smaller steps.

    Raises:
        TypeError: an argument is no number.
        ValueError: a value is not positive and finite.

    Source: Elsayed, Vasan and Mahmood, Streaming deep reinforcement learning finally works, arXiv
        2410.14606.

    >>> import jax.numpy as jnp
    >>> float(ObGD(kappa=2.0).step_size(jnp.array(0.5), [jnp.array([3.0, -1.0])]))
    0.125
    """

    learning_rate: float = 1.0
    kappa: float = 2.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def step_size(self, td_error: Float[Array, "*B"], trace: Arrays) -> Float[Array, "*B"]:
        """Return the step size of each stream, from its temporal-difference error and trace."""
        front = td_error.ndim
        size = sum(
            jnp.abs(leaf).sum(tuple(range(front, leaf.ndim))) for leaf in jax.tree.leaves(trace)
        )
        bound = self.learning_rate * self.kappa * jnp.maximum(jnp.abs(td_error), 1.0) * size
        return self.learning_rate / jnp.maximum(bound, 1.0)

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a bounded update along the trace."""
        step_size = self.step_size(td_error, trace)
        updates = mean(step_size * td_error, trace)
        return Change(optax.apply_updates(network, updates), None, step_size, norm(updates))
