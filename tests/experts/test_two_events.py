"""A row and its label are two events: together they are a step, and labels come in any order."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_mixture import CLASSES, NUMBERS, assert_same, packed, run
from tiers import fast, slow

from foretrace.stream.experts.shape import LABELS
from foretrace.stream.model.arrivals import Arrivals
from foretrace.stream.model.features import expand, look, new_past
from foretrace.stream.model.mixture import mixture
from foretrace.stream.model.placed import placed

PLACES = 7
KINDS = {"numbers": dataclasses.replace(NUMBERS, raw=True), "classes": CLASSES}
FEW = ("baselines", "contexts", "lags", "raw", "neighbours", "gradient", "distant")


def in_two_events(model, rows, labels, delay):
    """Return the state after rows whose labels come `delay` rows later, and each prediction."""
    state, found, place_of = model.init(), [], {}
    for t, row in enumerate(rows):
        place_of[t] = t % PLACES
        state, mixed = model.take(state, row, place_of[t])
        found.append(np.asarray(mixed.newest))
        if t >= delay:
            state, _ = model.label(state, place_of.pop(t - delay), labels[t - delay])
    return state, np.stack(found)


@pytest.mark.parametrize(
    ("kind", "delay", "experts"),
    fast([("numbers", 3, FEW), ("classes", 0, FEW), slow("numbers", 0, ("memory",))], 2),
)
def test_a_row_and_a_label_are_a_step(kind, delay, experts):
    """At any delay the two events give the predictions of the program that does both."""
    draw, shape, num_rows = np.random.default_rng(0), KINDS[kind], 90
    xs = draw.normal(size=(num_rows, 2))
    labels = (xs[:, 0] + 0.1 * draw.normal(size=num_rows) > 0).astype(float)
    labels[5] = np.nan
    whole = dataclasses.replace(shape, delay=delay)
    state, steps = run(mixture(whole, experts), packed(whole, xs, labels.tolist()), 30)
    apart = mixture(dataclasses.replace(shape, waiting=PLACES), experts)
    rows = packed(shape, xs, [np.nan] * num_rows)
    other, found = in_two_events(apart, rows, labels, delay)
    # Experts with a memory compute in float32.
    tolerance = {"rtol": 1e-4, "atol": 1e-4 if experts == ("memory",) else 1e-6}
    assert_same(found, steps.newest, **tolerance)
    assert_same(other.weights, state.weights, **tolerance)


def test_a_row_that_waits_has_its_answer_and_labels_in_any_order_teach():
    model = mixture(dataclasses.replace(CLASSES, waiting=PLACES), ("baselines", "lags"))
    draw, state, waiting, right = np.random.default_rng(1), model.init(), {}, []
    for t in range(400):
        x = draw.normal(size=2)
        if len(waiting) == PLACES:
            place = list(waiting)[draw.integers(PLACES)]
            state, scored = model.label(state, place, waiting.pop(place))
            right.append(float(scored["scores"][0]))
        place = next(p for p in range(PLACES) if p not in waiting)
        (row,) = packed(CLASSES, x[None], [np.nan])
        row[2] = 2 * (t == 0)
        state, mixed = model.take(state, row, place)
        assert_same(model.answer(state, place).newest, mixed.newest)
        waiting[place] = float(x[0] > 0)
    assert np.nanmean(right[200:]) > 0.75


def test_a_label_from_before_a_new_start_teaches_and_leaves_the_past_alone():
    model = mixture(dataclasses.replace(NUMBERS, waiting=PLACES), ("baselines", "lags"))
    rows = packed(NUMBERS, np.random.default_rng(2).normal(size=(14, 2)), [np.nan] * 14)
    state, _ = in_two_events(model, rows[:12], np.arange(12.0), 0)
    state, _ = model.take(state, rows[12], 0)
    rows[13, 2] = 1
    state, _ = model.take(state, rows[13], 1)
    before = jax.tree.map(np.asarray, state)
    state, scored = model.label(state, 0, 100.0)
    assert np.isfinite(scored["scores"]).all()
    same = [(one.pasts, one.arrived.streams) for one in (before, state)]
    assert_same(*same)
    assert np.abs(state.experts[1].weights[0] - before.experts[1].weights[0]).max() > 0


def test_a_label_far_out_stands_for_rows_without_labels_once_a_second_one_is_out_there():
    model = mixture(dataclasses.replace(NUMBERS, waiting=101), ("baselines",))
    rows = packed(NUMBERS, np.zeros((101, 2)), [np.nan] * 101)
    draw, state, last = np.random.default_rng(4), model.init(), []
    for place, row in enumerate(rows[:100]):
        state, _ = model.take(state, row, place)
    for place, y in [*zip(range(0, 60, 2), draw.normal(size=30), strict=True), (70, 50), (80, 51)]:
        state, _ = model.label(state, place, y)
        ahead = model.take(jax.tree.map(jnp.copy, state), rows[100], 100)[0]
        seen = ahead.waiting.seen
        last.append(float(seen.labels[100, 0]))
    assert last[-3] == last[-2] and last[-1] == 51


def test_earlier_labels_stand_at_their_rows_whatever_their_order():
    """Against a list of the rows: each has its own label, or that of the last row with one."""
    shape = dataclasses.replace(NUMBERS, waiting=PLACES)
    put, draw = jax.jit(placed), np.random.default_rng(3)
    for trial in range(20):
        with jax.enable_x64(True):
            stream, known = Arrivals(shape)._new_stream(), {}
            labels = jnp.full(LABELS, np.nan)
            order = draw.permutation(30) if trial else np.arange(30)
            for step, number in enumerate(order):
                is_own = draw.uniform() < 0.9
                if is_own:
                    known[number] = float(draw.normal())
                value = known[number] if is_own else float(labels[0])
                labels, stream = put(labels, stream, jnp.int64(number), value, is_own)
                latest = max(order[: step + 1])
                expected = []
                for at in range(latest, -1, -1):
                    before = [k for k in known if k <= at]
                    expected.append(known[max(before)] if before else np.nan)
        np.testing.assert_array_equal(labels[: latest + 1], expected)


def test_a_label_that_stays_the_same_is_the_same_raw_feature_in_any_unit():
    """Its rounding in running units would be a feature of its own, with an enormous coefficient."""
    shape = dataclasses.replace(NUMBERS, raw=True)
    past = new_past(shape)._replace(labels=jnp.full(shape.num_labels, 0.1))
    maps = mixture(shape, FEW).maps
    for mean, scale in np.random.default_rng(0).uniform(0.1, 1, (20, 2)):
        moments = jnp.array([mean, scale])
        seen, _ = look(shape, maps, past, jnp.zeros(shape.inputs), jnp.zeros(1), moments, moments)
        features = expand(shape, maps, seen)
        assert (features.raw_row[-1], features.raw_lags[-1]) == (0.1, 0.1)
