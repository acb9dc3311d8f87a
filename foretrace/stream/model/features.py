"""Features that all experts share, computed from a row and the past of its stream.

    row       the inputs, the last known label, a constant
    lags      the row, earlier numbers, categories and labels; `short` has the first of each
    wide      tanh(A lags)      A: random, so that each feature sees few numbers or all of them
    waves     cos(B row + b)    B: random, at several length scales
    steps     the row, tanh(3 (x - q_k))    x: each number; q_k: five quantiles of a normal one
    wide_events     tanh(C [the row, the last unusual rows, their ages])    C: as A

If a row has many inputs, a random projection reduces it first. The random matrices come from fixed
seeds.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._types import Array, Bool, Float, Int
from foretrace.stream.experts.expert import Features
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import (
    FOLDED,
    MOST_WORDS,
    STEPS,
    WIDE,
    Shape,
    category_codes,
    codes,
)
from foretrace.stream.model.events import (
    Events,
    event_features,
    has_events,
    is_unusual,
    new_events,
    remember,
)


class Past(NamedTuple):
    """Memory of one stream.

    Args:
        rows: numbers and category codes of the last rows, the newest first.
        labels: last known labels, the newest first. An unknown number is NaN, and an unknown class
            is -1.
        events: last unusual rows.
        raw: unscaled numbers of the last rows, the newest first; NaN before the first row.
        is_counted: whether the stream is counted among those that have had a label.
    """

    rows: Float[Array, "K I"]
    labels: Float[Array, "K"]
    events: Events
    raw: Float[Array, "D N"]
    is_counted: Bool[Array, ""]

    def has_label(self, shape: Shape) -> Bool[Array, ""]:
        """Return whether the stream has had a label."""
        last = self.labels[0]
        return last >= 0 if shape.classes else jnp.isfinite(last)


class Seen(NamedTuple):
    """Values that are stored until the label arrives; all features are computed from them again.

    Args:
        row: inputs of the row, after the projection.
        lags: earlier inputs and labels.
        events: unusual rows and their ages.
        inputs: inputs of the row without words, and of the last label, in the form that a network
            takes. Empty if no expert needs them.
        words: as in `Features`.
        has_events: whether there are unusual rows and they are rare.
        labels: last known labels.
        moments: mean and standard deviation of the numbers, or the number of classes and 1.
        raw: unscaled numbers of the row and of earlier rows.
        ordinary: mean and standard deviation of the labels that are not outliers.
    """

    row: Float[Array, "R"]
    lags: Float[Array, "L"]
    events: Float[Array, "V"]
    inputs: Float[Array, "I"]
    words: Any
    has_events: Bool[Array, ""]
    labels: Float[Array, "K"]
    moments: Float[Array, "2"]
    raw: Float[Array, "D+1 N"]
    ordinary: Float[Array, "2"]


class Maps(NamedTuple):
    """Random matrices from which the features are computed.

    Args:
        row: projection of the inputs. It has no columns if the inputs are used directly.
        lagged: map from the lagged inputs to the features of an earlier row, likewise.
        wide: matrix for random features of the lags.
        wide_events: matrix for random features of the row and the unusual rows.
        waves: matrix for Fourier features of the row.
        phases: phases of the Fourier features.
        codes: features of each class.
    """

    row: Float[np.ndarray, "R I"]
    lagged: Float[np.ndarray, "R I"]
    wide: Float[np.ndarray, "F L"]
    wide_events: Float[np.ndarray, "F V"]
    waves: Float[np.ndarray, "F R"]
    phases: Float[np.ndarray, "F"]
    codes: Float[np.ndarray, "O K"]


def maps(shape: Shape) -> Maps:
    """Return the random matrices for rows of these sizes, from a fixed seed."""
    draw = np.random.default_rng(0)
    row = shape.size(0) + shape.code_size
    wide = _wide(draw, shape.size(shape.depth))
    scales = np.exp(draw.uniform(np.log(0.3), np.log(3.0), (WIDE - 1, 1))) / np.sqrt(row)
    return Maps(
        row=_row_projection(shape),
        lagged=_lagged_map(shape, draw),
        wide=wide,
        wide_events=_wide(np.random.default_rng(3), shape.events_size),
        waves=draw.normal(size=(WIDE - 1, row)) * scales,
        phases=draw.uniform(0, 2 * np.pi, WIDE - 1),
        codes=codes(shape),
    )


def _wide(draw: np.random.Generator, size: int) -> np.ndarray:
    """Return weights of random features, each of which reads four inputs or more."""
    width = np.exp(draw.uniform(np.log(min(4, size)), np.log(size), (WIDE - 1, 1)))
    some = draw.uniform(size=(WIDE - 1, size)) < width / size
    wide = (
        draw.normal(size=(WIDE - 1, size))
        * some
        / np.sqrt(width)
        * np.exp(draw.uniform(-0.7, 0.7, (WIDE - 1, 1)))
    )
    wide[:, 0] = draw.normal(size=WIDE - 1)
    return wide


def _row_projection(shape: Shape) -> np.ndarray:
    """Return the projection of a row's inputs: none, a sum of the last inputs, or random."""
    size, inputs = shape.row_size, shape.row_inputs
    if size == inputs:
        return np.zeros((0, inputs))
    if shape.used is None or shape.used + FOLDED != size:
        return np.random.default_rng(2).normal(size=(size, inputs)) / np.sqrt(inputs)
    out = np.zeros((size, inputs))
    places = np.arange(inputs)
    out[
        np.where(places < shape.used, places, shape.used + (places - shape.used) % FOLDED), places
    ] = 1.0
    return out


