"""Minimal long short-term memory."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import checked_sizes, normal
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class MinLSTM(AbstractDiagonalCell):
    r"""Long short-term memory that is linear in the state, because its gates read only the input.

        f_t = sigmoid(W_f x_t + b_f),  i_t = sigmoid(W_i x_t + b_i)
        h_t = f_t / (f_t + i_t) * h_{t-1} + i_t / (f_t + i_t) * (W x_t + b)

    The gates are normalised to a sum of one. The normalised gate is computed as `sigmoid(log f -
    log i)`, so a division 0 / 0 cannot occur. The coefficients are the stored parameters. The
    coefficients of both gates count as recurrent, because both gates determine the decay. The
    output is the state. Kernels are sampled from N(0, 1/fan-in). Biases are zero, except for the
    bias of the forget gate, which begins at one.

    Args:
        input_size: number of input features, H.
        state_size: number of modules, N. Default: the input size.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> ft.MinLSTM(input_size=3, key=jax.random.key(0)).independent
    True

    Source: Feng et al., Were RNNs all we needed?, 2024 (minLSTM with normalised gates, in the form
        for states of either sign, not in log space).
    """

    W_f: Float[Array, "N H"]
    W_i: Float[Array, "N H"]
    W: Float[Array, "N H"]
    b_f: Float[Array, "N"]
    b_i: Float[Array, "N"]
    b: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, state_size: int | None = None, *, key: PRNGKeyArray):
        input_size, state_size = checked_sizes("MinLSTM", input_size, state_size)
        self.input_size, self.state_size = input_size, state_size
        forget, let_in, candidate = jax.random.split(key, 3)
        self.W_f = normal(forget, (state_size, input_size), input_size)
        self.W_i = normal(let_in, (state_size, input_size), input_size)
        self.W = normal(candidate, (state_size, input_size), input_size)
        self.b_f = jnp.ones(state_size)
        self.b_i = self.b = jnp.zeros(state_size)

    def coefficients(self) -> Coefficients:
        """Return the parameters."""
        gates = {"W_f": self.W_f, "W_i": self.W_i, "b_f": self.b_f, "b_i": self.b_i}
        return Coefficients(gates, {"W": self.W, "b": self.b})

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return the normalised forget gate, and the normalised input gate times the candidate."""
        gates, drive = theta.recurrent, theta.feedforward
        forget, let_in = (
            jnp.inner(x, gates["W_f"]) + gates["b_f"],
            jnp.inner(x, gates["W_i"]) + gates["b_i"],
        )
        odds = jax.nn.log_sigmoid(forget) - jax.nn.log_sigmoid(let_in)
        return jax.nn.sigmoid(odds), jax.nn.sigmoid(-odds) * (jnp.inner(x, drive["W"]) + drive["b"])
