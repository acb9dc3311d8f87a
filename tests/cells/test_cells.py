"""Every cell passes `check_cell`; every way of getting a cell wrong that we know of does not."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from cases import CELLS
from jax.lax import stop_gradient
from tiers import fast, slow

import foretrace as ft
from foretrace.testing._check import check_cell

N = 3
KEY = jax.random.key(0)


def drawn(*shape, scale=1.0):
    """Return a field that is drawn, in the precision of the session, when the cell is made."""
    return eqx.field(default_factory=lambda: scale * jax.random.normal(KEY, shape))


class Small(ft.AbstractCell):
    """What the cells below have in common: two inputs and N modules."""

    input_size: int = eqx.field(static=True, default=2)
    state_size: int = eqx.field(static=True, default=N)


class GatedDiagonal(Small, ft.AbstractDiagonalCell):
    """A decay that depends on the input and is shared by all modules; a nonzero initial state."""

    rate: jax.Array = eqx.field(default_factory=lambda: jnp.ones(()))
    W: jax.Array = drawn(N, 2)
    B: jax.Array = drawn(N, 2, scale=0.5)

    def coefficients(self):
        return ft.Coefficients(
            {"rate": jnp.broadcast_to(self.rate, (N,)), "W": self.W}, {"B": self.B}
        )

    def init_state(self):
        return jnp.full((N,), 0.3, self.B.dtype)

    def decay_and_drive(self, theta, x):
        gate = jax.nn.sigmoid(theta.recurrent["W"] @ x + theta.recurrent["rate"])
        return gate, (1 - gate) * jnp.tanh(theta.feedforward["B"] @ x)


class Complex(Small):
    """A small correct complex cell with readout, the starting point of wrong ones."""

    lam: jax.Array = drawn(2, N, scale=0.5)
    B_re: jax.Array = drawn(N, 2)

    def coefficients(self):
        lam = jax.lax.complex(*self.lam)
        return ft.Coefficients({"lam": lam}, {"B": self.B_re.astype(lam.dtype)})

    def init_state(self):
        return jnp.zeros_like(jax.lax.complex(*self.lam))

    def step(self, theta, own, others, x):
        return theta.recurrent["lam"] * own + theta.feedforward["B"] @ x.astype(own.dtype)

    def readout(self, h, x):
        return h.real


class Dense(Small):
    """A small correct dense cell, the starting point of wrong ones."""

    A: jax.Array = drawn(N, N, scale=0.5)
    B: jax.Array = drawn(N, 2)
    unused: dict[str, jax.Array] | None = None

    def coefficients(self):
        return ft.Coefficients({"A": self.A}, {"B": self.B})

    def step(self, theta, own, others, x):
        A = theta.recurrent["A"]
        return jnp.tanh(A @ others + jnp.diagonal(A) * (own - others) + theta.feedforward["B"] @ x)


OPTIONS = {"lif": {"surrogate": True}, "indrnn": {"key": jax.random.key(1)}}
"""A spike has a surrogate; and inputs that do not leave every ReLU shut."""
RIGHT = {name: partial(make, N, key=KEY) for name, make in CELLS.items()}
RIGHT |= {"gated": GatedDiagonal, "complex": Complex, "dense": Dense}


@pytest.mark.full
@pytest.mark.parametrize("name", [name if name in CELLS else slow(name) for name in RIGHT])
def test_cell_obeys_every_law(name):
    """A cell in float32 is checked in float64."""
    with jax.enable_x64(False):
        cell = RIGHT[name]()
        assert {leaf.dtype for leaf in jax.tree.leaves(cell)} == {jnp.dtype("float32")}
        report = check_cell(cell, **OPTIONS.get(name, {}))
        assert jnp.ones(1).dtype == jnp.float32
    assert len(report.laws) > 40 and len(dict(report.laws)) == len(report.laws)
    assert max(error for _, error in report.laws) < 1e-8
    assert "obeys" in str(report)


@pytest.mark.full
def test_a_frozen_parameter_may_be_unused_and_no_other():
    cell = Dense(unused={name: jnp.ones(2) for name in ("frozen", "forgotten")})
    with pytest.raises(AssertionError, match=r"every parameter learns' at unused.forgotten:"):
        check_cell(cell, length=4, frozen=("unused.frozen",))
    check_cell(cell, length=4, frozen=("unused.frozen", "unused.forgotten"))


class Arguments(NamedTuple):
    """The arguments of a step."""

    theta: ft.Coefficients
    own: jax.Array
    others: jax.Array
    x: jax.Array


def like(base, **methods):
    """Return a subclass with other methods."""
    return type(base)(f"Wrong{base.__name__}", (base,), methods)


def given(base, change):
    """Return a subclass whose step gets other arguments."""
    return like(base, step=lambda self, *rest: base.step(self, *change(Arguments(*rest))))


def returning(base, change):
    """Return a subclass whose step returns something else."""
    return like(base, step=lambda self, *rest: change(base.step(self, *rest), Arguments(*rest)))


def having(base, change):
    """Return a subclass with other coefficients."""
    return like(base, coefficients=lambda self: change(self, base.coefficients(self)))


def rows_for_columns(at):
    return at._replace(theta=at.theta._replace(recurrent={"A": at.theta.recurrent["A"].T}))


def without_feedforward(at):
    return at._replace(theta=at.theta._replace(feedforward=stop_gradient(at.theta.feedforward)))


surrogate_step = returning(Dense, lambda h, at: 0.9 * h + stop_gradient(0.1 * h))
"""Autodiff agrees with itself, and with no number."""

WRONG = {
    given(Complex, lambda at: at._replace(own=at.own.conj())): "step is holomorphic in own",
    given(Complex, lambda at: at._replace(theta=jax.tree.map(jnp.conj, at.theta))): (
        "step is holomorphic in theta"
    ),
    like(Complex, readout=lambda self, h, x: h): "interface, readout",
    given(Dense, lambda at: at._replace(others=at.own)): "own is the past of each module",
    given(Dense, lambda at: at._replace(own=at.others)): "others are the other modules",
    given(
        Dense, lambda at: at._replace(others=stop_gradient(at.others))
    ): "independent as declared",
    given(Dense, rows_for_columns): "a coefficient acts on one module",
    having(
        Dense, lambda cell, theta: theta._replace(feedforward={"B": cell.B, "a": cell.A[0, 0]})
    ): ("interface.*module axis"),
    like(Dense, init_state=lambda self: self.B[:, 0]): "initial state is a constant' at B",
    lambda: Dense(A=jnp.eye(N, dtype=complex)): "interface, parameters' at A",
    returning(GatedDiagonal, lambda h, at: h + 0.01 * at.own**2): r"a \* own \+ b",
    # The others are in the full tier.
    given(Dense, without_feedforward): "finite differences|every parameter learns",
    having(Dense, lambda cell, theta: theta._replace(recurrent={"A": cell.A * jnp.eye(N)})): (
        "ONLINE = RTRL iff independent"
    ),
    surrogate_step: "finite differences",
    partial(ft.LIF, 2, key=KEY): "finite differences of the loss",
}


@pytest.mark.parametrize(("make", "law"), fast(WRONG.items(), 11))
def test_a_wrong_cell_fails(make, law):
    with pytest.raises(AssertionError, match=law):
        check_cell(make(), length=4)


@pytest.mark.full
def test_a_surrogate_readout_excuses_no_step():
    with pytest.raises(AssertionError, match="finite differences of the state"):
        check_cell(surrogate_step(), length=4, surrogate=True)


def test_a_sequence_of_one_step_cannot_be_cut():
    with pytest.raises(ValueError, match="at least 2"):
        check_cell(Dense(), length=1)
