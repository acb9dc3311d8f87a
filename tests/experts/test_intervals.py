"""Prediction intervals: coverage under drift, outliers, late labels; nested."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from tiers import fast

from foretrace.stream.model.intervals import Intervals, MemberErrors

ERRORS = {
    "normal": lambda noise: noise,
    "grows": lambda noise: noise * np.linspace(0.1, 10, len(noise)),
    "bursts": lambda noise: noise * np.where(np.arange(len(noise)) % 400 < 40, 30.0, 1.0),
    "skewed": lambda noise: np.exp(1.5 * noise) - 1,
    "follows itself": lambda noise: lfilter([1.0], [1.0, -0.97], noise),
}


def errors_of(kind, count=4000):
    return ERRORS[kind](np.random.default_rng(1).normal(size=count))


@cache
def _program(coverage, delay):
    intervals = Intervals(1, coverage)

    @jax.jit
    def program(state, errors, waiting):
        """Learn each error with the margins of `delay` rows before it."""

        def one(carry, error):
            (state, waiting), scale = carry, jnp.ones(())
            new = [intervals.in_use(state, scale), intervals.units(state, scale)]
            waiting = jnp.concatenate([waiting, jnp.concatenate(new)[None]])
            (margins, units), known = jnp.split(waiting[0], 2), ~jnp.isnan(error)
            late = {"units": units, "late": delay}
            state = intervals.learn(state, error[None], margins, scale, known, **late)
            return (state, waiting[1:]), margins[:, 0]

        return jax.lax.scan(one, (state, waiting), errors)

    return program


def follow(errors, delay, coverage=0.9, state=None):
    """Return whether each error was inside, with margins from before its label, `delay` late."""
    state = Intervals(1, coverage).init() if state is None else state
    first = np.zeros((delay, 4, 1))
    late = np.concatenate([np.full(delay, np.nan), errors])
    (state, _), margins = _program(coverage, delay)(state, late, first)
    margins = np.asarray(margins)[delay:]
    return (-margins[:, 0] <= errors) & (errors <= margins[:, 1]), state


@jax.jit
def _margins(state):
    intervals, factor = Intervals(1), jnp.ones(())
    return intervals.in_use(state, factor), intervals.margins(state, factor)


def margins_of(state, share=None):
    """Return the margins of a share of the labels. Default: those in use."""
    in_use, margins = map(np.asarray, _margins(state))
    return in_use if share is None else Intervals(1).between(margins, share)


@pytest.mark.parametrize("delay", fast([24, 0]))
@pytest.mark.parametrize("kind", ERRORS)
def test_ninety_percent_of_the_errors_lie_inside(kind, delay):
    inside, _ = follow(errors_of(kind), delay)
    assert (0.89 if delay else 0.87) <= inside.mean() <= 0.93
    assert 0.82 <= inside[-1000:].mean() <= 0.97


def test_a_margin_scales_with_its_errors_and_is_narrow_where_they_are_small():
    _, wide = follow(1e6 * errors_of("normal", 1000), 0)
    _, narrow = follow(errors_of("normal", 1000), 0)
    ratio = margins_of(wide).sum() / margins_of(narrow).sum()
    assert 0.5e6 < ratio < 2e6
    assert 2.5 < margins_of(narrow).sum() < 4.2  # the best one for these errors: 2 * 1.645


def test_intervals_of_more_coverage_hold_those_of_less():
    for kind in ("skewed", "follows itself"):
        _, state = follow(errors_of(kind, 500), 5)
        found = np.array(
            [margins_of(state, c) for c in (0.1, 0.5, 0.6, 0.8, 0.87, 0.9, 0.95, 0.97, 0.99)]
        )
        assert (np.diff(found, axis=0) >= 0).all()
        assert (found.sum(axis=1) >= 0).all()
    with pytest.raises(
        ValueError, match=r"coverage=0\.999 must be above 0 and at most 0\.99: it is the share"
    ):
        margins_of(state, 0.999)


def test_nothing_is_learned_from_what_is_not_finite():
    _, before = follow(errors_of("normal", 100), 0)
    for bad in (np.nan, np.inf):
        _, state = follow(np.array([bad]), 0, state=before)
        for a, b in zip(before, state, strict=True):
            np.testing.assert_array_equal(a, b)


@jax.jit
def of_members(errors):
    """Return whether errors of six members in turn lay inside, and the width of the intervals."""
    intervals, one = Intervals(1), jnp.ones(())

    def learn(carry, now):
        (state, members), (error, at) = carry, now
        own = jax.tree.map(lambda leaf: leaf[at], members)
        factor = own.factor(state)
        margins = intervals.in_use(state, one) * factor
        inside = (-margins[0, 0] <= error) & (error <= margins[1, 0])
        known = jnp.array(True)
        new = own.learn(error[None], inside.astype(error.dtype), known)
        state = intervals.learn(state, error[None], margins, one, known, factor)
        members = jax.tree.map(lambda leaf, row: leaf.at[at].set(row), members, new)
        return (state, members), (inside, margins.sum(), factor)

    first = intervals.init(), MemberErrors(*jnp.zeros((3, 6)))
    return jax.lax.scan(learn, first, (errors.ravel(), jnp.arange(errors.size) % 6))[1]


def test_intervals_of_members_of_any_size_are_as_wide_as_their_own_errors_ask_for():
    sizes = np.geomspace(1, 1000, 6)
    errors = np.random.default_rng(0).normal(size=(1000, 6)) * sizes
    inside, width, _ = (np.reshape(found, errors.shape) for found in of_members(errors))
    shares = inside.mean(axis=0)
    assert shares.min() > 0.87 and shares.max() < 0.93, shares
    relative = np.median(width, axis=0) / sizes / (2 * 1.645)  # over the best one
    assert relative.min() > 0.9 and relative.max() < 1.15, relative


def test_a_member_without_errors_has_no_width_and_harms_no_other():
    errors = np.random.default_rng(0).normal(size=(1000, 6)) * ([0.0] + [1.0] * 5)
    inside, width, factor = (np.reshape(found, errors.shape) for found in of_members(errors))
    assert (factor > 0).all() and np.isfinite(width).all() and width[-1, 0] < 1e-3
    assert 0.85 < inside[:, 1:].mean() < 0.93


@pytest.mark.parametrize("exact", fast([20_000, 100]))
@pytest.mark.parametrize("scale", fast([1.0, 1e-6]))
def test_after_exact_rows_the_coverage_is_back_in_some_tens_of_rows(exact, scale):
    inside, state = follow(np.zeros(exact), 0)
    assert inside.mean() > 0.9
    draws = scale * np.random.default_rng(0).normal(size=(20, 160))
    shares = np.mean([follow(errors, 0, state=state)[0] for errors in draws], axis=0)
    assert shares[40:80].mean() > 0.75 and shares[60:].mean() > 0.82


@given(st.lists(st.sampled_from([0.0, 0.0, 1.0, -1.0, 1e-9, 1e6]), min_size=1, max_size=300))
def test_more_labels_lie_outside_than_asked_for_only_by_what_the_offset_has_grown(errors):
    padded = np.full(300, np.nan)
    padded[: len(errors)] = errors
    first = np.zeros((0, 4, 1))
    (state, _), margins = _program(0.9, 0)(Intervals(1).init(), padded, first)
    tails = np.stack([-padded, padded], axis=1)
    misses, share = (tails > np.asarray(margins)).sum(axis=0), 0.05 * len(errors)
    assert (misses - share <= np.asarray(state.offsets)[:, 0] / 0.02 + 1e-6).all()
