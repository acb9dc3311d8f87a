"""Recursive least squares: its equations, and that no rows make it unstable."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from foretrace._experts.expert import Features, Lesson
from foretrace._experts.least_squares import RAW_PRIORS, RawSquares, Recursion


def learned(recursion, fs, ys):
    known = jnp.ones(len(fs), bool)
    step = lambda state, row: (recursion.learn(state, row[:1], *row[1:]), None)  # noqa: E731
    return jax.jit(partial(lax.scan, step))(
        recursion.init(), (jnp.asarray(fs), jnp.asarray(ys), known)
    )[0]


def test_equals_regularised_least_squares():
    draw = np.random.default_rng(0)
    fs, truth = draw.normal(size=(50, 4)), draw.normal(size=(4, 2))
    ys = fs @ truth + 0.1 * draw.normal(size=(50, 2))
    found = learned(Recursion((4,), 2, forget=1.0, prior=10.0, robust=False), fs, ys)
    # Rows of the prior: a coefficient of zero, with the variance of the prior.
    all_fs, all_ys = np.vstack([fs, np.eye(4) / 10**0.5]), np.vstack([ys, np.zeros((4, 2))])
    np.testing.assert_allclose(
        found.weights[0], np.linalg.lstsq(all_fs, all_ys, rcond=None)[0], atol=1e-9
    )
    np.testing.assert_allclose(found.covariances[0], np.linalg.inv(all_fs.T @ all_fs), atol=1e-9)


@pytest.mark.parametrize("members", [1, 3])
def test_members_forget_by_their_own_rows(members):
    recursion = Recursion((2,), 1, forget=0.99, robust=False)
    state = recursion.init()
    state = state._replace(covariances=(jnp.diag(jnp.array([1.0, 0.5])),))
    for _ in range(members):
        row = (jnp.array([1.0, 0.0]),), jnp.zeros(1), jnp.asarray(True)
        state = recursion.learn(state, *row, jnp.asarray(float(members)))
    # The second direction is not excited: it has forgotten one row, whoever it came from.
    np.testing.assert_allclose(state.covariances[0][1, 1], 0.5 / 0.99, rtol=1e-12)


def test_forgets_old_rows():
    draw = np.random.default_rng(0)
    fs = draw.normal(size=(4000, 3))
    ys = fs @ np.array([[1.0], [2.0], [3.0]])
    ys[:2000] *= -1
    found = learned(Recursion((3,), 1, forget=0.99, robust=False), fs, ys)
    np.testing.assert_allclose(found.weights[0][:, 0], [1.0, 2.0, 3.0], atol=1e-6)


def test_outliers_have_small_weights():
    draw = np.random.default_rng(0)
    fs = draw.normal(size=(2000, 3))
    ys = fs @ np.array([[1.0], [2.0], [3.0]]) + 0.1 * draw.normal(size=(2000, 1))
    ys[50::20] += 1000.0
    robust, plain = (
        learned(Recursion((3,), 1, robust=robust), fs, ys).weights[0][:, 0]
        for robust in (True, False)
    )
    truth = np.array([1.0, 2.0, 3.0])
    assert np.abs(robust - truth).max() < 0.2 < np.abs(plain - truth).max()


def test_an_outlier_has_its_weight_in_the_normal_equations():
    draw = np.random.default_rng(0)
    fs, signs = draw.normal(size=(60, 3)), draw.choice([-0.1, 0.1], size=60)
    ys = fs @ np.array([1.0, 2.0, 3.0]) + signs
    ys[40] += 50.0
    recursion, weights = Recursion((3,), 1, forget=1.0, prior=10.0), []
    state, learn = recursion.init(), jax.jit(recursion.learn)
    for f, y in zip(fs, ys, strict=True):
        limit = 1.5 * state.scale.size[0, 0] if len(weights) >= 10 else np.inf
        weights.append(min(1.0, float(limit / abs(y - f @ state.weights[0][:, 0]))))
        state = learn(state, (jnp.asarray(f),), jnp.asarray([y]), jnp.asarray(True))
    assert weights[40] < 0.1
    moments = np.eye(3) / 10.0 + fs.T @ (np.array(weights)[:, None] * fs)
    np.testing.assert_allclose(state.covariances[0], np.linalg.inv(moments), atol=1e-10)
    found = np.linalg.solve(moments, fs.T @ (weights * ys))
    np.testing.assert_allclose(state.weights[0][:, 0], found, atol=1e-10)


def inputs(kind, rows):
    draw = np.random.default_rng(0)
    if kind == "constant":
        return np.ones((rows, 6)) + 1e-9 * draw.normal(size=(rows, 6))
    if kind == "collinear":
        return draw.normal(size=(rows, 1)) * np.arange(1.0, 7.0) + 1e-8 * draw.normal(
            size=(rows, 6)
        )
    if kind == "silent":
        return draw.normal(size=(rows, 6)) * (np.arange(rows) % 5000 < 50)[:, None]
    return draw.normal(size=(rows, 6)) * 10.0 ** draw.integers(-8, 9, (rows, 6))


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["constant", "collinear", "silent", "scales"])
def test_no_rows_make_it_unstable(kind, rows):
    fs = inputs(kind, rows)
    recursion = Recursion((6,), 1, forget=0.99)
    state = learned(recursion, fs, np.clip(fs.sum(1, keepdims=True), -20, 20))
    P = np.asarray(state.covariances[0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert (P == P.T).all()
    assert 0 < np.trace(P) <= 6 * recursion.prior * (1 + 1e-9)
    assert np.linalg.eigvalsh(P).min() > -1e-6


def followed(rows, ys, moments=(0.0, 1.0), name="raw_row"):
    """Return the predictions of least squares without units before each label."""
    squares = RawSquares((name,), (rows.shape[1] + 1,), 1, fixed=1)
    blank, known = Features(*(jnp.zeros(0) for _ in Features._fields)), jnp.asarray(True)
    mean, scale = moments

    def step(state, row):
        inputs = {name: jnp.concatenate([jnp.ones(1), row[0]]), "moments": jnp.array(moments)}
        features = blank._replace(**inputs)
        made = squares.predict(state, features)
        label = (row[1][None] - mean) / scale
        return squares.learn(state, Lesson(features, made, label, known, known)), made[0, 0]

    _, made = jax.jit(lambda *rows: lax.scan(step, squares.init(), rows))(rows, ys)
    assert np.isfinite(made).all()
    return np.asarray(made) * scale + mean


def test_no_unit_shift_or_moments_change_raw_least_squares():
    draw = np.random.default_rng(0)
    xs = np.stack([draw.normal(size=900), np.where(np.arange(900) < 300, 0, draw.normal())], 1)
    xs[:, 1] *= 1 + 40 * (np.arange(900) > 600)
    ys = xs @ [2.0, -1.0] + 0.1 * draw.normal(size=900)
    found = followed(xs, ys)
    units, shifts = np.array([1e6, 1e-5]), np.array([-3e6, 7e-5])
    other = followed(xs * units + shifts, 1e4 * ys + 5e4, (321.0, 77.0))
    # Before the first label, the mean is the answer.
    np.testing.assert_allclose((other[1:] - 5e4) / 1e4, found[1:], atol=1e-7)


def test_raw_least_squares_are_the_normal_equations_with_a_prior_without_units():
    draw = np.random.default_rng(1)
    xs = draw.normal(size=(400, 2)) * [30.0, 0.2] + [100.0, -5.0]
    ys = xs @ [0.5, 4.0] + draw.normal(size=400)
    centred, weights = xs - xs[0], 0.9995 ** np.arange(399)[::-1]
    fs = np.column_stack([np.ones(400), centred])[:399]
    prior = np.diag([1.0, *centred[1] ** 2]) / RAW_PRIORS["raw_row"]
    # The prior of a feature begins with it: the constant's in the first row, others in the second.
    prior *= 0.9995 ** np.array([399, 398, 398])
    A = (weights[:, None] * fs).T @ fs + prior
    w = np.linalg.solve(A, (weights[:, None] * fs).T @ (ys - ys[0])[:399])
    found = followed(xs, ys)
    np.testing.assert_allclose(found[399], ys[0] + w[0] + centred[399] @ w[1:], atol=1e-6)


def test_a_broken_reading_gives_no_number_that_no_label_came_near():
    draw = np.random.default_rng(2)
    xs, ys = draw.normal(size=(300, 1)), np.zeros(300)
    ys[:] = 2 * xs[:, 0]
    shifted, broken = xs.copy(), xs.copy()
    shifted[-1], broken[-1] = 1e3, 1e6
    np.testing.assert_allclose(followed(shifted, ys)[-1], 2e3, rtol=1e-2)
    assert followed(broken, ys, (0.5, 1.0))[-1] == 0.5


def test_what_is_forgotten_goes_back_to_the_prior():
    """Numbers that change seldom, seen in eight rows: mostly nothing tells them apart."""
    draw, rows = np.random.default_rng(3), 18_000
    walk, place = np.cumsum(draw.normal(size=rows)) * 0.1, np.arange(rows)
    seldom = place // 9000, place // 24 % 30
    columns = [np.roll(one, lag) for one in (*seldom, walk) for lag in range(8)]
    xs = np.stack(columns, axis=1).astype(float)
    xs[:8] = xs[8]
    ys = walk + draw.normal(size=rows)
    errors = np.abs(followed(xs, ys, name="raw_lags") - ys)
    # The mean size of the noise is .798; with coefficients that drift, .813.
    assert errors[9000:9010].max() < 10 and errors[1000:].mean() < 0.805
