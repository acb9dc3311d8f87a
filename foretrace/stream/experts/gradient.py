"""Softmax regression that learns by gradient descent at several rates.

W <- W + rate f (onehot(y) - softmax(f W)) / |f|^2
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.stream.experts.answer import Classes, probabilities_of_seen
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson


class Gradient(AbstractExpert):
    """Softmax regression on the lags, with one expert for each rate.

    Args:
        name: prefix of the names of the experts.
        size: number of features.
        answer: kind of the targets.
        rates: learning rates.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    answer: Classes
    rates: tuple[float, ...] = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return tuple(f"{self.name} {rate:g}" for rate in self.rates)

    def init(self) -> Float[Array, "E F O"]:
        """Return initial weights for each rate."""
        return jnp.zeros((len(self.rates), self.size, self.answer.width))

    def predict(self, state: Float[Array, "E F O"], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        return probabilities_of_seen(features.lags @ state, features.num_classes)

    def learn(self, state: Float[Array, "E F O"], lesson: Lesson) -> Float[Array, "E F O"]:
        """Return the state after a label."""
        f = lesson.features.lags
        error = (lesson.label[None] - self.predict(state, lesson.features))[:, None]
        slope = jnp.where(lesson.known, f[None, :, None] * error, 0.0)
        return state + jnp.asarray(self.rates)[:, None, None] * slope / (f @ f)
