"""A recurrent network as an expert: it predicts a row now, and learns when the label arrives.

   outputs, carry' = network(carry, x)            x: the row and the last known label
    learner         = learn(carry, x, y)           when the label arrives, with its row's carry

For numbers, the network learns the residual from a base between the mean and the last number,
divided by the running size of this residual. All numbers are in standard deviations from the mean.

   y_hat    = base + s * output    s: root mean square of y - base, if it is normal
    base     = slope * last         slope: of the best linear prediction from `last`, in [0, 1]

For classes, the outputs are logits. Everything except the residuals is computed in JAX's precision
at the time when the expert was made, also inside a program in float64.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.answer import (
    Answer,
    Classes,
    last_number,
    probabilities_of_seen,
)
from foretrace.stream.experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.modules import Modules
from foretrace.stream.experts.settings import TUNED

_SETTLED = 10

_NORMAL = 1.2533
"""Standard deviation of normal numbers, divided by their mean absolute value."""


class Residuals(NamedTuple):
    """Statistics of the residuals of numbers. They are not used for classes.

    Args:
        product: mean product of the last number and the number at each step ahead.
        power: mean square of the last number.
        scale: scale of the residual at each step ahead.
        num_labels: number of labels.
    """

    product: Float[Array, "O"]
    power: Float[Array, ""]
    scale: ErrorScale
    num_labels: Float[Array, ""]


class Refusals(NamedTuple):
    """Number of steps of the network that were refused because loss or gradient was not finite.

    Args:
        total: number of refused steps.
        in_a_row: number of consecutive refused steps up to now.
        longest: largest number of consecutive refused steps so far.
    """

    total: Float[Array, ""]
    in_a_row: Float[Array, ""]
    longest: Float[Array, ""]


class NetworkState(NamedTuple):
    """State of the network that all streams share.

    Args:
        learner: network and optimiser. Each stream has a separate carry.
        residuals: statistics of the residuals of numbers.
        refusals: number of refused steps; None in a program that does not count them.
    """

    learner: LearnerState
    residuals: Residuals
    refusals: Refusals | None


class RecurrentNetwork(Modules):
    """One expert: a network that is trained row by row while the stream runs."""

    def __init__(self, learner: Learner, answer: Answer):
        self.learner, self.answer = learner, answer
        self.x64 = bool(jax.config.read("jax_enable_x64"))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert."""
        return ("network",)

    def init(self) -> NetworkState:
        """Return the state before the first row."""
        zero, zeros = jnp.zeros(()), jnp.zeros(self.answer.outputs)
        with jax.enable_x64(self.x64):
            learner = self.learner.init()._replace(carry=None)
        return NetworkState(
            learner,
            Residuals(product=zeros, power=zero, scale=new_error_scale(zeros), num_labels=zero),
            Refusals(zero, zero, zero),
        )

    def new_carry(self, learned: NetworkState) -> Carry:
        """Return states and sensitivities before the first row."""
        return self.fresh_carry(learned.learner.network, learned.learner.key)

    def take(
        self,
        learned: NetworkState,
        carry: Carry,
        features: Features,
        has_row: Bool[Array, ""],
        *,
        waits: bool,
    ) -> tuple[Float[Array, "E O"], Carry, Any]:
        """Return the prediction of a row, the carry after it, and the memo for its label.

        If the label is late, this method updates the sensitivities; otherwise learning updates
        them.
        """
        with jax.enable_x64(self.x64):
            ready = learned.learner._replace(carry=carry)
            x = self._in_precision(features.inputs)[None]
            outputs, moved = self.learner.predict(ready, x, sensitivity=waits)
        found = outputs[0].astype(features.row.dtype)
        after = optax.tree.where(has_row, moved.carry, carry)
        memo = self.memo(learned.learner.network, carry, waits=waits)
        return self.read(learned.residuals, found, features), after, memo

    def label(
        self, learned: NetworkState, carry: Carry, memo: Any, lesson: Lesson
    ) -> tuple[NetworkState, Carry]:
        """Return the learned state after a label, and the carry."""
        now, features = learned, lesson.features
        target = self.target(now.residuals, lesson.label, features)
        before = self.carry_of_row(now.learner.network, memo)
        with jax.enable_x64(self.x64):
            x, y = self._in_precision(features.inputs), self._in_precision(target)
            known = lesson.known.astype(x.dtype)[None]
            ready = now.learner._replace(carry=before)
            learner, info = self.learner.step(ready, x[None], y[None], mask=known)
            if lesson.late is None:
                carry = optax.tree.where(lesson.has_row, learner.carry, before)
        if (refusals := now.refusals) is not None:
            is_refused = lesson.has_row & ~info.accepted
            in_a_row = jnp.where(is_refused, refusals.in_a_row + 1, 0.0)
            total, longest = refusals.total + is_refused, jnp.maximum(refusals.longest, in_a_row)
            after_row = Refusals(total, in_a_row, longest)
            refusals = optax.tree.where(lesson.has_row, after_row, refusals)
        step, key = optax.tree.where(
            lesson.has_row, (learner.step, learner.key), (now.learner.step, now.learner.key)
        )
        found = NetworkState(
            learner._replace(carry=None, step=step, key=key),
            self._noted(now.residuals, lesson),
            refusals,
        )
        return found, carry

    def read(
        self, residuals: Residuals, outputs: Float[Array, "O"], features: Features
    ) -> Float[Array, "E O"]:
        """Return the prediction for outputs of the network, the inverse of `target`."""
        if isinstance(self.answer, Classes):
            logits = jnp.clip(jnp.nan_to_num(outputs), -50.0, 50.0)
            return probabilities_of_seen(logits, features.num_classes)[None]
        found = jnp.nan_to_num(_NORMAL * residuals.scale.size * outputs)
        return (
            _base(residuals, last_number(features)) + jnp.clip(found, -TUNED.reach, TUNED.reach)
        )[None]

    def target(
        self, residuals: Residuals, label: Float[Array, "O"], features: Features
    ) -> Float[Array, "*O"]:
        """Return the network's target for a row whose label has arrived.

        Args:
            residuals: present statistics.
            label: numbers in standard deviations, or the class as a one-hot vector.
            features: features of the row.
        """
        if isinstance(self.answer, Classes):
            return jnp.argmax(label).astype(jnp.int32)
        size = jnp.where(residuals.scale.size > 0, _NORMAL * residuals.scale.size, 1.0)
        base = _base(residuals, last_number(features))
        return jnp.clip((label - base) / size, -TUNED.residual, TUNED.residual)

    def _noted(self, before: Residuals, lesson: Lesson) -> Residuals:
        """Return the statistics of the residuals after a label."""
        if isinstance(self.answer, Classes):
            return before
        last, label = last_number(lesson.features), lesson.label
        taken = lesson.known.astype(label.dtype)
        size = jnp.abs(label - _base(before, last))
        count = before.num_labels + taken
        rate = taken / jnp.clip(count, 1.0, TUNED.residual_memory)
        bounded, inside = (
            jnp.clip(last, -TUNED.residual, TUNED.residual),
            jnp.clip(label, -TUNED.residual, TUNED.residual),
        )
        return Residuals(
            product=before.product + rate * (inside * bounded - before.product),
            power=before.power + rate * (bounded * bounded - before.power),
            scale=learned_error(
                before.scale, size, TUNED.residual, rate, before.num_labels >= _SETTLED
            ),
            num_labels=count,
        )

    def _in_precision(self, values: Array) -> Array:
        is_float = jnp.issubdtype(values.dtype, jnp.floating)
        return values.astype(jnp.result_type(float)) if is_float else values


def _base(state: Residuals, last: Float[Array, ""]) -> Float[Array, "O"]:
    """Return the base of the network's residual, a number for each step ahead."""
    slope = jnp.clip(state.product / jnp.where(state.power > 0, state.power, 1.0), 0.0, 1.0)
    return jnp.where(state.power > 0, slope, 1.0) * last
