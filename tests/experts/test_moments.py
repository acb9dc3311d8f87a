"""Running statistics accept a new level or scale after a few rows, after any history."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.stream.experts.settings import TUNED
from foretrace.stream.model.moments import Average, new_moments

FEW = TUNED.new_level + TUNED.settled
"""Rows after which every statistic has followed a new level, anywhere and at any distance."""

NOISE = np.random.default_rng(0).normal(size=TUNED.new_scale + FEW)
LONGEST = 1200
"""One length for all: each would be a program of its own."""


def after(count, mean=0.0, variance=1.0):
    """Return moments as a long stretch of one level leaves them."""
    parts = (jnp.array([float(part)]) for part in (min(count, TUNED.unit_memory), mean, variance))
    return new_moments(1)._replace(all=Average(*parts))


@jax.jit
def _learned(moments, values, known):
    def one(moments, pair):
        x, is_known = pair
        counted, moments = moments.learn(x[None], is_known[None])
        is_inside = jnp.abs(x - moments.all.mean) <= TUNED.outlier * moments.scale
        return moments, ((counted == x[None]) & is_inside)[0]

    return jax.lax.scan(one, moments, (values, known))


def learned(moments, values):
    """Return the moments after numbers, and whether each was counted as it is."""
    values = np.asarray(values, float)
    padded = np.zeros(LONGEST)
    padded[: len(values)] = values
    moments, found = _learned(moments, padded, np.arange(LONGEST) < len(values))
    return moments, np.asarray(found)[: len(values)]


shifts = st.floats(min_value=-1e12, max_value=1e12).filter(lambda x: abs(x) > 1e-6)


@given(
    st.sampled_from([0, 1, 100, TUNED.unit_memory]),
    st.floats(-1e6, 1e6),
    st.floats(0, 1e6),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
)
def test_averages_weigh_all_numbers_alike_and_forget_beyond_the_memory(count, mean, variance, xs):
    found = Average(*(jnp.array([float(part)]) for part in (count, mean, variance)))
    for x in xs:
        found = found.update(jnp.array([x]))
    rates = 1 / np.minimum(count + 1.0 + np.arange(len(xs)), TUNED.unit_memory)
    kept = np.append(np.cumprod((1 - rates)[::-1])[::-1], 1.0)  # what later numbers leave
    weights = np.append(kept[0], rates * kept[1:])
    values = np.array([mean, *xs], np.longdouble)
    exact = weights @ values
    spread = weights @ (values - exact) ** 2 + weights[0] * variance
    assert found.num_samples[0] == min(count + len(xs), TUNED.unit_memory)
    assert float(found.mean[0]) == pytest.approx(float(exact), rel=1e-10, abs=1e-8)
    assert float(found.variance[0]) == pytest.approx(float(spread), rel=1e-6, abs=1e-6)


@given(st.sampled_from([1, 29, 30, 31, 100, 10**3, 10**5, 10**6]), shifts, st.floats(1e-3, 1e3))
def test_a_new_level_is_accepted_after_a_few_rows_whatever_came_before(rows, shift, scale):
    _, found = learned(after(rows, variance=scale**2), shift * scale + scale * NOISE)
    assert found[TUNED.new_scale :].all()
    if abs(shift) > 2 * TUNED.outlier:  # a smaller one is no outlier, or only now and then
        assert found[FEW:].all()


@given(st.integers(0, 5 * TUNED.settled), shifts)
def test_a_level_may_change_at_any_row(at, shift):
    values = np.concatenate([NOISE[:at], shift + NOISE, shift + NOISE])
    moments, found = learned(new_moments(1), values)
    assert found[at + TUNED.new_scale + FEW :].all()
    if abs(shift) > 1e5:  # a first level that is forgotten as the few rows that it had
        assert moments.scale[0] < 1e-2 * abs(shift)


@given(st.sampled_from([1, 31, 10**3, 10**5, 10**7]), st.floats(-1e9, 1e9), st.floats(50, 1e6))
def test_a_constant_stretch_of_any_length_is_left_after_a_few_rows(rows, constant, scale):
    # What as many equal rows make of the variance.
    moments = after(10**4, mean=constant, variance=(1 - 1 / TUNED.unit_memory) ** rows)
    moments, found = learned(moments, constant + scale * NOISE)
    assert found[FEW if scale > 1000 else TUNED.new_scale :].all()
    assert 0.3 * scale < moments.scale[0] < 3 * scale


@pytest.mark.parametrize("values", [[1e9], [1e9, 0.5] * 20, [1e9] * (TUNED.new_level - 1)])
def test_outliers_that_are_not_a_run_do_not_become_the_level(values):
    moments, _ = learned(after(10**4), values)
    assert abs(moments.all.mean[0]) < 1 and moments.scale[0] < 3


def test_a_stream_that_rests_at_a_value_keeps_its_scale():
    moments, _ = learned(after(10**3), [0.0] * 2 * TUNED.new_scale)
    assert 0.5 < moments.scale[0] < 1


def test_a_burst_is_left_as_it_was_entered():
    moments, found = learned(after(10**4), np.where(np.arange(1000) % 2, 1e9, -1e9))
    assert found[FEW:].all() and moments.scale[0] == pytest.approx(1e9, rel=0.1)
    moments, found = learned(moments, NOISE)
    assert found.all() and moments.scale[0] < 3
