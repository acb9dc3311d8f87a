"""Properties of single cells: their equations written out in NumPy, and how they begin."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace._recurrence.sensitivity import init_sensitivity
from foretrace.testing._definitions import plain_states

KEY = jax.random.key(1)
XS = np.random.default_rng(0).normal(size=(5, 3))


def states_and_outputs(cell, xs=XS):
    hs = plain_states(cell, cell.coefficients(), jnp.asarray(xs))
    return jax.tree.map(np.asarray, (hs, jax.vmap(cell.readout)(hs, jnp.asarray(xs))))


def parameters(cell):
    return {
        name: np.asarray(leaf) for name, leaf in vars(cell).items() if isinstance(leaf, jax.Array)
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_min_gru():
    cell = ft.MinGRU(3, 2, timescales=(2.0, 20.0), key=KEY)
    p, h = parameters(cell), np.zeros(2)
    for x, got in zip(XS, states_and_outputs(cell)[0], strict=True):
        z = sigmoid(p["W_z"] @ x + p["b_z"])
        h = (1 - z) * h + z * (p["W"] @ x + p["b"])
        np.testing.assert_allclose(got, h, atol=1e-12)


def test_min_lstm():
    cell = ft.MinLSTM(3, 2, key=KEY)
    p, h = parameters(cell), np.zeros(2)
    for x, got in zip(XS, states_and_outputs(cell)[0], strict=True):
        f, i = sigmoid(p["W_f"] @ x + p["b_f"]), sigmoid(p["W_i"] @ x + p["b_i"])
        h = f / (f + i) * h + i / (f + i) * (p["W"] @ x + p["b"])
        np.testing.assert_allclose(got, h, atol=1e-12)


def test_rg_lru():
    cell = ft.RGLRU(3, a_min=0.5, a_max=0.6, key=KEY)
    p, h = parameters(cell), np.zeros(3)
    assert np.all((sigmoid(p["a_logit"]) ** 8 >= 0.5) & (sigmoid(p["a_logit"]) ** 8 <= 0.6))
    for x, got in zip(XS, states_and_outputs(cell)[0], strict=True):
        a = sigmoid(p["a_logit"]) ** (8 * sigmoid(p["W_a"] @ x + p["b_a"]))
        h = a * h + np.sqrt(1 - a**2) * sigmoid(p["W_x"] @ x + p["b_x"]) * x
        np.testing.assert_allclose(got, h, atol=1e-12)


def test_s5_holds_its_input_for_a_step():
    """The sampled system is the integral of the continuous one under piecewise constant input."""
    cell = ft.S5(3, 4, timescales=(2.0, 20.0), key=KEY)
    p, h, parts = parameters(cell), np.zeros(4, complex), 2000
    lam, step = -np.exp(p["A_log"]) + 1j * p["A_im"], np.exp(p["step_log"])
    np.testing.assert_allclose(lam, -0.5 + 1j * np.pi * np.arange(4), atol=1e-12)
    B, C = p["B_re"] + 1j * p["B_im"], p["C_re"] + 1j * p["C_im"]
    middle = (np.arange(parts) + 0.5) / parts
    response = np.exp(lam[:, None] * step[:, None] * (1 - middle)).mean(axis=1) * step
    for x, got, y in zip(XS, *states_and_outputs(cell), strict=True):
        h = np.exp(lam * step) * h + response * (B @ x)
        np.testing.assert_allclose(got, h, atol=1e-5)
        np.testing.assert_allclose(y, (C @ got).real + p["D"] * x, atol=1e-12)


def test_selective_ssm():
    """Every channel has its own state; step, input and output weights see all channels."""
    cell = ft.SelectiveSSM(3, states_per_channel=2, key=KEY)
    p, h = parameters(cell), np.zeros((3, 2))
    step_at_zero = np.log1p(np.exp(p["b_step"]))
    assert np.all((step_at_zero > 0.001) & (step_at_zero < 0.1))
    for x, got, y in zip(XS, *states_and_outputs(cell), strict=True):
        out = np.zeros(3)
        for d in range(3):
            step = np.log1p(np.exp(p["W_step"][d] @ x + p["b_step"][d]))
            for k in range(2):
                A = -(k + 1.0)
                into, decay = p["W_B"][k] @ x, np.exp(step * A)
                h[d, k] = decay * h[d, k] + (decay - 1) / A * into * x[d]
                out[d] += (p["W_C"][k] @ x) * h[d, k]
        np.testing.assert_allclose(got, h.ravel(), atol=1e-12)
        np.testing.assert_allclose(y, out + x, atol=1e-12)


def test_rtu_is_a_complex_rotation_in_real_numbers():
    cell = ft.RTU(3, 4, key=KEY)
    p, h = parameters(cell), np.zeros(4, complex)
    lam = np.exp(-np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"]))
    B = np.sqrt(1 - abs(lam) ** 2)[:, None] * (p["B_u"] + 1j * p["B_v"])
    (us, vs), ys = states_and_outputs(cell)
    for x, u, v, y in zip(XS, us, vs, ys, strict=True):
        h = lam * h + B @ x
        np.testing.assert_allclose(u + 1j * v, h, atol=1e-12)
        np.testing.assert_allclose(y, p["C_u"] @ u + p["C_v"] @ v + p["D"] * x, atol=1e-12)


def test_set_reset_is_a_latch_with_two_conjunctions():
    cell = ft.SetReset(3, 4, timescales=(2.0, 200.0), key=KEY)
    p, h, gain = parameters(cell), np.zeros(4), np.minimum(np.sqrt(np.geomspace(2, 200, 4)), 10)
    half_rate = 1 / (2 * np.geomspace(2, 200, 4))
    np.testing.assert_allclose(sigmoid(p["b"]) ** 2, np.tile(half_rate[:, None], 4))
    for x, got, y in zip(XS, *states_and_outputs(cell), strict=True):
        q = sigmoid(p["W"] @ x + p["b"])
        s, r = q[:, 0] * q[:, 1], q[:, 2] * q[:, 3]
        h = (1 - s) * (1 - r) * h + s - r
        np.testing.assert_allclose(got, h, atol=1e-12)
        want = np.concatenate([gain * h, gain * h * np.tanh(p["W_o"] @ x + p["b_o"])])
        np.testing.assert_allclose(y, want, atol=1e-12)
    plain = ft.SetReset(3, 4, products=False, timescales=(2.0, 200.0), key=KEY)
    assert "W_o" not in parameters(plain)
    np.testing.assert_allclose(states_and_outputs(plain)[1][-1], gain * h, atol=1e-12)


def test_rotation_is_turned_and_pushed_by_its_input():
    cell = ft.Rotation(3, 4, timescales=(2.0, 200.0), key=KEY)
    p, z = parameters(cell), np.zeros(4, complex)
    np.testing.assert_allclose(np.log1p(np.exp(p["a"])), 1 / np.geomspace(2, 200, 4), rtol=1e-10)
    (us, vs), ys = states_and_outputs(cell)
    for x, u, v, y in zip(XS, us, vs, ys, strict=True):
        m = 1 / (1 + np.exp(p["W_a"] @ x + p["a"]))
        push = np.tanh(p["W_u"] @ x + p["b_u"]) + 1j * np.tanh(p["W_v"] @ x + p["b_v"])
        z = m * np.exp(1j * (p["W_p"] @ x + p["p"])) * z + np.sqrt(1 - m**2) * push
        np.testing.assert_allclose(u + 1j * v, z, atol=1e-12)
        np.testing.assert_allclose(y, np.concatenate([z.real, z.imag]), atol=1e-12)


@pytest.mark.parametrize("make", fast([ft.Rotation, ft.SetReset]), ids=lambda make: make.__name__)
def test_two_outputs_for_each_module_are_as_wide_as_any_input(make):
    for size, modules in ((6, 3), (5, 3), (1, 1)):
        cell = make(size, key=KEY)
        y = cell.readout(jax.tree.map(jnp.ones_like, cell.init_state()), jnp.ones(size))
        assert cell.state_size == modules and y.shape == (size,) == (cell.output_size,)
    assert make(5, 2, key=KEY).output_size == 4


def test_lif_spikes_and_is_reset_by_subtraction():
    cell = ft.LIF(3, 4, threshold=0.5, timescales=(2.0, 5.0), key=KEY)
    p, v, z, spikes = parameters(cell), np.zeros(4), np.zeros(4), 0
    for x, got, y in zip(XS, *states_and_outputs(cell), strict=True):
        v = np.exp(-np.exp(p["rate_log"])) * v + p["W"] @ x - 0.5 * z
        z = (v > 0.5).astype(float)
        np.testing.assert_allclose(got, v, atol=1e-12)
        np.testing.assert_array_equal(y, z)
        spikes += z.sum()
    assert 0 < spikes < 20


@pytest.mark.full
def test_the_sensitivity_of_lif_is_the_leaky_sum_of_its_inputs_and_its_surrogate_a_triangle():
    cell = ft.LIF(3, 4, threshold=0.5, key=KEY)
    alpha = np.exp(-1 / 20)
    e = ft.testing.snap1_by_definition(cell, jnp.asarray(XS)).feedforward["W"]
    want = sum(alpha ** (4 - s) * XS[s] for s in range(5))
    np.testing.assert_allclose(e[-1], np.tile(want, (4, 1)), atol=1e-12)
    v = jnp.array([-0.1, 0.0, 0.25, 0.5, 0.75, 1.0, 1.1])
    slope = jax.grad(lambda v: cell.readout(v, jnp.zeros(3)).sum())(v)
    np.testing.assert_allclose(slope, np.array([0, 0, 0.5, 1, 0.5, 0, 0]) * 0.3 / 0.5, atol=1e-12)


GATED = [ft.MinGRU, ft.MinLSTM, ft.RGLRU, ft.SelectiveSSM, ft.SetReset, ft.Rotation]


@pytest.mark.parametrize("make", GATED, ids=lambda make: make.__name__)
def test_saturated_gates_give_finite_states_and_gradients(make):
    """Gates saturated to the last bit: no 0 / 0, and no infinite slope of a square root at zero."""
    cell = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), make(4, key=KEY))

    @jax.jit
    @jax.value_and_grad
    def loss(cell, xs):
        hs = plain_states(cell, cell.coefficients(), xs)
        return jnp.sum(jnp.tanh(jax.vmap(cell.readout)(hs, xs)))

    for size in (0.0, 1e2, 1e4):
        found = loss(cell, jnp.asarray(size * XS[:, [0, 1, 2, 0]], jnp.float32))
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found)), size


def time_constants(cell):
    """Return the modules' time constants at zero input, in steps."""
    x = jnp.zeros(cell.input_size)
    ones = jax.tree.map(jnp.ones_like, cell.init_state())
    if isinstance(cell, ft.RTU):
        u, v = cell.step(cell.coefficients(), ones, ones, x)
        decay = np.hypot(u, v) / np.sqrt(2)
    else:
        zeros = jax.tree.map(jnp.zeros_like, ones)
        decay = np.abs(
            cell.step(cell.coefficients(), ones, ones, x)
            - cell.step(cell.coefficients(), zeros, zeros, x)
        )
    assert decay.shape == (cell.state_size,)
    return -1 / np.log(decay)


