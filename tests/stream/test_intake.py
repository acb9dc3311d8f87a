"""From rows to steps: an answer is about the row that was asked about."""

import re

import jax
import numpy as np
import pytest
from tiers import fast, slow

from foretrace.stream.model.intake import Intake
from foretrace.stream.model.model import resolve, shape_of
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.schema import Column
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import ClassTarget


def make_intake(target, members, delay, **model):
    """Return an intake of rows of one number."""
    encoder = Encoder([Column("x", "numeric")])
    shape = shape_of(encoder, target, members=members, delay=delay)
    config, shape = resolve(ModelConfig(**model), shape)
    streams = Streams(encoder, target, SlotTable(shape.slots), delay=delay)
    return Intake(streams, config, shape, member=None if members is None else "who")


def fed(intake):
    """Return the state behind rows of five classes, and the probabilities given to each."""
    state, found = intake.mixture.init(), []
    for i in range(60):
        label = i % 2 if i < 12 else (i * i + i // 3) % 5
        row = {"who": "ab"[i % 2], "x": label + i % 3 / 2}, f"c{label}"
        state, mixed = intake.learn(state, [row])
        output = np.exp(np.asarray(mixed.newest[0], float))
        found.append(output[: int(mixed.num_classes[0])])
    return state, found


FEW = ("baselines", "contexts", "row", "neighbours", "gradient")
OTHERS = ("baselines", "words", "events", "memory", "distant")
"""One expert of each kind."""


@pytest.mark.parametrize(
    ("members", "delay", "experts", "first"),
    fast([(2, 3, FEW, 4), slow(2, 3, FEW, 2), (None, 0, OTHERS, 4)]),
)
def test_room_for_classes_that_come_late_is_as_if_it_had_always_been_there(
    members, delay, experts, first
):
    options = {"members": members, "delay": delay, "experts": experts}
    small = make_intake(target=ClassTarget(first, grows=True), **options)
    large = make_intake(target=ClassTarget(16, grows=True), **options)
    (state, found), (known, expected) = fed(small), fed(large)
    assert small.shape == large.shape and small.target.output_size == 16
    ((_, news),) = small.pop_news()
    assert re.search(rf"'c\d' is one more than the {first} there was room for", news)
    for i, (one, two) in enumerate(zip(found, expected, strict=True)):
        # What is left for classes never seen is shared by as many as there is room for.
        np.testing.assert_allclose(one, two, atol=2e-4, err_msg=str(i))
    # Nor are log losses of such classes equal, nor what is kept of them.
    rest = {"waiting": None, "sums": None, "past_errors": None}
    parts = (each._replace(**rest) for each in (state, known))
    states = map(jax.tree.leaves, parts)
    for one, two in zip(*states, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-2, rtol=1e-2)
