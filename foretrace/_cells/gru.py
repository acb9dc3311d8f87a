"""Gated recurrent unit."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_sizes, gate_products, normal
from foretrace._types import Array, Float, PRNGKeyArray


class GRU(AbstractCell):
    r"""Gated recurrent unit in the form with the reset gate after the recurrent product.

        r = sigmoid(W_ir x + b_ir + W_hr h),  z = sigmoid(W_iz x + b_iz + W_hz h)
        n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        h' = (1 - z) * n + z * h

    In this form every row of every matrix belongs to one unit, so the sensitivity of SnAp-1 has one element for each
    weight. The output is the state. Kernels are sampled from N(0, 1/fan-in), and biases are zero.

    Args:
        input_size: number of input features, H.
        state_size: number of units, N. Default: the input size.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> ft.GRU(input_size=3, key=jax.random.key(0)).output_size
    3

    Source: Cho et al., EMNLP 2014; Menick et al., Practical real time recurrent learning with a sparse approximation,
    ICLR 2021 (the variant for which SnAp-1 is efficient).
    """

    W_i: Float[Array, "N 3 H"]
    W_h: Float[Array, "N 3 N"]
    b_i: Float[Array, "N 3"]
    b_hn: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, state_size: int | None = None, *, key: PRNGKeyArray):
        state_size = input_size if state_size is None else state_size
        check_sizes("GRU", input_size=input_size, state_size=state_size)
        self.input_size, self.state_size = input_size, state_size
        i, h = jax.random.split(key)
        self.W_i = normal(i, (state_size, 3, input_size), input_size)
        self.W_h = normal(h, (state_size, 3, state_size), state_size)
        self.b_i = jnp.zeros((state_size, 3))
        self.b_hn = jnp.zeros(state_size)

    def coefficients(self) -> Coefficients:
        """Return the kernels with the unit axis in front and the gates (r, z, n) on the second axis."""
        return Coefficients({"W_h": self.W_h, "b_hn": self.b_hn}, {"W_i": self.W_i, "b_i": self.b_i})

    def init_state(self) -> Float[Array, "N"]:
        """Return the zero state."""
        return jnp.zeros_like(self.b_hn)

    def step(
        self, theta: Coefficients, own: Float[Array, "N"], others: Float[Array, "N"], x: Float[Array, "H"]
    ) -> Float[Array, "N"]:
        """Advance by one step, with each unit's dependence on its own past visible to autodiff."""
        W_h, b_hn = theta.recurrent["W_h"], theta.recurrent["b_hn"]
        W_i, b_i = theta.feedforward["W_i"], theta.feedforward["b_i"]
        of_self = jnp.diagonal(W_h, axis1=0, axis2=2)
        past_r, past_z, past_n = (
            product + weight * (own - others)
            for product, weight in zip(gate_products(W_h, others), of_self, strict=True)
        )
        now_r, now_z, now_n = (product + bias for product, bias in zip(gate_products(W_i, x), b_i.T, strict=True))
        r, z = jax.nn.sigmoid(past_r + now_r), jax.nn.sigmoid(past_z + now_z)
        n = jnp.tanh(now_n + r * (past_n + b_hn))
        return (1 - z) * n + z * own
