"""Independently recurrent neural network."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import checked_sizes, normal
from foretrace._types import Array, Float, PRNGKeyArray, State


class IndRNN(AbstractCell):
    r"""Recurrent network of N independent units, each with one weight on its own previous state.

       h_t = f(W x_t + u * h_{t-1} + b),  f is a ReLU or tanh

    The output is the state. u is sampled uniformly from (0, 1), W from N(0, 1/fan-in), and b is
    zero. With a ReLU, the state of a unit can grow without bound if its u has grown beyond one. It
    cannot if u is in [0, 1].

    Args:
        input_size: number of input features, H.
        state_size: number of units, N. Default: the input size.
        tanh: whether f is a tanh instead of a ReLU.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> ft.IndRNN(input_size=3, key=jax.random.key(0)).independent
    True

    Source: Li et al., Independently recurrent neural network (IndRNN): building a longer and deeper
        RNN, CVPR 2018.
    """

    W: Float[Array, "N H"]
    u: Float[Array, "N"]
    b: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    tanh: bool = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("u",)

    def __init__(
        self,
        input_size: int,
        state_size: int | None = None,
        *,
        tanh: bool = False,
        key: PRNGKeyArray,
    ):
        input_size, state_size = checked_sizes("IndRNN", input_size, state_size)
        self.input_size, self.state_size, self.tanh = input_size, state_size, tanh
        feed, back = jax.random.split(key)
        self.W = normal(feed, (state_size, input_size), input_size)
        self.u = jax.random.uniform(back, (state_size,))
        self.b = jnp.zeros(state_size)

    def coefficients(self) -> Coefficients:
        """Return the parameters."""
        return Coefficients({"u": self.u}, {"W": self.W, "b": self.b})

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "H"]) -> State:
        """Advance by one step; `others` is not read."""
        h = (
            jnp.inner(x, theta.feedforward["W"])
            + theta.recurrent["u"] * own
            + theta.feedforward["b"]
        )
        return jnp.tanh(h) if self.tanh else jax.nn.relu(h)