@pytest.mark.full
@pytest.mark.parametrize(
    "make", [ft.LRU, ft.S5, ft.RTU, ft.MinGRU, ft.LIF], ids=lambda make: make.__name__
)
def test_time_constants_cover_their_range(make):
    """As many modules in each factor of ten."""
    taus = time_constants(make(1, 3000, timescales=(1.0, 1000.0), key=KEY))
    assert taus.min() * (1 + 1e-9) >= 1 and taus.max() <= 1000 * (1 + 1e-9)
    counts = np.histogram(np.log10(taus), bins=3, range=(0, 3))[0]
    assert np.all(np.abs(counts - 1000) < 100), counts
    one = make(1, 5, timescales=(7.0, 7.0), key=KEY)
    np.testing.assert_allclose(time_constants(one), 7.0, rtol=1e-9)


def test_the_gain_of_an_lru_with_time_constants_is_that_of_its_decay():
    cell = ft.LRU(1, 50, timescales=(1.0, 1e4), key=KEY)
    lam = np.abs(cell.coefficients().recurrent["lam"])
    np.testing.assert_allclose(np.exp(cell.gamma_log), np.sqrt(1 - lam**2), rtol=1e-10)


REFUSALS = {
    "LRU(state_size=0)": lambda: ft.LRU(3, 0, key=KEY),
    "LinearRNN(state_size=0)": lambda: ft.LinearRNN(3, 0, key=KEY),
    "GRU(state_size=0)": lambda: ft.GRU(3, 0, key=KEY),
    "ElementwiseLSTM(state_size=0)": lambda: ft.ElementwiseLSTM(3, 0, key=KEY),
    "RTU(state_size=0)": lambda: ft.RTU(3, 0, key=KEY),
    "states_per_channel=0": lambda: ft.SelectiveSSM(3, states_per_channel=0, key=KEY),
    "r_min=0.5, r_max=0.5": lambda: ft.LRU(3, 4, r_min=0.5, r_max=0.5, key=KEY),
    "r_max=1.1": lambda: ft.LRU(3, 4, r_max=1.1, key=KEY),
    "not both": lambda: ft.LRU(3, 4, r_min=0.5, timescales=(1.0, 10.0), key=KEY),
    "a_max=1.0": lambda: ft.RGLRU(3, a_max=1.0, key=KEY),
    "step_min=0.0": lambda: ft.SelectiveSSM(3, step_min=0.0, key=KEY),
    "LIF(threshold=0.0)": lambda: ft.LIF(3, threshold=0.0, key=KEY),
    "above 1/2": lambda: ft.SetReset(3, 2, timescales=(0.5, 9.0), key=KEY),
} | {
    f"MinGRU(timescales={wrong}) must be the shortest and the longest": partial(
        ft.MinGRU, 3, timescales=wrong, key=KEY
    )
    for wrong in [(0, 10), (10, 1), (1, np.inf), (1, np.nan), (5,)]
}


