"""Linear models on all inputs of a row, its words among them, which no other expert sees.

    W <- W + rate g / sqrt(G)      g: f (onehot(y) - softmax(f W)), or f (y - f W)
    G <- (1 - 1 / MEMORY) G + g^2

Each word has a step of its own (AdaGrad): a rare word that tells much is learned at its first rows.
Source: Duchi, Hazan and Singer, JMLR 2011.
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._experts.answer import Answer, Classes, probabilities_of_seen
from foretrace._experts.expert import MEMORY, AbstractExpert, Features, Lesson
from foretrace._types import Array, Float

_CLIP = 3.0
"""Greatest error of a number that is learned, in standard deviations."""


class Words(AbstractExpert):
    """Softmax or linear regression at several rates.

    Args:
        size: number of inputs of a row.
        answer: what is predicted.
        rates: learning rates, one for each expert.
    """

    size: int = eqx.field(static=True)
    answer: Answer
    rates: tuple[float, ...] = eqx.field(static=True, default=(0.2, 0.6))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return tuple(name for rate in self.rates for name in self.answer.names(f"words {rate:g}"))

    def init(self) -> tuple[Float[Array, "E F W"], Float[Array, "E F W"]]:
        """Return the weights at each rate, and the sums of squares of their gradients."""
        zeros = jnp.zeros((len(self.rates), self.size + 1, self.answer.width))
        return zeros, zeros

    def predict(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes, or the numbers for each step ahead."""
        found = self._scores(state, features)
        return found if isinstance(self.answer, Classes) else self.answer.read(found, features)

    def learn(self, state: tuple[Array, Array], lesson: Lesson) -> tuple[Array, Array]:
        """Return the state after a label."""
        (weights, squares), features = state, lesson.features
        error = self.answer.targets(lesson.label, features) - self._scores(state, features)
        error = jnp.clip(error, -_CLIP, _CLIP)[:, None]
        slope = jnp.where(lesson.known, _inputs(features)[None, :, None] * error, 0.0)
        kept = jnp.where(lesson.known, 1 - 1 / MEMORY, 1.0)
        squares = kept * squares + slope**2
        rates = jnp.asarray(self.rates)[:, None, None]
        return weights + rates * slope / jnp.sqrt(jnp.maximum(squares, 1e-12)), squares

    def _scores(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E W"]:
        """Return probabilities of the classes, or targets of numbers, at each rate."""
        scores = _inputs(features) @ state[0]
        is_class = isinstance(self.answer, Classes)
        return probabilities_of_seen(scores, features.num_classes) if is_class else scores


def _inputs(features: Features) -> Float[Array, "F"]:
    return jnp.concatenate([jnp.ones(1), features.inputs])
