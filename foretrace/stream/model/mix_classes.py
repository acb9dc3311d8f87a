"""Mixture for classes: weighted products and weighted means of probabilities.

    product    p(c) ~ prod_e p_e(c)^{w_e}
               w <- w - rate (E_p[log p_e] - log p_e(y))    at several rates
    mean       p(c) = sum_e v_e p_e(c),    v <- (1 - share) v p_e(y) / p(y) + share / E
   top        p(c) = sum_m q_m p_m(c),    q likewise; m: products, the mean and the baselines

Labels may arrive late. At the top, a product is therefore judged by the prediction that it made for
the row of the label. Its present exponents have already seen the labels of the rows in between. If
it were judged by these exponents, the product that follows the last labels most closely would win.
The labels of `late` consecutive rows count as one piece of evidence: at the top, the logarithm of a
probability is divided by 1 + late. The rates of the products are divided by 1 + late / 4.

Sources: Mattern, Mixing strategies in data compression, DCC 2012; Herbster and Warmuth, Machine
Learning 32, 1998; Joulani, Gyorgy and Szepesvari, Online learning under delayed feedback, ICML
2013.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._types import Array, Bool, Float, Int
from foretrace.stream.experts.settings import TUNED


def unseen(classes: int) -> float:
    """Return the logarithm of the probability of each class that has not been seen."""
    return float(np.log(TUNED.escape / classes))


class ClassWeights(NamedTuple):
    """Weights of the mixture.

    Args:
        exponents: exponent of each expert in each product.
        means: logarithm of the weight of each expert in the weighted mean.
        top: logarithm of the weight of each product, of the mean, and of each baseline.
    """

    exponents: Float[Array, "M E"]
    means: Float[Array, "E"]
    top: Float[Array, "T"]


class ClassMixture(eqx.Module):
    """The mixture in this file's docstring.

    Args:
        experts: number of experts, of which the first ones are the baselines.
        baselines: number of baselines.
        classes: maximum number of classes.
    """

    experts: int = eqx.field(static=True)
    baselines: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    @property
    def num_candidates(self) -> int:
        """Number of candidate predictions."""
        return len(TUNED.class_rates) + 1 + self.baselines

    def init(self) -> ClassWeights:
        """Return the state before the first row."""
        candidates = self.num_candidates
        return ClassWeights(
            jnp.full((len(TUNED.class_rates), self.experts), 1 / self.experts),
            jnp.full(self.experts, -np.log(self.experts)),
            jnp.full(candidates, -np.log(candidates)),
        )

    def predict(
        self,
        state: ClassWeights,
        predicted: Float[Array, "E O"],
        moments: Float[Array, "2"],
    ) -> tuple[Float[Array, "O"], Float[Array, "T O"]]:
        """Return the logarithms of the mixed probabilities, and the candidates.

        All classes that have not been seen share the small probability `escape`. The first element
        of `moments` is the number of classes that have been seen.
        """
        num_classes = moments[0].astype(jnp.int32)
        seen = jnp.arange(self.classes, dtype=jnp.int32) < num_classes
        candidates = self._candidates(state, predicted, num_classes)[1]
        p = jax.nn.softmax(state.top) @ candidates
        return jnp.log(
            (1 - TUNED.escape) * jnp.where(seen, p, 0.0) + TUNED.escape / self.classes
        ), candidates

    def weights(self, state: ClassWeights) -> Float[Array, "E"]:
        """Return each expert's weight, from its weight in the mean and its exponents."""
        products, mean, own = jnp.split(
            jax.nn.softmax(state.top), [len(TUNED.class_rates), len(TUNED.class_rates) + 1]
        )
        size = jnp.abs(state.exponents)
        of_products = products @ (size / jnp.maximum(size.sum(axis=1, keepdims=True), 1e-30))
        return (of_products + mean * jax.nn.softmax(state.means)).at[: self.baselines].add(own)

    def learn(
        self,
        state: ClassWeights,
        predicted: Float[Array, "E O"],
        candidates: Float[Array, "T O"],
        label: Float[Array, "O"],
        known: Bool[Array, ""],
        moments: Float[Array, "2"],
        late: Any = 0.0,
    ) -> ClassWeights:
        """Return the state after a label; unchanged if the label is unknown or a new class.

        Args:
            state: state of the mixture.
            predicted: predictions of the experts for the row of this label.
            candidates: candidates that `predict` returned for this row.
            label: class as a one-hot vector.
            known: whether the label is known.
            moments: number of classes that had been seen when the row was predicted, and 1.
            late: number of rows by which the label is late.
        """
        num_classes = moments[0].astype(jnp.int32)
        logs, now = self._candidates(state, predicted, num_classes)
        known = known & (jnp.argmax(label).astype(num_classes.dtype) < num_classes)
        of_label = logs @ label
        rates = np.asarray(TUNED.class_rates)[:, None] / (1 + late / 4)
        gradient = of_label[None] - now[: len(TUNED.class_rates)] @ logs.T
        exponents = jnp.clip(state.exponents + rates * gradient, -8.0, 8.0)
        means = _shared(state.means + of_label, TUNED.class_share)
        evidence = jnp.log(jnp.maximum(candidates @ label, 1e-12)) / (1 + late)
        top = _shared(state.top + evidence, TUNED.class_top_share)
        return optax.tree.where(known, ClassWeights(exponents, means, top), state)

    def _candidates(
        self, state: ClassWeights, predicted: Float[Array, "E O"], num_classes: Int[Array, ""]
    ) -> tuple[Float[Array, "E O"], Float[Array, "T O"]]:
        """Return the logarithms of the experts' probabilities, and the candidates."""
        known = jnp.maximum(num_classes, 1)
        seen = jnp.arange(self.classes, dtype=jnp.int32) < known
        safe = jnp.where(
            seen[None],
            (1 - TUNED.floor) * predicted + TUNED.floor / known.astype(predicted.dtype),
            1.0,
        )
        logs = jnp.log(safe)
        products = jax.nn.softmax(jnp.where(seen[None], state.exponents @ logs, -jnp.inf), axis=1)
        mean = jnp.where(seen, jax.nn.softmax(state.means) @ safe, 0.0)
        baselines = jnp.where(seen[None], safe[: self.baselines], 0.0)
        return logs, jnp.concatenate([products, mean[None], baselines])


def _shared(logits: Array, share: float) -> Array:
    weights = jax.nn.softmax(logits)
    return jnp.log((1 - share) * weights + share / logits.size)
