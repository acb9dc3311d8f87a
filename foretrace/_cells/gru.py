"""Gated recurrent unit."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import by_gate, checked_sizes, normal
from foretrace._types import Array, Float, PRNGKeyArray, State


class GRU(AbstractCell):
    r"""Gated recurrent unit whose reset gate is applied after the recurrent product.

        r = sigmoid(W_ir x + b_ir + W_hr h),  z = sigmoid(W_iz x + b_iz + W_hz h)
        n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        h' = (1 - z) * n + z * h

    In this form every row of every matrix belongs to one unit, so the sensitivity of SnAp-1 has one
    element for each weight. The output is the state. Kernels are sampled from N(0, 1/fan-in), and
    biases are zero.

    Args:
        input_size: number of input features, H.
        state_size: number of units, N. Default: the input size.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> ft.GRU(input_size=3, key=jax.random.key(0)).output_size
    3

    Source: Cho et al., EMNLP 2014; Menick et al., Practical real time recurrent learning with a
        sparse approximation, ICLR 2021 (the variant for which SnAp-1 is efficient).
    """

    W_i: Float[Array, "N 3 H"]
    W_h: Float[Array, "N 3 N"]
    b_i: Float[Array, "N 3"]
    b_hn: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, state_size: int | None = None, *, key: PRNGKeyArray):
        input_size, state_size = checked_sizes("GRU", input_size, state_size)
        self.input_size, self.state_size = input_size, state_size
        i, h = jax.random.split(key)
        self.W_i = normal(i, (state_size, 3, input_size), input_size)
        self.W_h = normal(h, (state_size, 3, state_size), state_size)
        self.b_i = jnp.zeros((state_size, 3))
        self.b_hn = jnp.zeros(state_size)

    def coefficients(self) -> Coefficients:
        """Return kernels and biases of each gate, with the unit axis in front."""
        return Coefficients(
            by_gate(self.W_h, ("W_hr", "W_hz", "W_hn")) | {"b_hn": self.b_hn},
            by_gate(self.W_i, ("W_ir", "W_iz", "W_in"))
            | by_gate(self.b_i, ("b_ir", "b_iz", "b_in")),
        )

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "H"]) -> State:
        """Advance by one step, with each unit's dependence on its own past visible to autodiff."""
        past, now = theta.recurrent, theta.feedforward

        def recurrent(W: Float[Array, "N N"]) -> Float[Array, "N"]:
            return jnp.inner(others, W) + jnp.diagonal(W) * (own - others)

        r = jax.nn.sigmoid(jnp.inner(x, now["W_ir"]) + now["b_ir"] + recurrent(past["W_hr"]))
        z = jax.nn.sigmoid(jnp.inner(x, now["W_iz"]) + now["b_iz"] + recurrent(past["W_hz"]))
        n = jnp.tanh(
            jnp.inner(x, now["W_in"]) + now["b_in"] + r * (recurrent(past["W_hn"]) + past["b_hn"])
        )
        return (1 - z) * n + z * own
