"""Real-gated linear recurrent unit."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import check_sizes, normal, unit_gain
from foretrace._types import Array, Float, Pair, PRNGKeyArray

SHARPNESS = 8.0
"""Constant c of the source: the decay goes from 1 to a^c as its gate opens."""


class RGLRU(AbstractDiagonalCell):
    r"""Real-gated linear recurrent unit with as many independent modules as inputs.

        r_t = sigmoid(W_a x_t + b_a)    (Eq. 1)
        i_t = sigmoid(W_x x_t + b_x)    (Eq. 2)
        a_t = a^(8 r_t),  a = sigmoid(a_logit)    (Eq. 3)
        h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (i_t * x_t)    (Eq. 4)

    The coefficients are the stored parameters. a_logit, W_a and b_a count as recurrent, because
    they determine the decay. The output is the state. a^8 is sampled uniformly from [a_min, a_max].
    Kernels are sampled from N(0, 1/fan-in), and biases are zero. The gates are full matrices, as in
    the paper's equations.

    Args:
        input_size: number of input features and of modules, H.
        a_min: smallest initial decay while the gate r is open, 0 < a_min < a_max.
        a_max: largest initial decay while the gate r is open, a_min < a_max < 1.
        key: PRNG key for the initial values.

    Raises:
        ValueError: the size is below one, or the decays are not 0 < a_min < a_max < 1.

    >>> import foretrace as ft, jax
    >>> ft.RGLRU(input_size=3, key=jax.random.key(0)).output_size
    3

    Source: De et al., Griffin: mixing gated linear recurrences with local attention for efficient
        language models, 2024, section 2.4.
    """

    a_logit: Float[Array, "N"]
    W_a: Float[Array, "N H"]
    b_a: Float[Array, "N"]
    W_x: Float[Array, "N H"]
    b_x: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("a_logit",)

    def __init__(
        self, input_size: int, *, a_min: float = 0.9, a_max: float = 0.999, key: PRNGKeyArray
    ):
        check_sizes("RGLRU", input_size=input_size)
        if not 0 < a_min < a_max < 1:
            raise ValueError(
                f"RGLRU(a_min={a_min}, a_max={a_max}) must satisfy 0 < a_min < a_max < 1"
            )
        self.input_size = self.state_size = input_size
        decay, recurrence, let_in = jax.random.split(key, 3)
        log_a = (
            jnp.log(jax.random.uniform(decay, (input_size,), minval=a_min, maxval=a_max))
            / SHARPNESS
        )
        self.a_logit = log_a - jnp.log(-jnp.expm1(log_a))
        self.W_a = normal(recurrence, (input_size, input_size), input_size)
        self.W_x = normal(let_in, (input_size, input_size), input_size)
        self.b_a = self.b_x = jnp.zeros(input_size)

    def coefficients(self) -> Coefficients:
        """Return the parameters."""
        recurrent = {"a_logit": self.a_logit, "W_a": self.W_a, "b_a": self.b_a}
        return Coefficients(recurrent, {"W_x": self.W_x, "b_x": self.b_x})

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return a_t and sqrt(1 - a_t^2) * (i_t * x_t)."""
        past, present = theta.recurrent, theta.feedforward
        opened = jax.nn.sigmoid(jnp.inner(x, past["W_a"]) + past["b_a"])
        log_a = SHARPNESS * opened * jax.nn.log_sigmoid(past["a_logit"])
        gated = jax.nn.sigmoid(jnp.inner(x, present["W_x"]) + present["b_x"]) * x
        return jnp.exp(log_a), unit_gain(log_a) * gated
