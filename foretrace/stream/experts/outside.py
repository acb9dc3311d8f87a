"""Predictions of other models, which stand in columns of the row.

A prediction is used without scaling. A missing one, or one further from the mean than any expert
predicts, becomes NaN; the mixture then uses the other experts.
"""

import equinox as eqx
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED


class Outside(AbstractExpert):
    """Predictions by models outside of foretrace, which columns of the row hold.

    Args:
        columns: names of their columns.
    """

    columns: tuple[str, ...] = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return tuple(f"column {name}" for name in self.columns)

    def init(self) -> tuple[()]:
        """Return the state, which is empty: nothing is learned."""
        return ()

    def predict(self, state: tuple[()], features: Features) -> Float[Array, "E 1"]:
        """Return the numbers; NaN where one is missing."""
        mean, deviation = features.moments
        found = (jnp.asarray(features.given) - mean) / deviation
        return jnp.where(jnp.abs(found) > TUNED.reach, jnp.nan, found)[:, None]

    def learn(self, state: tuple[()], lesson: Lesson) -> tuple[()]:
        """Return the state."""
        return state
