"""Minimal gated recurrent unit."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import checked_sizes, decay_rates, normal
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class MinGRU(AbstractDiagonalCell):
    r"""Gated recurrent unit that is linear in the state, because its gate reads only the input.

        z_t = sigmoid(W_z x_t + b_z)
        h_t = (1 - z_t) * h_{t-1} + z_t * (W x_t + b)

    The coefficients are the stored parameters. W_z and b_z count as recurrent, because they
    determine the decay. The output is the state. Kernels are sampled from N(0, 1/fan-in), and
    biases are zero.

    Args:
        input_size: number of input features, H.
        state_size: number of modules, N. Default: the input size.
        timescales: shortest and longest time constant at zero input, in steps. If given, b_z is set
            such that the time constants of the modules are log-uniform in this range. Default: 1.4
            steps for all modules.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the timescales are not 0 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> ft.MinGRU(input_size=3, key=jax.random.key(0)).independent
    True

    Source: Feng et al., Were RNNs all we needed?, 2024 (minGRU, in the form for states of either
        sign, not in log space).
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
        input_size, state_size = checked_sizes("MinGRU", input_size, state_size)
        self.input_size, self.state_size = input_size, state_size
        gate, candidate, times = jax.random.split(key, 3)
        self.W_z = normal(gate, (state_size, input_size), input_size)
        self.W = normal(candidate, (state_size, input_size), input_size)
        self.b = self.b_z = jnp.zeros(state_size)
        if timescales is not None:
            # 1 - sigmoid(b) = exp(-1 / tau)
            self.b_z = jnp.log(
                jnp.expm1(decay_rates("MinGRU", timescales, (state_size,), key=times))
            )

    def coefficients(self) -> Coefficients:
        """Return the parameters."""
        return Coefficients({"W_z": self.W_z, "b_z": self.b_z}, {"W": self.W, "b": self.b})

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return 1 - z and z * (W x + b)."""
        gate = jnp.inner(x, theta.recurrent["W_z"]) + theta.recurrent["b_z"]
        candidate = jnp.inner(x, theta.feedforward["W"]) + theta.feedforward["b"]
        return jax.nn.sigmoid(-gate), jax.nn.sigmoid(gate) * candidate
