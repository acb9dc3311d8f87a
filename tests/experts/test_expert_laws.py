"""Laws of every mixture: chunks, labels and rows that are missing, other streams, bad values."""

import dataclasses

import jax
import numpy as np
import pytest
from test_mixture import CLASSES, FEW, NUMBERS, assert_same, leaves, packed, run
from tiers import fast

from foretrace.stream.experts.by_name import REMEMBERING
from foretrace.stream.model.mixture import mixture
from foretrace.stream.model.model import build_mixture, resolve
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.model.rows import pack
from foretrace.stream.model.state import network_in
from foretrace.stream.read.values import MAX_ABS_VALUE

pytestmark = pytest.mark.usefixtures("standard_promotion")
TINY = ModelConfig("small", depth=1, model_size=4, state_size=3, rule="online", learning_rate=0.05)
LATE = {"members": 2, "delay": 2}
LATE_NUMBERS, LATE_CLASSES = (dataclasses.replace(one, **LATE) for one in (NUMBERS, CLASSES))
MODELS = {
    "numbers": (FEW, LATE_NUMBERS),
    "classes and a network": (dataclasses.replace(TINY, experts=(*FEW, "network")), LATE_CLASSES),
    "classes": (FEW, dataclasses.replace(CLASSES, members=2)),
    "network, not late": (TINY, dataclasses.replace(NUMBERS, members=2)),
    "network and memories": (
        dataclasses.replace(TINY, experts=("baselines", "network", *REMEMBERING)),
        LATE_NUMBERS,
    ),
}
EXACT = {"rtol": 1e-9, "atol": 1e-12}
IN_FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module", params=fast(list(MODELS), 2))
def case(request):
    """Return a model of two streams, and how far two ways of computing it may differ."""
    experts, shape = MODELS[request.param]
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        if isinstance(experts, ModelConfig):
            return build_mixture(*resolve(experts, shape)), IN_FLOAT32
        return mixture(shape, experts), EXACT if experts == FEW else IN_FLOAT32


def made(model, count, slots=(0, 1), seed=0, bad=None):
    """Return rows of some of the streams."""
    draw, shape = np.random.default_rng(seed), model.shape
    xs, ys = draw.normal(size=(count, shape.inputs)), draw.normal(size=count)
    if bad is not None:
        xs[5] = xs[13, 0] = bad
    labels = (ys > 0).astype(int) if shape.classes else ys
    return packed(shape, xs, labels.tolist(), [slots[i % len(slots)] for i in range(count)])


def learned(state):
    """Return what labels teach; of a network its parameters, without its counters."""
    found = network_in(state)
    if found is None:
        return jax.tree.map(np.array, (state.experts, state.weights))
    others = [one for one in state.experts if one is not found]
    return jax.tree.map(np.array, (others, state.weights, found.learner.network))


def of_stream(state, slot):
    """Return what belongs to one stream."""
    return jax.tree.map(lambda leaf: np.array(leaf[slot]), (state.pasts, state.carries))


def test_a_chunk_is_its_rows_one_by_one(case):
    model, tolerance = case
    rows = made(model, 40)
    whole, single = run(model, rows, 20), run(model, rows, 1)
    assert_same(whole[1].newest, single[1].newest, **tolerance)
    assert_same(whole[0].carries, single[0].carries, **tolerance)
    if tolerance is EXACT:
        assert_same(whole, single, **tolerance)


def test_rows_without_labels_move_streams_and_teach_nothing(case):
    model, _ = case
    rows = made(model, 20)
    state, _ = run(model, rows)
    before, moving = learned(state), of_stream(state, 0)
    rows[:, 0] = np.nan
    state, _ = model.step(state, rows)
    assert_same(learned(state), before)
    pairs = zip(leaves(of_stream(state, 0)), leaves(moving), strict=True)
    assert any((a != b).any() for a, b in pairs)


def test_rows_of_other_streams_and_missing_rows_leave_a_stream_as_it_is(case):
    model, _ = case
    state, _ = run(model, made(model, 20))
    before = of_stream(state, 1)
    state, _ = model.step(state, made(model, 21, slots=(0,), seed=1)[1:])  # the first starts anew
    assert_same(of_stream(state, 1), before)
    before = of_stream(state, 0), learned(state)
    state, _ = model.step(state, pack(model.shape, [], 20))
    assert_same((of_stream(state, 0), learned(state)), before)


@pytest.mark.parametrize("bad", [np.nan, -1e300])
def test_no_value_poisons_the_state(case, bad):
    model, _ = case
    rows = made(model, 40, bad=bad)
    rows[12, 0] = 1.0 if model.shape.classes else np.clip(bad, -MAX_ABS_VALUE, MAX_ABS_VALUE)
    state, step = run(model, rows, 20)
    # Before a number is known there is no answer.
    assert np.isfinite(step.newest[5:]).all() and not np.isinf(step.newest).any()
    # Infinite distances stand for rows that are not there yet.
    assert not any(np.isnan(leaf).any() for leaf in leaves((learned(state), state.carries)))


def test_predicting_changes_nothing_and_equals_the_next_step(case):
    model, tolerance = case
    rows = made(model, 30)
    state, _ = run(model, rows[:20], 20)
    before = learned(state), of_stream(state, 0)
    predicted = np.asarray(model.predict(state, rows[20]).newest)[None]
    assert_same((learned(state), of_stream(state, 0)), before)
    assert_same(predicted, model.step(state, rows[20:21])[1].newest, **tolerance)
