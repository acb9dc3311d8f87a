"""Properties of single cells: their equations written out in NumPy, and how they begin."""

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import filled
from tiers import fast

import foretrace as ft
from foretrace._cells import registry
from foretrace._recurrence.sensitivity import init_sensitivity
from foretrace.testing._definitions import plain_states

KEY = jax.random.key(1)
XS = np.random.default_rng(0).normal(size=(5, 3))


def states_and_outputs(cell):
    """Return the initial state, and states and outputs at each step, as one program."""

    @jax.jit
    def run(cell, xs):
        hs = plain_states(cell, cell.coefficients(), xs)
        return cell.init_state(), hs, jax.vmap(cell.readout)(hs, xs)

    return jax.tree.map(np.asarray, run(cell, jnp.asarray(XS)))


def drawn(make, *sizes, **options):
    return jax.jit(partial(make, *sizes, **options))(key=KEY)


def parameters(cell):
    return {
        name: np.asarray(leaf) for name, leaf in vars(cell).items() if isinstance(leaf, jax.Array)
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def affine(p, gate, x):
    return getattr(p, f"W_{gate}") @ x + getattr(p, f"b_{gate}")


def min_gru(p, h, x):
    z = sigmoid(affine(p, "z", x))
    return (1 - z) * h + z * (p.W @ x + p.b)


def min_lstm(p, h, x):
    f, i = sigmoid(affine(p, "f", x)), sigmoid(affine(p, "i", x))
    return f / (f + i) * h + i / (f + i) * (p.W @ x + p.b)


def gru(p, h, x):
    of_x = np.einsum("ngi,i->gn", p.W_i, x) + p.b_i.T
    of_h = np.einsum("ngm,m->gn", p.W_h, h)
    r, z = sigmoid(of_x[:2] + of_h[:2])
    return (1 - z) * np.tanh(of_x[2] + r * (of_h[2] + p.b_hn)) + z * h


def lstm(p, state, x):
    h, c = state
    f, i, o, g = np.einsum("ngi,i->gn", p.W, x) + p.w.T * h + p.b.T
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def linear_rnn(p, h, x):
    return p.A @ h + p.B @ x


def ind_rnn(p, h, x):
    return np.tanh(p.W @ x + p.u * h + p.b)


def rg_lru(p, h, x):
    a = sigmoid(p.a_logit) ** (8 * sigmoid(affine(p, "a", x)))
    return a * h + np.sqrt(1 - a**2) * sigmoid(affine(p, "x", x)) * x


def selective(p, h, x):
    """Every channel has its own state; step, input and output weights see all channels."""
    A, step = -np.exp(p.A_log), np.log1p(np.exp(affine(p, "step", x)))
    decay = np.exp(step[:, None] * A)
    return (decay * h.reshape(3, 2) + (decay - 1) / A * (p.W_B @ x) * x[:, None]).ravel()


def rtu(p, state, x):
    """A complex rotation in real numbers."""
    lam = np.exp(-np.exp(p.nu_log) + 1j * np.exp(p.theta_log))
    B = np.sqrt(1 - abs(lam) ** 2)[:, None] * (p.B_u + 1j * p.B_v)
    z = lam * (state[0] + 1j * state[1]) + B @ x
    return z.real, z.imag


def rotation(p, state, x):
    """Turned and pushed by the input."""
    m = 1 / (1 + np.exp(p.W_a @ x + p.a))
    push = np.tanh(affine(p, "u", x)) + 1j * np.tanh(affine(p, "v", x))
    z = m * np.exp(1j * (p.W_p @ x + p.p)) * (state[0] + 1j * state[1]) + np.sqrt(1 - m**2) * push
    return z.real, z.imag


def set_reset(p, h, x):
    """A latch with two conjunctions."""
    q = sigmoid(p.W @ x + p.b)
    s, r = q[:, 0] * q[:, 1], q[:, 2] * q[:, 3]
    return (1 - s) * (1 - r) * h + s - r


def lif(p, v, x):
    """A spike subtracts the threshold from the next state."""
    return np.exp(-np.exp(p.rate_log)) * v + p.W @ x - 0.5 * (v > 0.5)


def latch(p, h, x):
    y = np.minimum(np.sqrt(np.geomspace(2, 200, 4)), 10) * h
    return np.concatenate([y, y * np.tanh(affine(p, "o", x))]) if hasattr(p, "W_o") else y


SLOW = {"timescales": (2.0, 200.0)}
EQUATIONS = {
    "min_gru": (partial(ft.MinGRU, 3, 2, **SLOW), min_gru, None),
    "min_lstm": (partial(ft.MinLSTM, 3, 2), min_lstm, None),
    "gru": (partial(ft.GRU, 3, 2), gru, None),
    "lstm": (partial(ft.ElementwiseLSTM, 3, 2), lstm, lambda p, h, x: h[0]),
    "ind_rnn": (partial(ft.IndRNN, 3, 2, tanh=True), ind_rnn, None),
    "linear": (partial(ft.LinearRNN, 3, 2), linear_rnn, lambda p, h, x: p.C @ h + p.D * x),
    "rg_lru": (partial(ft.RGLRU, 3, a_min=0.5, a_max=0.6), rg_lru, None),
    "selective": (
        partial(ft.SelectiveSSM, 3, states_per_channel=2),
        selective,
        lambda p, h, x: h.reshape(3, 2) @ (p.W_C @ x) + p.D * x,
    ),
    "rtu": (partial(ft.RTU, 3, 4), rtu, lambda p, h, x: p.C_u @ h[0] + p.C_v @ h[1] + p.D * x),
    "rotation": (partial(ft.Rotation, 3, 4, **SLOW), rotation, lambda p, h, x: np.concatenate(h)),
    "set_reset": (partial(ft.SetReset, 3, 4, **SLOW), set_reset, latch),
    "latch": (partial(ft.SetReset, 3, 4, products=False, **SLOW), set_reset, latch),
    "lif": (
        partial(ft.LIF, 3, 4, threshold=0.5, timescales=(2.0, 5.0)),
        lif,
        lambda p, v, x: (v > 0.5).astype(float),
    ),
}


def test_cells_side_by_side_are_each_cell_alone_and_a_sum():
    makers = ft.RTU.factory(state_size=3), ft.LinearRNN.factory(state_size=3)
    cell = filled(lambda: ft.Beside.factory(*makers)(3, key=KEY))
    parts = [states_and_outputs(part) for part in cell.cells]
    _, hs, ys = states_and_outputs(cell)
    jax.tree.map(np.testing.assert_allclose, hs, tuple(part[1] for part in parts))
    np.testing.assert_allclose(ys, sum(part[2] for part in parts))


@pytest.mark.parametrize("name", list(EQUATIONS))
def test_states_and_outputs_are_the_equations(name):
    make, step, output = EQUATIONS[name]
    # No parameter is zero, as biases are at first.
    cell = filled(lambda: make(key=KEY))
    p, (h, hs, ys) = SimpleNamespace(**parameters(cell)), states_and_outputs(cell)
    close = partial(np.testing.assert_allclose, atol=1e-12)
    for t, x in enumerate(XS):
        h = step(p, h, x)
        jax.tree.map(close, jax.tree.map(lambda leaf, t=t: leaf[t], hs), h)
        close(ys[t], h if output is None else output(p, h, x))
    assert np.ptp(ys) > 0


def test_s5_holds_its_input_for_a_step():
    """The sampled system is the integral of the continuous one under piecewise constant input."""
    cell = drawn(ft.S5, 3, 4, timescales=(2.0, 20.0))
    p, h, parts = SimpleNamespace(**parameters(cell)), np.zeros(4, complex), 2000
    lam, step = -np.exp(p.A_log) + 1j * p.A_im, np.exp(p.step_log)
    np.testing.assert_allclose(lam, -0.5 + 1j * np.pi * np.arange(4), atol=1e-12)
    B, C = p.B_re + 1j * p.B_im, p.C_re + 1j * p.C_im
    middle = (np.arange(parts) + 0.5) / parts
    response = np.exp(lam[:, None] * step[:, None] * (1 - middle)).mean(axis=1) * step
    for x, got, y in zip(XS, *states_and_outputs(cell)[1:], strict=True):
        h = np.exp(lam * step) * h + response * (B @ x)
        np.testing.assert_allclose(got, h, atol=1e-5)
        np.testing.assert_allclose(y, (C @ got).real + p.D * x, atol=1e-12)


def test_gates_begin_at_their_time_constants():
    decay = sigmoid(parameters(drawn(ft.RGLRU, 3, a_min=0.5, a_max=0.6))["a_logit"]) ** 8
    assert np.all((decay >= 0.5) & (decay <= 0.6))
    step = np.log1p(np.exp(parameters(drawn(ft.SelectiveSSM, 3))["b_step"]))
    assert np.all((step > 0.001) & (step < 0.1))
    b, rates = parameters(drawn(ft.SetReset, 3, 4, **SLOW))["b"], 1 / np.geomspace(2, 200, 4)
    np.testing.assert_allclose(sigmoid(b) ** 2, np.tile(rates[:, None] / 2, 4))
    a = parameters(drawn(ft.Rotation, 3, 4, **SLOW))["a"]
    np.testing.assert_allclose(np.log1p(np.exp(a)), rates, rtol=1e-10)


@pytest.mark.parametrize("make", [ft.Rotation, ft.SetReset])
def test_two_outputs_for_each_module_are_as_wide_as_any_input(make):
    for size, modules in ((6, 3), (5, 3), (1, 1)):
        cell = jax.eval_shape(partial(make, size), key=KEY)
        y = jax.eval_shape(lambda cell, x: cell.readout(cell.init_state(), x), cell, jnp.ones(size))
        assert cell.state_size == modules and y.shape == (size,) == (cell.output_size,)
    assert jax.eval_shape(partial(make, 5, 2), key=KEY).output_size == 4


def test_the_surrogate_of_a_spike_is_a_triangle():
    cell = ft.LIF(3, 4, threshold=0.5, key=KEY)
    v = jnp.array([-0.1, 0.0, 0.25, 0.5, 0.75, 1.0, 1.1])
    slope = jax.jit(jax.grad(lambda v: cell.readout(v, jnp.zeros(3)).sum()))(v)
    np.testing.assert_allclose(slope, np.array([0, 0, 0.5, 1, 0.5, 0, 0]) * 0.3 / 0.5, atol=1e-12)


GATED = [ft.MinGRU, ft.MinLSTM, ft.RGLRU, ft.SelectiveSSM, ft.SetReset, ft.Rotation]


@pytest.mark.parametrize("make", fast(GATED), ids=lambda make: make.__name__)
def test_saturated_gates_give_finite_states_and_gradients(make):
    """Gates saturated to the last bit: no 0 / 0, and no infinite slope of a square root at zero."""
    cell = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), filled(lambda: make(4, key=KEY)))

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

    def after(value):
        h = jax.tree.map(partial(jnp.full_like, fill_value=value), cell.init_state())
        return jnp.stack(jax.tree.leaves(cell.step(theta, h, h, jnp.zeros(cell.input_size))))

    theta, dimensions = cell.coefficients(), len(jax.tree.leaves(cell.init_state()))
    moved = jnp.abs(after(1) - after(0))
    decay = np.sqrt(np.sum(moved**2, axis=0) / dimensions)
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


