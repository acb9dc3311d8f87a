"""Minimal gated recurrent unit."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import check_sizes, decay_rates, normal
from foretrace._types import Array, Float, PRNGKeyArray


class MinGRU(AbstractDiagonalCell):
    r"""Gated recurrent unit whose gate and candidate see the input alone: N independent modules, linear in the state.

        z_t = sigmoid(W_z x_t + b_z)
        h_t = (1 - z_t) * h_{t-1} + z_t * (W x_t + b)

    The coefficients are the parameters as they are stored; W_z and b_z, which decide the decay, are the recurrent
    ones. The output is the state. Kernels are normal over the square root of the fan-in, biases zero.

    Args:
        input_size: number of input features H.
        state_size: number of modules N; the input size if not given.
        timescales: shortest and longest time constant in steps. If given, b_z is such that at zero input they are
            log-uniform in this range (else all are 1.4 steps).
        key: PRNG key of the initialisation.

    Raises:
        ValueError: sizes below one, or not 0 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> ft.MinGRU(input_size=3, key=jax.random.key(0)).independent
    True

    Source: Feng et al., Were RNNs all we needed?, 2024 (minGRU; the form with real numbers of either sign, not the
    one in log space).
    """

    W_z: Float[Array, "N H"]
    b_z: Float[Array, "N"]
    W: Float[Array, "N H"]
    b: Float[Array, "N"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        state_size: int | None = None,
        *,
        timescales: tuple[float, float] | None = None,
        key: PRNGKeyArray,
    ):
        state_size = input_size if state_size is None else state_size
        check_sizes("MinGRU", input_size=input_size, state_size=state_size)
        self.input_size, self.state_size = input_size, state_size
        gate, candidate, times = jax.random.split(key, 3)
        self.W_z = normal(gate, (state_size, input_size), input_size)
        self.W = normal(candidate, (state_size, input_size), input_size)
        self.b = self.b_z = jnp.zeros(state_size)
        if timescales is not None:
            # 1 - sigmoid(b) = exp(-1 / tau)
            self.b_z = jnp.log(jnp.expm1(decay_rates("MinGRU", timescales, (state_size,), key=times)))

    def coefficients(self) -> Coefficients:
        """Return the parameters."""
        return Coefficients({"W_z": self.W_z, "b_z": self.b_z}, {"W": self.W, "b": self.b})

    def init_state(self) -> Float[Array, "N"]:
        """Return the zero state."""
        return jnp.zeros_like(self.b)

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        """Return 1 - z and z * (W x + b)."""
        gate = jnp.inner(x, theta.recurrent["W_z"]) + theta.recurrent["b_z"]
        candidate = jnp.inner(x, theta.feedforward["W"]) + theta.feedforward["b"]
        return jax.nn.sigmoid(-gate), jax.nn.sigmoid(gate) * candidate