def _lagged_map(shape: Shape, draw: np.random.Generator) -> np.ndarray:
    """Return the map from an earlier row to its features: numbers and category codes.

    The map has no rows if there are only few numbers, which are used directly. If there are many
    features, they are projected at random.
    """
    numbers, values = len(shape.lagged), shape.lagged_values
    out = np.zeros((values, len(shape.lagged_places)))
    out[:numbers, :numbers] = np.eye(numbers)
    row, column, size = numbers, numbers, shape.category_size
    for _, count in shape.categories:
        out[row : row + size, column : column + count] = category_codes(count, size).T
        row, column = row + size, column + count
    if shape.lagged_size < values:
        return draw.normal(size=(shape.lagged_size, values)) / np.sqrt(values) @ out
    return out if shape.categories else out[:0]


def new_past(shape: Shape) -> Past:
    """Return the past of a stream before its first row."""
    empty = -1.0 if shape.classes else np.nan
    return Past(
        rows=jnp.zeros((max(shape.depth, 1), shape.lagged_size)),
        labels=jnp.full(shape.num_labels, empty),
        events=new_events(shape),
        raw=jnp.full((shape.raw_depth, shape.num_raw), np.nan),
        is_counted=jnp.zeros((), bool),
    )


def look(
    shape: Shape,
    maps: Maps,
    past: Past,
    x: Float[Array, "I"],
    raw: Float[Array, "N"],
    moments: Float[Array, "2"],
    ordinary: Float[Array, "2"],
) -> tuple[Seen, Past]:
    """Return the values from which features are computed, and the past with this row in it.

    Args:
        shape: sizes of the stream.
        maps: random matrices.
        past: past of the stream.
        x: inputs of the row. If there is a network, the inputs of the last known label follow.
        raw: unscaled numbers of the row.
        moments: mean and standard deviation of the numbers, or the number of classes and 1.
        ordinary: mean and standard deviation of the labels that are not outliers.
    """
    # Before the first row, numbers count as equal to those of the first row: zero may be far from
    # them.
    earlier = jnp.where(jnp.isnan(past.raw), raw[None], past.raw)
    raws = jnp.concatenate([raw[None], earlier])
    labels = past.labels
    inputs = x[: shape.network_inputs]
    words: Any = ()
    if shape.words:
        words = _largest(x[shape.row_inputs : shape.inputs])
        inputs = jnp.concatenate([x[: shape.row_inputs], inputs[shape.inputs :]])
    x = x[: shape.row_inputs]
    x = jnp.clip(jnp.nan_to_num(x), -TUNED.largest, TUNED.largest)
    row = _projected(maps.row, x)
    parts = [past.rows[: shape.depth].ravel()]
    if shape.classes:
        if shape.code_size:
            recent = labels[: shape.depth].astype(jnp.int32)
            coded = jnp.asarray(maps.codes)[jnp.maximum(recent, 0)]
            parts.append(jnp.where((recent >= 0)[:, None], coded, 0.0).ravel())
    else:
        if shape.code_size:
            scores = (labels[: shape.depth] - moments[0]) / moments[1]
            parts.append(jnp.clip(jnp.nan_to_num(scores), -TUNED.largest, TUNED.largest))
    events = event_features(past.events)
    seen = Seen(
        row=row,
        lags=jnp.concatenate(parts),
        events=events,
        inputs=inputs,
        words=words,
        has_events=has_events(past.events),
        labels=labels,
        moments=moments,
        raw=raws,
        ordinary=ordinary,
    )
    places = np.asarray(shape.lagged_places, np.int32)
    now = x[places] if len(places) else jnp.zeros(0)
    rows = jnp.concatenate([_projected(maps.lagged, now)[None], past.rows[:-1]])
    events_now = remember(past.events, row, is_unusual(x))
    after = past._replace(rows=rows, events=events_now, raw=raws[: shape.raw_depth])
    return seen, after._replace(is_counted=past.has_label(shape))


