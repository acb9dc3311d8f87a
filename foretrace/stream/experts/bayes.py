"""Naive Bayes on the words of a row.

   p(c) ~ (n(c) + 1/2) prod_w r(w, c)^t      w: the words of the row
   r(w, c) = (n(w, c) + A) / (e(w, c) + A)   e(w, c) = n(w) m(c) / m
   n(c), n(w), n(w, c): number of texts of class c, with word w, and of both; m: sum of n(w, c)

e(w, c) is the number of texts that would be expected if the word said nothing about the class. With
A, a ratio is 1 for a word that is new, whatever the number of words. One expert has t = 1; another
one t = 1 / sqrt(number of words), since words of a long text are not independent.

Words with the same hash count as one word. Nothing is forgotten.
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.stream.experts.answer import probabilities_of_seen
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED


class Bayes(AbstractExpert):
    """Two experts, of which the second trusts long texts less.

    Args:
        words: number of inputs for words.
        classes: maximum number of classes.
    """

    words: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return "bayes", "bayes tempered"

    def init(self) -> tuple[Float[Array, "O"], Float[Array, "O"], Float[Array, "D O"]]:
        """Return the counts: texts of each class, their words, and texts with each word."""
        return (
            jnp.zeros(self.classes),
            jnp.zeros(self.classes),
            jnp.zeros((self.words, self.classes)),
        )

    def predict(self, state: tuple[Array, ...], features: Features) -> Float[Array, "E O"]:
        """Return the probabilities of the classes."""
        labels, sums, counts = state
        values, at = features.words
        there, counts = (values > 0).astype(counts.dtype), counts[at]
        expected = counts.sum(1, keepdims=True) * (sums / jnp.maximum(sums.sum(), 1.0))[None]
        ratios = jnp.log((counts + TUNED.word_prior) / (expected + TUNED.word_prior))
        evidence = there @ ratios
        each = jnp.stack([evidence, evidence / jnp.sqrt(jnp.maximum(there.sum(), 1.0))])
        return probabilities_of_seen(jnp.log(labels + 0.5)[None] + each, features.num_classes)

    def learn(self, state: tuple[Array, ...], lesson: Lesson) -> tuple[Array, ...]:
        """Return the state after a label."""
        labels, sums, counts = state
        values, at = lesson.features.words
        label = jnp.where(lesson.known, lesson.label, 0.0)
        more = (values > 0)[:, None] * label[None]
        # The write needs the read of `predict`, so that the compiler writes in place.
        return labels + label, sums + more.sum(0), counts.at[at].set(counts[at] + more)