def test_an_lru_starts_on_its_ring_uniformly_in_area():
    """And its gain is that of its decay."""
    cell = drawn(ft.LRU, 2, 4000, r_min=0.5, r_max=0.9, max_phase=0.3)
    lam = np.asarray(cell.coefficients().recurrent["lam"])
    np.testing.assert_allclose(np.exp(cell.gamma_log), np.sqrt(1 - abs(lam) ** 2), rtol=1e-10)
    assert 0.5 <= np.abs(lam).min() < 0.52 < 0.88 < np.abs(lam).max() <= 0.9
    assert 0 < np.angle(lam).min() < 0.29 < np.angle(lam).max() <= 0.3
    area = np.sort((np.abs(lam) ** 2 - 0.25) / (0.81 - 0.25))
    np.testing.assert_allclose(area, np.linspace(0, 1, 4000), atol=0.03)


REFUSALS = {
    "LRU(state_size=0)": lambda: ft.LRU(3, 0, key=KEY),
    "states_per_channel=0": lambda: ft.SelectiveSSM(3, states_per_channel=0, key=KEY),
    "r_min=0.5, r_max=0.5": lambda: ft.LRU(3, 4, r_min=0.5, r_max=0.5, key=KEY),
    "r_max=1.1": lambda: ft.LRU(3, 4, r_max=1.1, key=KEY),
    "not both": lambda: ft.LRU(3, 4, r_min=0.5, timescales=(1.0, 10.0), key=KEY),
    "a_max=1.0": lambda: ft.RGLRU(3, a_max=1.0, key=KEY),
    "step_min=0.0": lambda: ft.SelectiveSSM(3, step_min=0.0, key=KEY),
    "LIF(threshold=0.0)": lambda: ft.LIF(3, threshold=0.0, key=KEY),
    "Beside(GRU): expected two cells or more": lambda: ft.Beside(ft.GRU(3, key=KEY)),
    "not what makes them": lambda: ft.Beside(ft.GRU.factory(), ft.GRU.factory()),
    "Beside(GRU+LRU): inputs, modules and outputs are [(3, 3, 3), (3, 4, 3)]": lambda: ft.Beside(
        ft.GRU(3, key=KEY), ft.LRU(3, 4, key=KEY)
    ),
    "states mix real and complex": lambda: ft.Beside(ft.GRU(3, key=KEY), ft.LRU(3, 3, key=KEY)),
    "above 1/2": lambda: ft.SetReset(3, 2, timescales=(0.5, 9.0), key=KEY),
} | {
    f"MinGRU(timescales={wrong}) must be the shortest and the longest": partial(
        ft.MinGRU, 3, timescales=wrong, key=KEY
    )
    for wrong in [(0, 10), (10, 1), (1, np.inf)]
}


