"""Memory of the last unusual rows, on which a row may depend a thousand rows later.

A row is unusual if one of its inputs lies more than `far_out` standard deviations from its mean, as
a cue, an alarm or a spike does in a quiet stream. The last ones are kept with their age, until
newer ones take their place. Where unusual rows are frequent, they are not what this memory is for:
their features are zero, and nothing is computed.
"""

from typing import NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape

_AGE = 0.2
"""Factor of the logarithm of an age: an unusual row of 150 rows ago has an age of 1."""


class Events(NamedTuple):
    """The last unusual rows of a stream.

    Args:
        rows: their inputs, the newest first.
        ages: number of rows since each; -1 where there is none.
        share: share of the last rows that were unusual.
        num_rows: number of rows that have been seen.
    """

    rows: Float[Array, "V I"]
    ages: Float[Array, "V"]
    share: Float[Array, ""]
    num_rows: Float[Array, ""]


def new_events(shape: Shape) -> Events:
    """Return the memory before the first row: empty."""
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
    """Return whether an input is an outlier.

    Args:
        x: inputs of a row in standard deviations from their means, before any projection.
    """
    return (jnp.abs(x) > TUNED.far_out).any()


def remember(events: Events, row: Float[Array, "I"], unusual: Bool[Array, ""]) -> Events:
    """Return the memory after a row.

    Args:
        events: memory before it.
        row: its inputs, or a random projection of them.
        unusual: whether an input is far out.
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
