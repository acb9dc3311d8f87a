"""Linear or softmax regression on all inputs of a row, also on its words: AdaGrad.

   s <- sqrt((1 - 1 / MEMORY) s^2 + g^2)
   W <- W + rate g / s            g: f (onehot(y) - softmax(f W)), or f (y - f W)

Each weight has a separate step size, with which the weight of a rare but informative word is
learned from the first rows with this word. Only the weights of the row's own words are read and
written, so that the time of a row hardly depends on the number of inputs.

Source: Duchi, Hazan and Singer, JMLR 2011.
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float, Int
from foretrace.stream.experts.answer import Answer, Classes, probabilities_of_seen
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED


class Words(AbstractExpert):
    """Linear or softmax regression on the inputs of a row, with one expert for each rate.

    Args:
        inputs: number of inputs that are no words.
        words: number of inputs for words.
        answer: kind of the targets.
    """

    inputs: int = eqx.field(static=True)
    words: int = eqx.field(static=True)
    answer: Answer

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        titles = (f"words {rate:g}" for rate in TUNED.word_rates)
        return tuple(name for title in titles for name in self.answer.names(title))

    def init(self) -> tuple[Float[Array, "E F W"], Float[Array, "E F W"]]:
        """Return initial weights for each rate, and averages of their squared gradients."""
        size = 1 + self.inputs + self.words
        zeros = jnp.zeros((len(TUNED.word_rates), size, self.answer.width))
        return zeros, zeros

    def predict(self, state: tuple[Array, Array], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes, or the numbers for each step ahead."""
        f, at = self._inputs(features)
        found = self._scores(f @ state[0][:, at], features)
        return found if isinstance(self.answer, Classes) else self.answer.read(found, features)

    def learn(self, state: tuple[Array, Array], lesson: Lesson) -> tuple[Array, Array]:
        """Return the state after a label."""
        features = lesson.features
        f, at = self._inputs(features)
        weights, squares = (part[:, at] for part in state)
        target = self.answer.targets(lesson.label, features)
        error = target[None] - self._scores(f @ weights, features)
        error = jnp.clip(error, -TUNED.gradient_clip, TUNED.gradient_clip)[:, None]
        slope = jnp.where(lesson.known, f[None, :, None] * error, 0.0)
        squares = jnp.where(slope == 0, 1.0, 1 - 1 / TUNED.count_memory) * squares + slope**2
        rates = jnp.asarray(TUNED.word_rates)[:, None, None]
        weights = weights + rates * slope / jnp.sqrt(jnp.maximum(squares, 1e-12))
        return state[0].at[:, at].set(weights), state[1].at[:, at].set(squares)

    def _inputs(self, features: Features) -> tuple[Float[Array, "P"], Int[Array, "P"]]:
        """Return the constant, the inputs and words of a row, and their places."""
        (values, places), first = features.words, 1 + self.inputs
        f = jnp.concatenate([jnp.ones(1), features.inputs[: self.inputs], values])
        return f, jnp.concatenate([jnp.arange(first, dtype=places.dtype), first + places])

    def _scores(self, scores: Float[Array, "E W"], features: Features) -> Float[Array, "E W"]:
        """Return class probabilities, or predicted numbers, for each rate."""
        is_class = isinstance(self.answer, Classes)
        return probabilities_of_seen(scores, features.num_classes) if is_class else scores
