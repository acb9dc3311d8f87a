"""Every cell passes `check_cell`; every way of getting a cell wrong that we know of does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from cases import CELLS

import foretrace as ft
from foretrace.testing._check import check_cell

N = 3
KEY = jax.random.key(0)

# A spike has a surrogate; and inputs that do not leave every ReLU shut.
OPTIONS = {"lif": {"surrogate": True}, "indrnn": {"key": jax.random.key(1)}}


@pytest.mark.full
@pytest.mark.parametrize("cell_name", list(CELLS), indirect=True)
def test_cell_obeys_every_law(make_cell, cell_name):
    report = check_cell(make_cell(N, key=KEY), **OPTIONS.get(cell_name, {}))
    assert len(report.laws) > 40
    assert max(error for _, error in report.laws) < 1e-8
    assert "obeys" in str(report)


class GatedDiagonal(ft.AbstractDiagonalCell):
    """A decay that depends on the input and is shared by all modules; a nonzero initial state."""

    rate: jax.Array
    W: jax.Array
    B: jax.Array
    input_size: int = eqx.field(static=True, default=2)
    state_size: int = eqx.field(static=True, default=N)

    def coefficients(self):
        return ft.Coefficients(
            {"rate": jnp.broadcast_to(self.rate, (N,)), "W": self.W}, {"B": self.B}
        )

    def init_state(self):
        return jnp.full((N,), 0.3, self.B.dtype)

    def decay_and_drive(self, theta, x):
        gate = jax.nn.sigmoid(theta.recurrent["W"] @ x + theta.recurrent["rate"])
        return gate, (1 - gate) * jnp.tanh(theta.feedforward["B"] @ x)


def gated_diagonal():
    W, B = jax.random.normal(KEY, (2, N, 2))
    return GatedDiagonal(jnp.ones(()), W, B)


@pytest.mark.full
def test_a_gated_cell_with_a_shared_coefficient_and_an_initial_state_obeys_every_law():
    check_cell(gated_diagonal())


class Rotation(ft.AbstractCell):
    """A small correct complex cell with readout, the starting point of the wrong ones below."""

    lam_re: jax.Array
    lam_im: jax.Array
    B_re: jax.Array
    input_size: int = eqx.field(static=True, default=2)
    state_size: int = eqx.field(static=True, default=N)

    def __init__(self):
        self.lam_re, self.lam_im = 0.5 * jax.random.normal(KEY, (2, N))
        self.B_re = jax.random.normal(KEY, (N, 2))

    def coefficients(self):
        lam = jax.lax.complex(self.lam_re, self.lam_im)
        return ft.Coefficients({"lam": lam}, {"B": self.B_re.astype(lam.dtype)})

    def init_state(self):
        return jnp.zeros_like(jax.lax.complex(self.lam_re, self.lam_im))

    def step(self, theta, own, others, x):
        return theta.recurrent["lam"] * own + theta.feedforward["B"] @ x.astype(own.dtype)

    def readout(self, h, x):
        return h.real


class Dense(ft.AbstractCell):
    """A small correct dense cell, the starting point of the wrong ones below."""

    A: jax.Array
    B: jax.Array
    input_size: int = eqx.field(static=True, default=2)
    state_size: int = eqx.field(static=True, default=N)

    def __init__(self):
        self.A = jax.random.normal(KEY, (N, N)) / 2
        self.B = jax.random.normal(KEY, (N, 2))

    def coefficients(self):
        return ft.Coefficients({"A": self.A}, {"B": self.B})

    def init_state(self):
        return jnp.zeros_like(self.A[:, 0])

    def step(self, theta, own, others, x):
        A = theta.recurrent["A"]
        return jnp.tanh(A @ others + jnp.diagonal(A) * (own - others) + theta.feedforward["B"] @ x)


class Conjugates(Rotation):
    def step(self, theta, own, others, x):
        return super().step(theta, jnp.conj(own), others, x)


class ConjugatesCoefficient(Rotation):
    def step(self, theta, own, others, x):
        recurrent = {"lam": jnp.conj(theta.recurrent["lam"])}
        return super().step(theta._replace(recurrent=recurrent), own, others, x)


class NormalisesState(Rotation):
    def step(self, theta, own, others, x):
        h = super().step(theta, own, others, x)
        return h / (1 + jnp.abs(h)).astype(h.dtype)


class RealGamma(Rotation):
    def coefficients(self):
        theta = super().coefficients()
        return theta._replace(feedforward={"B": self.B_re})


class ComplexReadout(Rotation):
    def readout(self, h, x):
        return h


class ReadsOwnForOthers(Dense):
    def step(self, theta, own, others, x):
        return super().step(theta, own, own, x)


class ReadsOthersForOwn(Dense):
    def step(self, theta, own, others, x):
        return super().step(theta, others, others, x)


class HidesDependence(Dense):
    """Modules are coupled, but the derivative does not say so."""

    def step(self, theta, own, others, x):
        return super().step(theta, own, jax.lax.stop_gradient(others), x)


class ReadsOthersInVain(Dense):
    def coefficients(self):
        return ft.Coefficients({"A": self.A * jnp.eye(N)}, {"B": self.B})


class ColumnsAreModules(Dense):
    def step(self, theta, own, others, x):
        return super().step(theta._replace(recurrent={"A": theta.recurrent["A"].T}), own, others, x)


class SharesACoefficient(Dense):
    """One gain for each input, shared by all modules, of as many entries as there are modules."""

    input_size: int = eqx.field(static=True, default=N)

    def __init__(self):
        super().__init__()
        self.B = jax.random.normal(KEY, (N,))

    def step(self, theta, own, others, x):
        shared = jnp.sum(theta.feedforward["B"] * x)
        return (
            super().step(theta._replace(feedforward={"B": jnp.zeros((N, N))}), own, others, x)
            + shared
        )


class HasNoModuleAxis(Dense):
    def coefficients(self):
        return ft.Coefficients({"A": self.A}, {"B": self.B, "gain": self.A[0, 0]})


class StopsAGradient(Dense):
    def step(self, theta, own, others, x):
        closed = jax.lax.stop_gradient(theta.feedforward)
        return super().step(theta._replace(feedforward=closed), own, others, x)


class LearnsItsInitialState(Dense):
    def init_state(self):
        return self.B[:, 0]


class HasAnUnusedParameter(Dense):
    unused: jax.Array

    def __init__(self):
        super().__init__()
        self.unused = jnp.ones(2)


class HasAComplexParameter(Dense):
    def __init__(self):
        super().__init__()
        self.A = self.A.astype(complex)


class HasAnIntegerArray(Dense):
    steps: jax.Array

    def __init__(self):
        super().__init__()
        self.steps = jnp.zeros(N, int)


class FixesThePrecision(Dense):
    def init_state(self):
        return jnp.zeros(N, jnp.float32)


class DecaysOtherwiseThanItSteps(GatedDiagonal):
    def step(self, theta, own, others, x):
        a, b = self.decay_and_drive(theta, x)
        return a * own + b + 0.01 * own**2


class HasAWrongDerivative(Dense):
    """A step whose derivative is a surrogate: autodiff agrees with itself, and with no number."""

    def step(self, theta, own, others, x):
        h = super().step(theta, own, others, x)
        return 0.9 * h + jax.lax.stop_gradient(0.1 * h)


@pytest.mark.full
def test_the_right_complex_cell_passes():
    check_cell(Rotation())


@pytest.mark.full
def test_the_right_dense_cell_passes_in_float32_with_a_parameter_declared_frozen():
    with jax.enable_x64(False):
        cell = HasAnUnusedParameter()
        assert cell.A.dtype == jnp.float32
        report = check_cell(cell, frozen=("unused",))
        assert jnp.ones(1).dtype == jnp.float32
    assert max(error for _, error in report.laws) < 1e-8


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (Conjugates, "step is holomorphic in own"),
        (ConjugatesCoefficient, "step is holomorphic in theta"),
        (NormalisesState, "step is holomorphic in own"),
        (RealGamma, "interface.*would lose the imaginary part"),
        (ComplexReadout, "interface, readout"),
        (ReadsOwnForOthers, "own is the past of each module"),
        (ReadsOthersForOwn, "others are the other modules"),
        (HidesDependence, "independent as declared"),
        pytest.param(ReadsOthersInVain, "ONLINE = RTRL iff independent", marks=pytest.mark.full),
        (ColumnsAreModules, "a coefficient acts on one module"),
        (SharesACoefficient, "a coefficient acts on one module"),
        (HasNoModuleAxis, "interface.*module axis"),
        (StopsAGradient, "finite differences|every parameter learns"),
        (LearnsItsInitialState, "initial state is a constant' at B"),
        pytest.param(
            HasAnUnusedParameter, "every parameter learns' at unused", marks=pytest.mark.full
        ),
        (HasAComplexParameter, "interface, parameters' at A"),
        (HasAnIntegerArray, "interface, parameters' at steps"),
        (FixesThePrecision, "interface"),
        (lambda: DecaysOtherwiseThanItSteps(*jax.tree.leaves(gated_diagonal())), "a \\* own \\+ b"),
        pytest.param(HasAWrongDerivative, "finite differences", marks=pytest.mark.full),
        pytest.param(
            lambda: ft.LIF(2, key=KEY), "finite differences of the loss", marks=pytest.mark.full
        ),
    ],
)
def test_a_wrong_cell_fails(make, law):
    with pytest.raises(AssertionError, match=law):
        check_cell(make(), length=4)


@pytest.mark.full
def test_a_surrogate_readout_excuses_no_step():
    with pytest.raises(AssertionError, match="finite differences of the state"):
        check_cell(HasAWrongDerivative(), length=4, surrogate=True)


def test_a_sequence_of_one_step_cannot_be_cut():
    with pytest.raises(ValueError, match="at least 2"):
        check_cell(Dense(), length=1)
