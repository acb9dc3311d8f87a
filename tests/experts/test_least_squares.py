"""Recursive least squares: its equations, and that no rows make it unstable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.least_squares import Recursion
from foretrace.stream.experts.raw_squares import RAW_PRIORS, RawSquares


@pytest.mark.parametrize("robust", [False, True])
def test_equals_regularised_least_squares_with_the_small_weights_of_outliers(robust):
    draw = np.random.default_rng(0)
    fs, outputs = draw.normal(size=(60, 3)), 1 if robust else 2  # outputs share a covariance
    ys = fs @ draw.normal(size=(3, outputs)) + draw.choice([-0.1, 0.1], size=(60, outputs))
    ys[40] += 50.0
    recursion, weights = Recursion((3,), outputs, forget=1.0, prior=10.0, robust=robust), []
    state, learn = recursion.init(), jax.jit(recursion.learn)
    for f, y in zip(fs, ys, strict=True):
        size, w = np.asarray(state.scale.size), np.asarray(state.weights[0])
        limit = 1.5 * size[0, 0] if robust and len(weights) >= 10 else np.inf
        weights.append(min(1.0, float(limit / abs(y - f @ w)[0])))
        state = learn(state, (f,), y, np.array(True))
    assert (weights[40] < 0.1) == robust
    weighted = np.array(weights)[:, None] * fs
    moments = np.eye(3) / 10.0 + weighted.T @ fs
    np.testing.assert_allclose(state.covariances[0], np.linalg.inv(moments), atol=1e-9)
    found = np.linalg.solve(moments, weighted.T @ ys)
    np.testing.assert_allclose(state.weights[0], found, atol=1e-9)


def test_members_forget_by_their_own_rows():
    recursion = Recursion((2,), 1, forget=0.99, robust=False)
    state, learn = recursion.init(), jax.jit(recursion.learn)
    state = state._replace(covariances=(np.diag([1.0, 0.5]),))
    for _ in range(3):
        state = learn(state, (np.array([1.0, 0.0]),), np.zeros(1), np.array(True), np.array(3.0))
    # The second direction is not excited: it has forgotten one row, whoever it came from.
    np.testing.assert_allclose(np.asarray(state.covariances[0])[1, 1], 0.5 / 0.99, rtol=1e-12)


def test_a_coefficient_beyond_its_prior_is_seen_to_be_zero_once_more():
    recursion = Recursion((2,), 1, forget=0.9, robust=False)
    covariance, weights = np.diag([1.0, 0.5]), np.array([[0.0], [2.0]])
    state = recursion.init()._replace(covariances=(covariance,), weights=(weights,))
    row, most = (np.array([1.0, 0.0]),), np.array([9.0, 0.5])
    learn = jax.jit(recursion.learn)
    state = learn(state, row, np.zeros(1), np.array(True), largest=(most,))
    np.testing.assert_allclose(np.asarray(state.covariances[0])[1, 1], 0.5, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(state.weights[0])[:, 0], [0.0, 0.9 * 2.0], rtol=1e-12)


INPUTS = {
    "constant": lambda draw, rows: 1 + 1e-9 * draw.normal(size=(rows, 6)),
    "collinear": lambda draw, rows: (
        draw.normal(size=(rows, 1)) * np.arange(1.0, 7.0) + 1e-8 * draw.normal(size=(rows, 6))
    ),
    "silent": lambda draw, rows: (
        draw.normal(size=(rows, 6)) * (np.arange(rows) % 5000 < 50)[:, None]
    ),
    "scales": lambda draw, rows: (
        draw.normal(size=(rows, 6)) * 10.0 ** draw.integers(-8, 9, (rows, 6))
    ),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_no_rows_make_it_unstable(kind, rows=20_000):
    fs, recursion = INPUTS[kind](np.random.default_rng(0), rows), Recursion((6,), 1, forget=0.99)
    ys, known = np.clip(fs.sum(1, keepdims=True), -20, 20), jnp.asarray(True)

    def step(state, row):
        return recursion.learn(state, row[:1], row[1], known), None

    state, _ = jax.jit(lambda *rows: lax.scan(step, recursion.init(), rows))(fs, ys)
    P = np.asarray(state.covariances[0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert (P == P.T).all()
    assert 0 < np.trace(P) <= 6 * recursion.prior * (1 + 1e-9)
    assert np.linalg.eigvalsh(P).min() > -1e-6


def followed(rows, ys, moments=(0.0, 1.0), name="raw_row", ordinary=(0.0, 3.0)):
    """Return the predictions of least squares without units before each label."""
    squares = RawSquares((name,), (rows.shape[1] + 1,), 1, fixed=1)
    blank, known = Features(*(jnp.zeros(0) for _ in Features._fields)), jnp.asarray(True)
    mean, scale = moments

    def step(state, row):
        inputs = {name: jnp.concatenate([jnp.ones(1), row[0]]), "moments": jnp.array(moments)}
        inputs["ordinary"] = jnp.array(ordinary)
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
    ordinary = 5e4, 3e4
    other = followed(xs * units + shifts, 1e4 * ys + 5e4, (321.0, 77.0), ordinary=ordinary)
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
    found = followed(xs, ys, ordinary=(ys[0], 100.0))
    np.testing.assert_allclose(found[399], ys[0] + w[0] + centred[399] @ w[1:], atol=1e-6)


def test_a_broken_reading_gives_no_number_that_no_label_came_near():
    draw = np.random.default_rng(2)
    xs, ys = draw.normal(size=(300, 1)), np.zeros(300)
    ys[:] = 2 * xs[:, 0]
    shifted, broken = xs.copy(), xs.copy()
    shifted[-1], broken[-1] = 500.0, 1e6
    np.testing.assert_allclose(followed(shifted, ys)[-1], 1e3, rtol=1e-2)
    assert followed(broken, ys, (0.5, 1.0))[-1] == 0.5


def test_broken_labels_and_readings_leave_the_other_rows_predicted(share=0.01, rows=2000):
    draw = np.random.default_rng(3)
    xs = draw.normal(size=(rows, 2)) + [0.0, 500.0]
    ys = xs @ [3.0, -2.0] + 0.2 * draw.normal(size=rows)
    hit, is_label = draw.uniform(size=rows) < share, draw.uniform(size=rows) < 0.5
    hit[:100] = False
    labels = np.where(hit & is_label, -9999.0, ys)
    seen = np.where((hit & ~is_label)[:, None], [1e6, 500.0], xs)
    plain, found = (
        followed(*given, ordinary=(-1000.0, 4.0)) for given in ((xs, ys), (seen, labels))
    )
    good = ~hit & (np.arange(rows) > 200)
    errors = [np.abs(one - ys)[good].mean() for one in (plain, found)]
    assert errors[1] < 1.03 * errors[0]
    # Where a reading is broken, the mean of the moments stands in place of a prediction.
    assert np.abs(found[hit & ~is_label]).max() == 0.0


def test_the_largest_variance_of_a_raw_coefficient_follows_the_mean_square_of_its_feature():
    """A feature that shrinks after its first row; the constant keeps what it began with."""
    squares, forget = RawSquares(("raw_row",), (2,), 1, fixed=1), 0.9995
    power, first, P, mean = np.zeros(2), np.zeros(2), np.zeros((2, 2)), 100.0
    for i in range(4):
        square, known = np.array([1.0, 100.0 if i == 0 else 4.0]), np.array(True)
        seen, (largest, P) = squares._followed("raw_row", square, known, power, first, P)
        power, first = seen
        mean = forget * mean + (1 - forget) * 4.0 if i else mean
        expected = RAW_PRIORS["raw_row"] / np.array([1.0, mean])
        np.testing.assert_allclose(largest, expected, rtol=1e-12)
