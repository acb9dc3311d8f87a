"""Every method of the linear scan agrees with the plain loop, in value and in every derivative."""

from functools import partial
from typing import get_args

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from foretrace._recurrence import scan as _scan
from foretrace._recurrence.scan import linear_scan, linear_scan_given_states

METHODS = get_args(_scan.Method)


def plain_loop(a, b, h, starts):
    hs = []
    for t in range(b.shape[0]):
        h = h if starts is None else jnp.where(starts[t], jnp.zeros_like(h), h)
        h = (a[t] if a.ndim == 2 else a) * h + b[t]
        hs.append(h)
    return jnp.stack(hs)


@jax.jit
def by_plain_loop(a, b, h, starts, deltas):
    hs, pull = jax.vjp(lambda a, b, h: plain_loop(a, b, h, starts), a, b, h)
    return hs, pull(deltas)


@partial(jax.jit, static_argnames="method")
def by_scan(a, b, h, starts, deltas, method):
    hs, pull = jax.vjp(lambda a, b, h: linear_scan(a, b, h, starts, method), a, b, h)
    return hs, pull(deltas)


@jax.jit
def by_replay(a, b, h, starts, hs, deltas):
    value, pull = jax.vjp(lambda a, b, h: linear_scan_given_states(a, b, h, starts, hs), a, b, h)
    return value, pull(deltas)


def draw(seed, length, is_complex, varying, resets):
    random = np.random.default_rng(seed)

    def normal(*shape):
        real = random.normal(size=shape)
        return jnp.asarray(real + 1j * random.normal(size=shape) if is_complex else real)

    a = normal(length, 3) if varying else normal(3)
    starts = jnp.asarray(random.random(length) < 0.4) if resets else None
    return a, normal(length, 3), normal(3), starts, normal(length, 3)


def assert_equal(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("resets", [False, True], ids=["whole", "resets"])
@pytest.mark.parametrize("varying", [False, True], ids=["constant", "varying"])
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("length", [1, 5])
@given(seed=st.integers(0, 2**32 - 1))
def test_every_method_is_the_plain_loop(length, is_complex, varying, resets, seed):
    a, b, h, starts, deltas = draw(seed, length, is_complex, varying, resets)
    want = by_plain_loop(a, b, h, starts, deltas)
    for method in METHODS:
        assert_equal(by_scan(a, b, h, starts, deltas, method=method), want)
    assert_equal(by_replay(a, b, h, starts, want[0], deltas), want)


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_the_adjoint_runs_by_any_method_too(method, monkeypatch):
    """The platform's method is the default of a backward pass; here each method is tried."""
    monkeypatch.setattr(_scan, "platform_method", lambda: method)
    a, b, h, starts, deltas = draw(0, 5, is_complex=True, varying=True, resets=True)
    _, pull = jax.vjp(lambda a, b, h: linear_scan(a, b, h, starts), a, b, h)
    assert_equal(pull(deltas), by_plain_loop(a, b, h, starts, deltas)[1])


@pytest.mark.parametrize("method", METHODS)
def test_a_start_forgets_an_infinite_past(method):
    """A state that overflowed must not reach the next episode as 0 * inf."""
    a, b, h = jnp.array([2.0]), jnp.ones((3, 1)), jnp.array([jnp.inf])
    hs = linear_scan(a, b, h, jnp.array([True, False, True]), method)
    assert hs[:, 0].tolist() == [1.0, 3.0, 1.0]