@pytest.mark.parametrize("words", list(REFUSALS))
def test_the_fault_is_named(words, without_shape_checks):
    with pytest.raises(ValueError, match=re.escape(words)):
        REFUSALS[words]()


PAGE = Path(__file__).parents[2] / "docs" / "api" / "cells.md"
COUNTS = re.findall(r"^\| `(\w+)` \|.*\| ([\dNHK]+ \(.+?\)) \|", PAGE.read_text(), re.MULTILINE)
"""Numbers of sensitivities that the page of cells states, such as `2N (H + 1)`."""


def test_the_page_of_cells_counts_the_sensitivities_of_all_cells():
    assert {name for name, _ in COUNTS} == {*registry.__all__}
    sizes = {"SelectiveSSM": {"states_per_channel": 3}, "RGLRU": {}}
    for name, count in COUNTS:
        make = getattr(ft, name).factory(**sizes.get(name, {"state_size": 7}))
        cell = jax.eval_shape(partial(make, 5), key=KEY)
        e = jax.eval_shape(partial(init_sensitivity, rule=ft.ONLINE), cell)
        product = re.sub(r"(?<=[\dA-Z]) ?(?=[A-Z(])", "*", count)
        expected = eval(product, {"H": 5, "N": 7, "K": 3})
        found = sum(leaf.size * (1 + jnp.iscomplexobj(leaf)) for leaf in jax.tree.leaves(e))
        assert found == expected, name
