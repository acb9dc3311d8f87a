"""Linear models that learn by gradient descent at several rates; softmax regression for classes.

   W <- W + rate g / s            g: f (onehot(y) - softmax(f W)), or f (y - f W)

For the lags, s = |f|^2. For the words of a row, which no other expert reads, each weight has a
separate step size:

    s <- sqrt((1 - 1 / MEMORY) s^2 + g^2)

This is AdaGrad, with which the weight of a rare but informative word is learned from the first rows
with this word.

Source: Duchi, Hazan and Singer, JMLR 2011.
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.stream.experts.answer import Answer, Classes, probabilities_of_seen
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED


class Gradient(AbstractExpert):
    """Softmax or linear regression, with one expert for each rate.

    Args:
        name: prefix of the names of the experts.
        size: number of features.
        answer: kind of the targets.
        rates: learning rates.
        of_words: whether the features are all inputs of a row. If not, they are the lags.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    answer: Answer
    rates: tuple[float, ...] = eqx.field(static=True)
    of_words: bool = eqx.field(static=True, default=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        titles = (f"{self.name} {rate:g}" for rate in self.rates)
        return tuple(name for title in titles for name in self.answer.names(title))

    def init(self) -> tuple[Float[Array, "E F W"], Float[Array, "..."]]:
        """Return initial weights for each rate, and sums of squared gradients for words."""
        zeros = jnp.zeros((len(self.rates), self.size, self.answer.width))
        return zeros, zeros if self.of_words else jnp.zeros(())

    def predict(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes, or the numbers for each step ahead."""
        found = self._scores(state, features)
        return found if isinstance(self.answer, Classes) else self.answer.read(found, features)

    def learn(self, state: tuple[Array, Array], lesson: Lesson) -> tuple[Array, Array]:
        """Return the state after a label."""
        (weights, squares), features = state, lesson.features
        f = self._features(features)
        error = self.answer.targets(lesson.label, features)[None] - self._scores(state, features)
        error = jnp.clip(error, -TUNED.gradient_clip, TUNED.gradient_clip)[:, None]
        slope, size = jnp.where(lesson.known, f[None, :, None] * error, 0.0), f @ f
        if self.of_words:
            kept = jnp.where(lesson.known, 1 - 1 / TUNED.count_memory, 1.0)
            squares = kept * squares + slope**2
            size = jnp.sqrt(jnp.maximum(squares, 1e-12))
        return weights + jnp.asarray(self.rates)[:, None, None] * slope / size, squares

    def _features(self, features: Features) -> Float[Array, "F"]:
        if self.of_words:
            return jnp.concatenate([jnp.ones(1), features.inputs])
        return features.lags

    def _scores(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E W"]:
        """Return class probabilities, or predicted numbers, for each rate."""
        scores = self._features(features) @ state[0]
        is_class = isinstance(self.answer, Classes)
        return probabilities_of_seen(scores, features.num_classes) if is_class else scores
