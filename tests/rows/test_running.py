"""Running statistics accept a new level or scale after a few rows, after any history."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace._rows.running import MEMORY, NEW_LEVEL, NEW_SCALE, SETTLED, Moments

BOUND = 10.0
FEW = NEW_LEVEL + SETTLED
"""Rows after which every statistic has followed a new level, anywhere and at any distance."""

NOISE = np.random.default_rng(0).normal(size=NEW_SCALE + FEW)


def after(count, mean=0.0, variance=1.0):
    """Return moments as a long stretch of one level leaves them."""
    moments = Moments()
    moments.restore([min(count, MEMORY), mean, variance, 0, [0, 0.0, 0.0]])
    return moments


def follows(moments, values):
    """Say whether each number was counted as it is."""
    return [moments.learn(x, BOUND) == x and abs(moments.score(x)) <= BOUND for x in values]


shifts = st.floats(min_value=-1e12, max_value=1e12).filter(lambda x: abs(x) > 1e-6)


@given(st.sampled_from([1, 29, 30, 31, 100, 10**3, 10**5, 10**6]), shifts, st.floats(1e-3, 1e3))
def test_a_new_level_is_accepted_after_a_few_rows_whatever_came_before(rows, shift, scale):
    moments = after(rows, variance=scale**2)
    found = follows(moments, shift * scale + scale * NOISE)
    assert all(found[NEW_SCALE:])
    if abs(shift) > 2 * BOUND:  # a smaller one is no outlier, or only now and then
        assert all(found[FEW:])


@given(st.integers(0, 5 * SETTLED), shifts)
def test_a_level_may_change_at_any_row(at, shift):
    moments = Moments()
    values = [*NOISE[:at].tolist(), *(shift + NOISE).tolist(), *(shift + NOISE).tolist()]
    assert all(follows(moments, values)[at + NEW_SCALE + FEW :])
    if abs(shift) > 1e5:  # a first level that is forgotten as the few rows that it had
        assert moments.scale < 1e-2 * abs(shift)


@given(st.sampled_from([1, 31, 10**3, 10**5, 10**7]), st.floats(-1e9, 1e9), st.floats(50, 1e6))
def test_a_constant_stretch_of_any_length_is_left_after_a_few_rows(rows, constant, scale):
    moments = after(10**4, mean=constant)
    moments.variance *= (1 - 1 / MEMORY) ** rows  # what as many equal rows make of it
    assert all(follows(moments, constant + scale * NOISE)[FEW if scale > 1000 else NEW_SCALE :])
    assert 0.3 * scale < moments.scale < 3 * scale


def test_constant_rows_leave_the_variance_that_is_computed_for_them():
    moments = after(MEMORY, mean=3.0)
    for _ in range(1000):
        moments.learn(3.0, BOUND)
    assert (
        moments.variance == pytest.approx((1 - 1 / MEMORY) ** 1000, rel=1e-9)
        and moments.mean == 3.0
    )


@pytest.mark.parametrize("values", [[1e9], [1e9, 0.5] * 20, [1e9] * (NEW_LEVEL - 1)])
def test_outliers_that_are_not_a_run_do_not_become_the_level(values):
    moments = after(10**4)
    for x in values:
        moments.learn(x, BOUND)
    assert abs(moments.mean) < 1 and moments.scale < 3


def test_a_stream_that_rests_at_a_value_keeps_its_scale():
    moments = after(10**3)
    for _ in range(2 * NEW_SCALE):
        moments.learn(0.0, BOUND)
    assert 0.5 < moments.scale < 1


def test_a_burst_is_left_as_it_was_entered():
    moments, burst = after(10**4), np.where(np.arange(1000) % 2, 1e9, -1e9).tolist()
    found = follows(moments, burst)
    assert all(found[FEW:]) and moments.scale == pytest.approx(1e9, rel=0.1)
    assert all(follows(moments, NOISE)) and moments.scale < 3


def test_what_is_saved_goes_on_bit_for_bit():
    one, two, values = Moments(), Moments(), [*NOISE[:50], *(1e4 + NOISE[:40])]
    for x in values[:65]:
        one.learn(float(x), BOUND)
    two.restore(json.loads(json.dumps(one.to_json())))
    copied = one.copy()
    for x in values[65:]:
        one.learn(float(x), BOUND)
        two.learn(float(x), BOUND)
    assert one.to_json() == two.to_json() != copied.to_json()
