"""Diagonal state space layer with a zero-order hold and learned step sizes."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import check_sizes, complex_product, decay_rates, mixing, real_readout
from foretrace._types import Array, Complex, Float, Pair, PRNGKeyArray


class S5(AbstractDiagonalCell):
    r"""Complex diagonal state space model with a zero-order hold and N independent modules.

        dh/dt = lam * h + B x,  lam = -exp(A_log) + i A_im,  step = exp(step_log)
        h_t = exp(lam * step) * h_{t-1} + (exp(lam * step) - 1) / lam * (B x_t)
        y_t = Re[C h_t] + D * x_t

    The coefficients are exp(lam * step) (recurrent) and (exp(lam * step) - 1) / lam * B
    (feedforward). Because these discretised values are the coefficients, the sensitivity is as
    small as the LRU's. As in S5, all inputs drive all modules. The eigenvalues begin as in S4D-Lin,
    `lam = -1/2 + i pi n` for `n = 0 … N - 1`, and each module has its own step size. With `Re lam =
    -1/2`, a time constant of tau steps has the step size `2 / tau`. B and C are sampled as in the
    LRU. A module represents a conjugate pair of eigenvalues, which contributes 2 Re[C h] to the
    output. The factor of 2 is part of the trained C.

    Args:
        input_size: number of features of input and output, H.
        state_size: number of modules, N.
        timescales: shortest and longest time constant, in steps. The time constants of the modules
            are log-uniform in this range. With the default, step sizes lie in [0.001, 0.1].
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the timescales are not 0 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> cell = ft.S5(input_size=3, state_size=4, key=jax.random.key(0))
    >>> cell.coefficients().feedforward["B"].shape
    (4, 3)

    Source: Smith et al., Simplified state space layers for sequence modeling, ICLR 2023 (many
        inputs, a step for each module); Gu et al., On the parameterization and initialization of
        diagonal state space models, NeurIPS 2022 (S4D-Lin).
    """

    A_log: Float[Array, "N"]
    A_im: Float[Array, "N"]
    step_log: Float[Array, "N"]
    B_re: Float[Array, "N H"]
    B_im: Float[Array, "N H"]
    C_re: Float[Array, "H N"]
    C_im: Float[Array, "H N"]
    D: Float[Array, "H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("A_log", "A_im", "step_log")

    def __init__(
        self,
        input_size: int,
        state_size: int,
        *,
        timescales: tuple[float, float] = (20.0, 2000.0),
        key: PRNGKeyArray,
    ):
        check_sizes("S5", input_size=input_size, state_size=state_size)
        self.input_size, self.state_size = input_size, state_size
        keys = jax.random.split(key, 6)
        self.A_log = jnp.full(state_size, jnp.log(0.5))
        self.A_im = jnp.pi * jnp.arange(state_size, dtype=self.A_log.dtype)
        self.step_log = jnp.log(2 * decay_rates("S5", timescales, (state_size,), key=keys[0]))
        parts = mixing(keys[1:], input_size, state_size)
        self.B_re, self.B_im, self.C_re, self.C_im, self.D = parts

    def coefficients(self) -> Coefficients:
        """Return the discretised decay (N,) and the discretised B (N, H), both complex."""
        lam = lax.complex(-jnp.exp(self.A_log), self.A_im)
        grown = lam * jnp.exp(self.step_log).astype(lam.dtype)
        held = jnp.expm1(grown) / lam
        return Coefficients(
            {"a": jnp.exp(grown)}, {"B": held[:, None] * lax.complex(self.B_re, self.B_im)}
        )

    def init_state(self) -> Complex[Array, "N"]:
        """Return the zero state."""
        return jnp.zeros_like(lax.complex(self.A_log, self.A_im))

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return the discretised decay and B x, computed as one real product."""
        return theta.recurrent["a"], complex_product(theta.feedforward["B"], x)

    def readout(self, h: Complex[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return `Re[C h] + D * x`."""
        return real_readout(self.C_re, self.C_im, self.D, h, x)
