"""Rows of any size: no row leaves least squares unable to learn from the rows that follow."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

import foretrace as ft

pytestmark = pytest.mark.usefixtures("standard_promotion")

HUGE, ORDINARY, FORGET = 40, 1200, 0.9
W = np.array([1.0, -2.0, 0.5])


@cache
def learned(dtype, streams):
    """Return the function that learns rows one by one and refuses one without a number."""
    head = ft.heads.least_squares(forget=FORGET)

    def one(state, row):
        f, y = row
        error = y - head.scores(state, f)
        after = head.learn(state, f, error, jnp.ones(streams, dtype))
        sound = [jnp.isfinite(leaf).all() for leaf in (*after, error)]
        accepted = jnp.stack(sound).all()
        after = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), after, state)
        P = after.covariance
        root = jnp.sqrt(jnp.diagonal(P))
        scaled = P / (root[:, None] * root[None])
        seen = accepted, error, jnp.diagonal(P), jnp.linalg.eigvalsh(scaled)[0]
        return after, seen

    return jax.jit(lambda fs, ys: jax.lax.scan(one, head.init(3, 1, dtype), (fs, ys)))


@pytest.mark.parametrize(("dtype", "streams"), fast([("float32", 3), ("float64", 1)]))
@given(
    exponents=st.lists(st.sampled_from([-20, 0, 4, 8, 12, 18, 25, 36]), min_size=1, max_size=4),
    seed=st.integers(0, 2**31 - 1),
)
def test_least_squares_learn_ordinary_rows_after_rows_of_any_size(dtype, streams, exponents, seed):
    random = np.random.default_rng(seed)
    fs = random.normal(size=(HUGE + ORDINARY, streams, 3))
    ys = 1 + fs @ W[:, None] + 0.01 * random.normal(size=(*fs.shape[:2], 1))
    fs[:HUGE] *= 10.0 ** random.choice(exponents, size=(HUGE, streams, 3))
    with jax.enable_x64(dtype == "float64"):
        found = learned(dtype, streams)(jnp.asarray(fs, dtype), jnp.asarray(ys, dtype))
    state, (accepted, errors, variances, lowest) = jax.tree.map(np.asarray, found)
    assert accepted[HUGE:].all()
    assert np.abs(errors[-100:]).mean() < 0.05
    assert np.array_equal(state.covariance, state.covariance.T)
    assert variances.min() > 0 and variances.max() < 1 + 1e-5
    assert lowest.min() > -1e-6
