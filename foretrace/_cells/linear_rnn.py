"""Dense recurrent layer, linear or with a tanh."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_sizes, normal
from foretrace._types import Array, Float, PRNGKeyArray, State


class LinearRNN(AbstractCell):
    r"""Dense recurrent layer, linear or with a tanh (the classical RNN).

       h_t = f(A h_{t-1} + B x_t),  f is the identity or tanh
        y_t = C h_t + D * x_t

    Module n is row n of A and B. A is sampled from a truncated normal distribution, divided by
    sqrt(N). B and C are sampled from N(0, 1/fan-in), and D from N(0, 1).

    Args:
        input_size: number of features of input and output, H.
        state_size: number of modules, N.
        tanh: whether f is a tanh instead of the identity.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> ft.LinearRNN(input_size=3, state_size=4, key=jax.random.key(0)).independent
    False

    Source: the paper, section 4.2 (the comparison with densely connected recurrence).
    """

    A: Float[Array, "N N"]
    B: Float[Array, "N H"]
    C: Float[Array, "H N"]
    D: Float[Array, "H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    tanh: bool = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("A",)

    def __init__(self, input_size: int, state_size: int, *, tanh: bool = False, key: PRNGKeyArray):
        check_sizes("LinearRNN", input_size=input_size, state_size=state_size)
        self.input_size, self.state_size, self.tanh = input_size, state_size, tanh
        a, b, c, d = jax.random.split(key, 4)
        self.A = jax.random.truncated_normal(a, -2.0, 2.0, (state_size, state_size)) / jnp.sqrt(
            state_size
        )
        self.B = normal(b, (state_size, input_size), input_size)
        self.C = normal(c, (input_size, state_size), state_size)
        self.D = jax.random.normal(d, (input_size,))

    def coefficients(self) -> Coefficients:
        """Return the stored A and B."""
        return Coefficients({"A": self.A}, {"B": self.B})

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "H"]) -> State:
        """Advance by one step, with each unit's dependence on its own past visible to autodiff."""
        A = theta.recurrent["A"]
        h = (
            jnp.inner(others, A)
            + jnp.diagonal(A) * (own - others)
            + jnp.inner(x, theta.feedforward["B"])
        )
        return jnp.tanh(h) if self.tanh else h

    def readout(self, h: Float[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return `C h + D * x`."""
        return jnp.inner(h, self.C) + self.D * x