@pytest.mark.parametrize("words", list(REFUSALS))
def test_the_fault_is_named(words, without_shape_checks):
    with pytest.raises(ValueError, match=re.escape(words)):
        REFUSALS[words]()


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (ft.LRU.factory(state_size=7), lambda H, N: 2 * N * (H + 1)),
        (ft.S5.factory(state_size=7), lambda H, N: 2 * N * (H + 1)),
        (ft.RTU.factory(state_size=7), lambda H, N: 4 * N * (H + 1)),
        (ft.MinGRU.factory(state_size=7), lambda H, N: N * (2 * H + 2)),
        (ft.MinLSTM.factory(state_size=7), lambda H, N: N * (3 * H + 3)),
        (ft.RGLRU.factory(), lambda H, N: H * (2 * H + 3)),
        (ft.SelectiveSSM.factory(states_per_channel=3), lambda H, N: H * 3 * (2 * H + 2)),
        (ft.IndRNN.factory(state_size=7), lambda H, N: N * (H + 2)),
        (ft.LIF.factory(state_size=7), lambda H, N: N * (H + 1)),
        (ft.SetReset.factory(state_size=7), lambda H, N: N * (4 * H + 4)),
        (ft.Rotation.factory(state_size=7), lambda H, N: 8 * N * (H + 1)),
        (ft.ElementwiseLSTM.factory(state_size=7), lambda H, N: 2 * N * (4 * H + 8)),
        (ft.LinearRNN.factory(state_size=7), lambda H, N: N * (H + N)),
        (ft.GRU.factory(state_size=7), lambda H, N: N * (3 * H + 3 * N + 4)),
    ],
)
def test_the_page_of_cells_counts_sensitivities_right(make, count):
    leaves = jax.tree.leaves(jax.eval_shape(lambda: init_sensitivity(make(5, key=KEY), ft.ONLINE)))
    assert sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in leaves) == count(5, 7)
