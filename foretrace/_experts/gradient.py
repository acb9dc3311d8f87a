"""Linear models learned by gradient descent: cheap, and quick to follow a change.

numbers    W <- W + rate f psi(y - f W) / |f|^2          psi: the error, clipped at some mean errors
classes    W <- W + rate f (onehot(y) - softmax(f W)) / |f|^2
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._experts.answer import Numbers, probabilities_of_seen
from foretrace._experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace._experts.expert import AbstractExpert, Features, Lesson
from foretrace._types import Array, Float

_CLIP = 2.0


class NumberGradient(AbstractExpert):
    """Normalised stochastic gradient descent on the lags, from the mean and from the last number.

    Args:
        size: number of features.
        answer: numbers at the steps ahead.
        rate: learning rate.
    """

    size: int = eqx.field(static=True)
    answer: Numbers
    rate: float = eqx.field(static=True, default=0.05)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return self.answer.names("gradient")

    def init(self) -> tuple[Float[Array, "F O"], ErrorScale]:
        """Return the weights and the scale of the error of each output."""
        width = self.answer.width
        return jnp.zeros((self.size, width)), new_error_scale(jnp.ones(width))

    def predict(self, state: tuple[Array, ErrorScale], features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        return self.answer.read(features.lags @ state[0], features)

    def learn(self, state: tuple[Array, ErrorScale], lesson: Lesson) -> tuple[Array, ErrorScale]:
        """Return the state after a label."""
        weights, scale = state
        f, taken = lesson.features.lags, lesson.known.astype(weights.dtype)
        error = self.answer.targets(lesson.label, lesson.features) - f @ weights
        size = jnp.abs(error)
        step = (
            jnp.sign(error) * jnp.minimum(size, _CLIP * scale.size) * (self.rate * taken / (f @ f))
        )
        return weights + f[:, None] * step[None], learned_error(
            scale, size, 5.0, 0.01 * taken, jnp.array(True)
        )


class ClassGradient(AbstractExpert):
    """Softmax regression on the lags at several rates.

    Args:
        size: number of features.
        classes: maximum number of classes.
        rates: learning rates, one for each expert.
    """

    size: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    rates: tuple[float, ...] = eqx.field(static=True, default=(0.3, 2.0))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return tuple(f"softmax {rate:g}" for rate in self.rates)

    def init(self) -> Float[Array, "F E O"]:
        """Return the weights at each rate."""
        return jnp.zeros((self.size, len(self.rates), self.classes))

    def predict(self, state: Float[Array, "F E O"], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        logits = (features.lags @ state.reshape(self.size, -1)).reshape(state.shape[1:])
        return probabilities_of_seen(logits, features.num_classes)

    def learn(self, state: Float[Array, "F E O"], lesson: Lesson) -> Float[Array, "F E O"]:
        """Return the state after a label."""
        f = lesson.features.lags
        rates = jnp.asarray(self.rates)[:, None] * (lesson.known.astype(f.dtype) / (f @ f))
        step = (lesson.label[None] - self.predict(state, lesson.features)) * rates
        return state + f[:, None, None] * step[None]
