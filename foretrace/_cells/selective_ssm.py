"""Selective state space layer: diagonal, with step size, input and output read from the input."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import check_sizes, decay_rates, normal
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class SelectiveSSM(AbstractDiagonalCell):
    r"""Selective state space model as in Mamba: each of H channels has K state elements of its own.

        step_t[d] = softplus(b_step[d] + W_step[d] x_t),  A = -exp(A_log)
        h_t[d, k] = exp(step_t[d] A[d, k]) * h_{t-1}[d, k]
                    + (exp(step_t[d] A[d, k]) - 1) / A[d, k] * (W_B[k] x_t) * x_t[d]
        y_t[d] = sum_k (W_C[k] x_t) * h_t[d, k] + D[d] * x_t[d]

    A module is one state element, h[d, k], so there are N = H K independent modules. The
    coefficients of a module are A_log[d, k], b_step[d] and W_step[d] (recurrent, because they
    determine the decay) and W_B[k] (feedforward). Parameters that several modules share are
    broadcast to each module. The gradient of all these parameters, also of the projections W_step
    and W_B, is exact through time. W_C and D act only on the output and need no sensitivity. The
    sensitivity therefore has N (2 H + 2) elements. If a module were a channel with K state
    dimensions, it would have N (K H + H + K + 1) elements, because each state element would carry
    the coefficients of all K elements of the channel.

    This cell needs more memory than an LRU because its state is larger. For each state element, the
    sensitivity has about the same size in both cells, within a factor of two, and so have the
    products with the input. `W_step` is a full matrix, while Mamba's code uses a low-rank matrix:
    if all channels shared a factor of it, each module would carry a sensitivity to the whole
    factor. Mamba's short convolution and the gate around its recurrence are not part of this cell.

    A begins as -(k + 1) in every channel (S4D-Real), and the step sizes at zero input are
    log-uniform. Kernels are sampled from N(0, 1/fan-in), and D is one.

    Args:
        input_size: number of channels, H.
        states_per_channel: number of state elements in each channel, K.
        step_min: smallest step size at zero input.
        step_max: largest step size at zero input.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the step sizes are not 0 < step_min <= step_max.

    >>> import foretrace as ft, jax
    >>> cell = ft.SelectiveSSM(input_size=3, states_per_channel=4, key=jax.random.key(0))
    >>> cell.state_size, sum(leaf.size for leaf in jax.tree.leaves(cell.coefficients()))
    (12, 96)

    Source: Gu and Dao, Mamba: linear-time sequence modeling with selective state spaces, 2023
        (zero-order hold, Eq. 4; selection, section 3.2).
    """

    A_log: Float[Array, "H K"]
    b_step: Float[Array, "H"]
    W_step: Float[Array, "H H"]
    W_B: Float[Array, "K H"]
    W_C: Float[Array, "K H"]
    D: Float[Array, "H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("A_log", "b_step")

    def __init__(
        self,
        input_size: int,
        states_per_channel: int = 16,
        *,
        step_min: float = 0.001,
        step_max: float = 0.1,
        key: PRNGKeyArray,
    ):
        check_sizes("SelectiveSSM", input_size=input_size, states_per_channel=states_per_channel)
        if not 0 < step_min <= step_max:
            raise ValueError(
                f"SelectiveSSM(step_min={step_min}, step_max={step_max}) needs 0 < step_min <= "
                "step_max"
            )
        self.input_size, self.state_size = input_size, input_size * states_per_channel
        steps, select, into, out = jax.random.split(key, 4)
        rows = jnp.log(jnp.arange(1.0, states_per_channel + 1))
        self.A_log = jnp.broadcast_to(rows, (input_size, states_per_channel))
        step = decay_rates("SelectiveSSM", (1 / step_max, 1 / step_min), (input_size,), key=steps)
        self.b_step = jnp.log(jnp.expm1(step))
        self.W_step = normal(select, (input_size, input_size), input_size)
        self.W_B = normal(into, (states_per_channel, input_size), input_size)
        self.W_C = normal(out, (states_per_channel, input_size), input_size)
        self.D = jnp.ones(input_size)

    def coefficients(self) -> Coefficients:
        """Return the coefficients of each module: A_log and b_step (N,), W_step and W_B (N, H)."""
        k = self.A_log.shape[1]
        recurrent = {
            "A_log": self.A_log.ravel(),
            "b_step": jnp.repeat(self.b_step, k),
            "W_step": jnp.repeat(self.W_step, k, axis=0),
        }
        return Coefficients(recurrent, {"W_B": jnp.tile(self.W_B, (self.input_size, 1))})

    def init_state(self) -> Float[Array, "N"]:
        """Return the zero state, ordered channel by channel."""
        return jnp.zeros_like(self.A_log).ravel()

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return the discretised decay and drive."""
        A, own = (
            -jnp.exp(theta.recurrent["A_log"]),
            jnp.repeat(x, self.state_size // self.input_size),
        )
        grown = A * jax.nn.softplus(
            jnp.inner(x, theta.recurrent["W_step"]) + theta.recurrent["b_step"]
        )
        return jnp.exp(grown), jnp.expm1(grown) / A * jnp.inner(x, theta.feedforward["W_B"]) * own

    def readout(self, h: Float[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return the state of each channel, weighted by W_C x, plus `D * x`."""
        return h.reshape(self.A_log.shape) @ (self.W_C @ x) + self.D * x
