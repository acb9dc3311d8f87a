"""Counts of the labels and predictions of each class, which give recall and precision.

For a class with an alarm, rows are also counted by the log odds of its probability p:

   bin = floor((log p / (1 - p) - log a / (1 - a)) / WIDTH),    a: the threshold of the class

The bins do not depend on the number of rows. One bin begins at the threshold, so that counts above
the threshold are exact. For the average precision, all rows of a bin count as equally likely.
"""

import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float
from foretrace.stream.experts.shape import Shape
from foretrace.stream.read.scores import BINS, Tallies

WIDTH = 0.04
"""Width of a bin of log odds."""


def new_tallies(shape: Shape) -> Tallies | None:
    """Return the counts before the first row; None for numbers."""
    counts = Tallies(jnp.zeros((3, shape.outputs)), jnp.zeros((len(shape.alarms), 2, BINS)))
    return counts if shape.classes else None


def tally(
    tallies: Tallies,
    index: Float[Array, ""],
    output: Float[Array, "O"],
    num_classes: Float[Array, ""],
    watched: Float[Array, "K"],
    alarms: tuple[float, ...],
) -> Tallies:
    """Return the counts after one more row.

    Args:
        tallies: counts before the row.
        index: index of the class of the row's label; -1 if it exceeds the maximum number of
            classes.
        output: logits that were predicted for the row.
        num_classes: number of classes that were known at the prediction, at least one.
        watched: index of each class with an alarm; -1 before its first label.
        alarms: threshold of each of these classes.
    """
    places = jnp.arange(len(output), dtype=output.dtype)
    known = jnp.where(places < num_classes, output, -jnp.inf)
    is_label, is_answer = places == index, places == jnp.argmax(known).astype(output.dtype)
    row = jnp.stack([is_label, is_answer, is_label & is_answer]).astype(output.dtype)
    shares = jnp.exp(known - known.max())
    shares = shares / shares.sum()
    mine, least = places[None] == watched[:, None], np.asarray(alarms)
    p = jnp.where(mine, shares[None], 0.0).sum(axis=1)
    odds = jnp.log(p) - jnp.log1p(-p) - (np.log(least) - np.log1p(-least))
    half = BINS // 2
    found = jnp.floor(jnp.clip(odds / WIDTH, -half, half - 1)) + half
    # The comparison with the threshold itself is not rounded.
    found = jnp.where(p >= least, jnp.maximum(found, half), jnp.minimum(found, half - 1))
    is_bin = jnp.arange(BINS, dtype=output.dtype)[None] == found[:, None]
    is_watched = (watched == index) & (watched >= 0)
    sides = jnp.stack([~is_watched, is_watched], axis=1)
    by_odds = (sides[:, :, None] & is_bin[:, None]).astype(output.dtype)
    return Tallies(tallies.of_classes + row, tallies.by_odds + by_odds)
