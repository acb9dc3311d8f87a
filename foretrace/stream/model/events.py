"""Memory of the last unusual rows, which may affect a row a thousand rows later.

A row is unusual if one of its inputs lies more than `far_out` standard deviations from the mean,
for example a cue, an alarm or a spike in a quiet stream. The last unusual rows are stored with
their ages, until newer ones replace them. If unusual rows are frequent, this memory is not used:
its features are zero, and nothing is computed.
"""

from typing import NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape

_AGE = 0.2
"""Factor of the logarithm of an age, with which an age of 150 rows becomes 1."""


class Events(NamedTuple):
    """The last unusual rows of a stream.

    Args:
        rows: inputs of the unusual rows, the newest first.
        ages: number of rows since each unusual row; -1 if there is none.
        share: fraction of the last rows that were unusual.
        num_rows: number of rows so far.
    """

    rows: Float[Array, "V I"]
    ages: Float[Array, "V"]
    share: Float[Array, ""]
    num_rows: Float[Array, ""]


def new_events(shape: Shape) -> Events:
    """Return the empty memory before the first row."""
    count = shape.num_events
    return Events(
        rows=jnp.zeros((count, shape.row_size)),
        ages=jnp.full(count, -1.0),
        share=jnp.zeros(()),
        num_rows=jnp.zeros(()),
    )


def event_features(events: Events) -> Float[Array, "V"]:
    """Return inputs and age of each unusual row; zeros if there are none or too many."""
    known = (events.ages >= 0) & has_events(events)
    ages = jnp.log1p(jnp.maximum(events.ages, 0.0)) * _AGE
    return jnp.where(
        known[:, None], jnp.concatenate([events.rows, ages[:, None]], axis=1), 0.0
    ).ravel()


def has_events(events: Events) -> Bool[Array, ""]:
    """Return whether there are unusual rows and they are rare."""
    return (events.ages[0] >= 0) & (events.share < TUNED.rare)


def is_unusual(x: Float[Array, "I"]) -> Bool[Array, ""]:
    """Return whether one of the inputs is an outlier.

    Args:
        x: inputs of a row in standard deviations from their means, before any projection.
    """
    return (jnp.abs(x) > TUNED.far_out).any()


def remember(events: Events, row: Float[Array, "I"], unusual: Bool[Array, ""]) -> Events:
    """Return the memory after a row.

    Args:
        events: memory before the row.
        row: inputs of the row, or a random projection of them.
        unusual: whether the row is unusual.
    """
    count = events.num_rows + 1
    share = events.share + (unusual.astype(count.dtype) - events.share) / jnp.minimum(
        count, TUNED.rare_span
    )
    rows = jnp.concatenate([row[None], events.rows[:-1]])
    ages = jnp.where(events.ages >= 0, events.ages + 1, events.ages)
    newest = jnp.concatenate([jnp.zeros(1), ages[:-1]])
    return Events(
        rows=jnp.where(unusual, rows, events.rows),
        ages=jnp.where(unusual, newest, ages),
        share=share,
        num_rows=count,
    )