def expand(shape: Shape, maps: Maps, seen: Seen) -> Features:
    """Return the features of a row for all experts."""
    one = jnp.ones(1)
    inner = shape.depth * shape.lagged_size
    earlier, labels = seen.lags[:inner], seen.lags[inner:]
    few = shape.short_depth
    row = jnp.concatenate([one, seen.row, labels[: shape.code_size]])
    now = jnp.zeros(0)
    if shape.now_size:
        places = np.asarray(shape.lagged_places, np.int32)
        values = _projected(maps.lagged, seen.row[places]) if len(places) else now
        now = jnp.concatenate([values, labels[: shape.code_size]])
    short = [one, seen.row, earlier[: few * shape.lagged_size], labels[: few * shape.code_size]]
    lags = jnp.concatenate([one, seen.row, seen.lags])
    steps = _steps(shape, seen.row)
    events = jnp.where(seen.has_events, jnp.concatenate([one, seen.row, seen.events]), 0.0)
    classes = shape.classes
    scores = (seen.labels - seen.moments[0]) / seen.moments[1]
    raw_row, raw_lags = _raw(shape, seen)
    inputs = seen.inputs
    if shape.words and shape.has_network:
        values, places = seen.words
        all_words = jnp.zeros(shape.words).at[places].set(values)
        of_row, of_label = jnp.split(inputs, [shape.row_inputs])
        inputs = jnp.concatenate([of_row, all_words, of_label])
    return Features(
        row=row,
        now=now,
        short=jnp.concatenate(short),
        lags=lags,
        wide=jnp.concatenate([one, _narrow(jnp.tanh, maps.wide @ lags)]),
        waves=jnp.concatenate([one, _narrow(jnp.cos, maps.waves @ row + maps.phases)]),
        steps=jnp.concatenate([row, steps]),
        wide_events=lax.cond(
            seen.has_events,
            lambda: jnp.concatenate([one, _narrow(jnp.tanh, maps.wide_events @ events)]),
            lambda: jnp.zeros(WIDE),
        ),
        inputs=inputs,
        words=seen.words,
        has_events=seen.has_events,
        labels=seen.labels.astype(jnp.int32) if classes else scores,
        num_classes=seen.moments[0].astype(jnp.int32) if classes else jnp.zeros((), jnp.int32),
        raw_row=raw_row,
        raw_lags=raw_lags,
        moments=seen.moments,
        ordinary=seen.ordinary,
    )


def _largest(words: Float[Array, "D"]) -> tuple[Float[Array, "P"], Int[Array, "P"]]:
    """Return the largest counts of words, and their places."""
    # In float64, XLA would sort all of them.
    places = lax.top_k(words.astype(jnp.float32), min(MOST_WORDS, words.size))[1]
    return words[places], places


def _raw(shape: Shape, seen: Seen) -> tuple[Float[Array, "R"], Float[Array, "L"]]:
    """Return the row and its lags with unscaled numbers."""
    if not shape.has_raw:
        return jnp.zeros(0), jnp.zeros(0)
    others = [i for i in range(shape.row_size) if i not in shape.lagged]
    inner = shape.depth * shape.lagged_size
    codes = seen.lags[:inner].reshape(shape.depth, shape.lagged_size)[:, shape.num_raw :]
    labels = seen.labels[: shape.depth * shape.code_size]
    row = [jnp.ones(1), seen.row[np.asarray(others, np.int32)], seen.raw[0]]
    lags = (
        [*row, seen.raw[1:].ravel(), codes.ravel(), labels] if shape.raw_depth else [jnp.zeros(0)]
    )
    return jnp.concatenate([*row, labels[: shape.code_size]]), jnp.concatenate(lags)


def _steps(shape: Shape, row: Float[Array, "R"]) -> Float[Array, "T"]:
    """Return soft steps of each number, whose linear combinations are smooth functions of it."""
    if not shape.has_steps:
        return jnp.zeros(0)
    thresholds = np.array([NormalDist().inv_cdf((k + 0.5) / STEPS) for k in range(STEPS)])
    numbers = row[np.asarray(shape.lagged, np.int32)]
    return _narrow(jnp.tanh, TUNED.slope * (numbers[:, None] - thresholds[None])).ravel()


def _projected(projection: Any, x: Array) -> Array:
    """Return a random projection of x, or x itself if there is no projection."""
    return jnp.asarray(projection) @ x if len(projection) else x


def _narrow(function: Callable[[Array], Array], x: Any) -> Any:
    """Return a function of x in float32, because float64 needs a function call for each number."""
    return function(x.astype(jnp.float32)).astype(x.dtype)
