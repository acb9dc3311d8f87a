"""A guard: experts that remember join a mixture only while they make it better.

    without   the mixture of the other experts
    with      a mixture of its prediction and those of the experts that remember
    d         loss of `without` minus loss of `with`, averaged over some 1,000 labels

The guard opens when the mean of d is `OPEN` standard errors above zero, and shuts when it falls
below zero. Until it opens, the predictions come from `without`. Losses of late labels overlap:
1 + delay of them count as one label, or fewer if d repeats itself less, by its correlation rho with
the one before: (1 + rho) / (1 - rho).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from foretrace._experts.mix_classes import ClassMixture
from foretrace._experts.mix_numbers import NumberMixture
from foretrace._learner.error_moments import repetition
from foretrace._types import Array, Bool, Float

OPEN = 3.0
"""Standard errors of the mean difference from which the guard opens."""

WINDOW = 1000.0
"""Number of labels over which losses are compared."""

_CLIP = 4.0
"""Largest difference of the losses of one label."""


class Compared(NamedTuple):
    """Both mixtures, and the comparison of them.

    Args:
        without: weights without the experts that remember.
        joint: weights with them.
        mean: mean of d, for each step ahead.
        square: mean of its square.
        lagged: mean product of d and the one before.
        last: newest d.
        num_labels: number of labels, at most `WINDOW`.
        is_open: whether the experts that remember are used.
    """

    without: Any
    joint: Any
    mean: Float[Array, "*O"]
    square: Float[Array, "*O"]
    lagged: Float[Array, "*O"]
    last: Float[Array, "*O"]
    num_labels: Float[Array, "*O"]
    is_open: Bool[Array, "*O"]


class Guarded(eqx.Module):
    """A mixture with experts that remember behind a guard.

    Args:
        without: mixture of the other experts.
        joint: mixture of its prediction, which stands first, and the experts that remember.
        late: largest number of labels that count as one, for each step ahead.
    """

    without: Any
    joint: Any
    late: tuple[int, ...] = eqx.field(static=True)

    @property
    def is_of_classes(self) -> bool:
        """Whether classes are predicted."""
        return isinstance(self.without, ClassMixture)

    @property
    def num_candidates(self) -> int:
        """Number of predictions that wait for the label, beside the experts' ones."""
        return self.without.num_candidates + 1 + self.joint.num_candidates + 1

    def init(self) -> Compared:
        """Return the state before the first row."""
        joint = self.joint.init()
        if self.is_of_classes:
            # At first a product is the prediction without the experts that remember.
            only = np.eye(1, self.joint.experts)
            joint = joint._replace(
                exponents=jnp.asarray(np.repeat(only, len(joint.exponents), axis=0))
            )
        shape = () if self.is_of_classes else (self.joint.outputs,)
        zero = jnp.zeros(shape)
        shut = jnp.zeros(shape, bool)
        return Compared(self.without.init(), joint, zero, zero, zero, zero, zero, shut)

    def predict(
        self, state: Compared, predicted: Float[Array, "E O"], *scale: Array
    ) -> tuple[Float[Array, "O"], Float[Array, "T O"]]:
        """Return the mixed prediction, and the values that its label needs; see the mixtures."""
        own, remembering = predicted[: self.without.experts], predicted[self.without.experts :]
        first, own_candidates = self.without.predict(state.without, own, *scale)
        last, candidates = self.joint.predict(state.joint, self._joined(first, remembering), *scale)
        made = jnp.concatenate([own_candidates, first[None], candidates, last[None]])
        return jnp.where(state.is_open, last, first), made

    def weights(self, state: Compared) -> Float[Array, "E *O"]:
        """Return the weight of each expert, those that remember last."""
        own, joint = self.without.weights(state.without), self.joint.weights(state.joint)
        share = jnp.where(state.is_open, joint[0], 1.0)
        taken = jnp.where(state.is_open, jnp.ones_like(joint[0]), 0.0)
        return jnp.concatenate([own * share[None], joint[1:] * taken[None]])

    def learn(
        self,
        state: Compared,
        predicted: Float[Array, "E O"],
        candidates: Float[Array, "T O"],
        label: Float[Array, "O"],
        known: Bool[Array, "*O"],
        scale: Array,
        *more: Array,
    ) -> Compared:
        """Return the state after a label; as it was where it is not known. See the mixtures."""
        own, remembering = predicted[: self.without.experts], predicted[self.without.experts :]
        at = self.without.num_candidates
        first, last = candidates[at], candidates[-1]
        without = self.without.learn(
            state.without, own, candidates[:at], label, known, scale, *more
        )
        joint = self.joint.learn(
            state.joint,
            self._joined(first, remembering),
            candidates[at + 1 : -1],
            label,
            known,
            scale,
            *more,
        )
        if self.is_of_classes:
            found = (last - first) @ label
        else:
            unit = jnp.maximum(state.joint.unit.size / scale, 1e-9)
            found = (jnp.abs(first - label) - jnp.abs(last - label)) / unit
        return self._compared(
            state._replace(without=without, joint=joint), jnp.clip(found, -_CLIP, _CLIP), known
        )

    def _compared(
        self, state: Compared, found: Float[Array, "*O"], known: Bool[Array, "*O"]
    ) -> Compared:
        """Return the state after a difference of the losses."""
        count = jnp.minimum(state.num_labels + 1, WINDOW)
        mean = state.mean + (found - state.mean) / count
        square = state.square + (found**2 - state.square) / count
        lagged = state.lagged + (found * state.last - state.lagged) / count
        late = self.late[0] if self.is_of_classes else np.asarray(self.late, float)
        error = jnp.sqrt(square * jnp.minimum(late, repetition(square, lagged)) / count)
        is_open = jnp.where(state.is_open, mean > 0, (mean > OPEN * error) & (count >= 50))
        new = state._replace(
            mean=mean, square=square, lagged=lagged, last=found, num_labels=count, is_open=is_open
        )
        return new._replace(
            **{
                name: jnp.where(known, getattr(new, name), getattr(state, name))
                for name in Compared._fields[2:]
            }
        )

    def _joined(
        self, first: Float[Array, "O"], remembering: Float[Array, "X O"]
    ) -> Float[Array, "Y O"]:
        first = jnp.exp(first) if self.is_of_classes else first
        return jnp.concatenate([first[None], remembering])


def guarded(without: NumberMixture | ClassMixture, remembering: int) -> Guarded:
    """Return a mixture with experts that remember behind a guard."""
    if isinstance(without, ClassMixture):
        joint: Any = ClassMixture(1 + remembering, 1, without.classes, without.delay)
        return Guarded(without, joint, (1 + without.delay,))
    joint = NumberMixture(1 + remembering, 1, without.outputs, without.delays)
    return Guarded(without, joint, tuple(1 + delay for delay in without.delays))
