"""A recurrent network among the experts: the reading of its outputs, and its targets.

Of numbers it learns the residual from a base between the mean and the last number, in the running
size of this residual. All are in standard deviations from the mean.

    y_hat    = base + s * output    s: root mean square of y - base, if it is normal
    base     = slope * last         slope: of the best linear prediction from it, in [0, 1]
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from foretrace._experts.answer import RANGE, last_number, probabilities_of_seen
from foretrace._experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace._experts.expert import AbstractExpert, Features, Lesson
from foretrace._types import Array, Float, Int

_BOUND = 10.0
"""Multiple of its size at which a residual is clipped."""

_MEMORY = 3000.0
"""Number of labels over which slope and size are averaged."""

_SETTLED = 10

_NORMAL = 1.2533
"""Standard deviation of normal numbers over their mean size."""


class Residuals(NamedTuple):
    """Statistics of the residuals of numbers.

    Args:
        product: mean of the number at each step ahead times the last number.
        power: mean square of the last number.
        scale: size of the residual at each step ahead.
        num_labels: number of labels.
    """

    product: Float[Array, "O"]
    power: Float[Array, ""]
    scale: ErrorScale
    num_labels: Float[Array, ""]


class NumberNetwork(AbstractExpert):
    """Reading of the network's outputs as numbers.

    Args:
        outputs: number of steps ahead.
    """

    outputs: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return ("network",)

    def init(self) -> Residuals:
        """Return the state before the first row."""
        zeros = jnp.zeros(self.outputs)
        return Residuals(zeros, jnp.zeros(()), new_error_scale(zeros), jnp.zeros(()))

    def predict(self, state: Residuals, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        residual = jnp.nan_to_num(_NORMAL * state.scale.size * features.network_outputs)
        return (_base(state, last_number(features)) + jnp.clip(residual, -RANGE, RANGE))[None]

    def target(self, state: Residuals, late: Float[Array, "O+1"]) -> Float[Array, "O"]:
        """Return the network's targets for a row whose label has arrived.

        Args:
            state: present state.
            late: numbers at each step ahead, and the last number when the row was predicted.
        """
        size = jnp.where(state.scale.size > 0, _NORMAL * state.scale.size, 1.0)
        return jnp.clip((late[:-1] - _base(state, late[-1])) / size, -_BOUND, _BOUND)

    def learn(self, state: Residuals, lesson: Lesson) -> Residuals:
        """Return the state after a label."""
        last, label = last_number(lesson.features), lesson.label
        taken = lesson.known.astype(label.dtype)
        size = jnp.abs(label - _base(state, last))
        count = state.num_labels + taken
        rate = taken / jnp.clip(count, 1.0, _MEMORY)
        bounded, inside = jnp.clip(last, -_BOUND, _BOUND), jnp.clip(label, -_BOUND, _BOUND)
        return Residuals(
            state.product + rate * (inside * bounded - state.product),
            state.power + rate * (bounded * bounded - state.power),
            learned_error(state.scale, size, _BOUND, rate, state.num_labels >= _SETTLED),
            count,
        )


def _base(state: Residuals, last: Float[Array, ""]) -> Float[Array, "O"]:
    """Return the number at each step ahead from which the network's residual is taken."""
    slope = jnp.clip(state.product / jnp.where(state.power > 0, state.power, 1.0), 0.0, 1.0)
    return jnp.where(state.power > 0, slope, 1.0) * last


class ClassNetwork(AbstractExpert):
    """Reading of the network's outputs as classes: they are logits."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return ("network",)

    def init(self) -> tuple[()]:
        """Return the state, which holds nothing."""
        return ()

    def predict(self, state: tuple[()], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        logits = jnp.clip(jnp.nan_to_num(features.network_outputs), -50.0, 50.0)
        return probabilities_of_seen(logits, features.num_classes)[None]

    def target(self, state: tuple[()], late: Float[Array, "1"]) -> Int[Array, ""]:
        """Return a class that has come as the network's loss takes it."""
        return late[0].astype(jnp.int32)

    def learn(self, state: tuple[()], lesson: Lesson) -> tuple[()]:
        """Return the state after a label, as it was."""
        return state
