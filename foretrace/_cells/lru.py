"""Linear recurrent unit."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import (
    check_sizes,
    complex_product,
    decay_rates,
    disk_squares,
    mixing,
    real_readout,
)
from foretrace._types import Array, Complex, Float, Pair, PRNGKeyArray


class LRU(AbstractDiagonalCell):
    r"""Linear recurrent unit: N independent modules with complex states and a diagonal recurrence.

        lam = exp(-exp(nu_log) + i exp(theta_log)),  gamma = exp(gamma_log)
        h_t = lam * h_{t-1} + gamma * (B x_t)    (Eq. 8)
        y_t = Re[C h_t] + D * x_t    (Eq. 9)

    The coefficients are `lam` (recurrent) and `gamma B` (feedforward). lam is sampled uniformly in
    area from the ring r_min <= |lam| <= r_max, with a phase that is uniform in (0, max_phase].
    gamma begins at sqrt(1 - |lam|^2), so that the states of all modules have a comparable
    magnitude. The real and imaginary parts of B are sampled from N(0, 1/2H) and those of C from
    N(0, 1/N). D is sampled from N(0, 1).

    Args:
        input_size: number of features of input and output, H.
        state_size: number of modules, N.
        r_min: inner radius of the ring, 0 <= r_min < r_max.
        r_max: outer radius of the ring, r_min < r_max <= 1.
        max_phase: largest phase, in radians.
        timescales: shortest and longest time constant -1 / log |lam|, in steps. If given, the time
            constants are log-uniform in this range, and the ring is not used. Default: the ring.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, the ring is not `0 <= r_min < r_max <= 1`, the timescales
            are not `0 < shortest <= longest`, or both a ring and timescales are given.

    >>> import foretrace as ft, jax
    >>> cell = ft.LRU(input_size=3, state_size=4, key=jax.random.key(0))
    >>> cell.coefficients().recurrent["lam"].shape
    (4,)

    Source: Orvieto et al., Resurrecting recurrent neural networks for long sequences, ICML 2023;
        the paper, App. A.1.
    """

    nu_log: Float[Array, "N"]
    theta_log: Float[Array, "N"]
    gamma_log: Float[Array, "N"]
    B_re: Float[Array, "N H"]
    B_im: Float[Array, "N H"]
    C_re: Float[Array, "H N"]
    C_im: Float[Array, "H N"]
    D: Float[Array, "H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("nu_log", "theta_log", "gamma_log")

    def __init__(
        self,
        input_size: int,
        state_size: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * jnp.pi,
        timescales: tuple[float, float] | None = None,
        key: PRNGKeyArray,
    ):
        check_sizes("LRU", input_size=input_size, state_size=state_size)
        if not 0 <= r_min < r_max <= 1:
            raise ValueError(
                f"the ring of |lam| needs 0 <= r_min < r_max <= 1, got r_min={r_min}, r_max={r_max}"
            )
        if timescales is not None and (r_min, r_max) != (0.0, 1.0):
            raise ValueError(
                f"give timescales={timescales} or a ring (r_min={r_min}, r_max={r_max}), not both"
            )
        self.input_size, self.state_size = input_size, state_size
        keys = jax.random.split(key, 7)
        if timescales is None:
            square = disk_squares(keys[0], state_size, r_min, r_max)
            self.nu_log, self.gamma_log = jnp.log(-0.5 * jnp.log(square)), 0.5 * jnp.log1p(-square)
        else:
            rates = decay_rates("LRU", timescales, (state_size,), key=keys[0])
            self.nu_log, self.gamma_log = jnp.log(rates), 0.5 * jnp.log(-jnp.expm1(-2 * rates))
        self.theta_log = jnp.log(max_phase * (1.0 - jax.random.uniform(keys[1], (state_size,))))
        parts = mixing(keys[2:], input_size, state_size)
        self.B_re, self.B_im, self.C_re, self.C_im, self.D = parts

    def coefficients(self) -> Coefficients:
        """Return lam (N,) and gamma B (N, H), both complex."""
        lam = jnp.exp(lax.complex(-jnp.exp(self.nu_log), jnp.exp(self.theta_log)))
        gamma = jnp.exp(self.gamma_log)[:, None]
        return Coefficients({"lam": lam}, {"B": lax.complex(gamma * self.B_re, gamma * self.B_im)})

    def init_state(self) -> Complex[Array, "N"]:
        """Return the zero state."""
        return jnp.zeros_like(lax.complex(self.nu_log, self.nu_log))

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return lam and gamma B x. The complex product is computed as one real product."""
        return theta.recurrent["lam"], complex_product(theta.feedforward["B"], x)

    def readout(self, h: Complex[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return `Re[C h] + D * x` (Eq. 9)."""
        return real_readout(self.C_re, self.C_im, self.D, h, x)
