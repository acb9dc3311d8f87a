"""Recurrent trace unit."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_sizes, decay_rates, disk_squares, mixing, turned, unit_gain
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class RTU(AbstractCell):
    r"""Recurrent trace unit: N independent modules, each a pair of states that rotates and decays.

        r = exp(-exp(nu_log)),  g = r cos(exp(theta_log)),  phi = r sin(exp(theta_log))
       u' = f(g * u - phi * v + gamma * (B_u x)),  gamma = sqrt(1 - r^2),  f is the identity or tanh
        v' = f(g * v + phi * u + gamma * (B_v x))
        y = C_u u + C_v v + D * x

    This is the complex rotation of a linear recurrent unit, written in real arithmetic. Real
    arithmetic is needed for a nonlinear f, because a tanh of the real and the imaginary part is not
    holomorphic. Unlike in the LRU, gamma is not a parameter. The coefficients are g and phi
    (recurrent) and gamma B_u and gamma B_v (feedforward). Both state dimensions of a module depend
    on all four coefficients. r, the angle and the readout begin as in the LRU.

    Args:
        input_size: number of features of input and output, H.
        state_size: number of modules, N.
        tanh: whether f is a tanh, as in the nonlinear unit of the cited paper.
        timescales: shortest and longest time constant -1 / log r, in steps. If given, the time
            constants are log-uniform in this range. Default: r is uniform in area on the unit disk.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the timescales are not 0 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> len(ft.RTU(input_size=3, state_size=4, key=jax.random.key(0)).init_state())
    2

    Source: Elelimy et al., Real-time recurrent learning using trace units in reinforcement
        learning, NeurIPS 2024.
    """

    nu_log: Float[Array, "N"]
    theta_log: Float[Array, "N"]
    B_u: Float[Array, "N H"]
    B_v: Float[Array, "N H"]
    C_u: Float[Array, "H N"]
    C_v: Float[Array, "H N"]
    D: Float[Array, "H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    tanh: bool = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("nu_log", "theta_log")

    def __init__(
        self,
        input_size: int,
        state_size: int,
        *,
        tanh: bool = False,
        timescales: tuple[float, float] | None = None,
        key: PRNGKeyArray,
    ):
        check_sizes("RTU", input_size=input_size, state_size=state_size)
        self.input_size, self.state_size, self.tanh = input_size, state_size, tanh
        keys = jax.random.split(key, 7)
        if timescales is None:
            rates = -0.5 * jnp.log(disk_squares(keys[0], state_size))
        else:
            rates = decay_rates("RTU", timescales, (state_size,), key=keys[0])
        self.nu_log = jnp.log(rates)
        self.theta_log = jnp.log(2 * jnp.pi * (1.0 - jax.random.uniform(keys[1], (state_size,))))
        self.B_u, self.B_v, self.C_u, self.C_v, self.D = mixing(keys[2:], input_size, state_size)

    def coefficients(self) -> Coefficients:
        """Return g, phi (N,) and gamma B_u, gamma B_v (N, H)."""
        rate, angle = jnp.exp(self.nu_log), jnp.exp(self.theta_log)
        r, gamma = jnp.exp(-rate), unit_gain(-rate)[:, None]
        recurrent = {"g": r * jnp.cos(angle), "phi": r * jnp.sin(angle)}
        return Coefficients(recurrent, {"B_u": gamma * self.B_u, "B_v": gamma * self.B_v})

    def init_state(self) -> Pair:
        """Return the zero state (u, v)."""
        return jnp.zeros_like(self.nu_log), jnp.zeros_like(self.nu_log)

    def step(self, theta: Coefficients, own: Pair, others: Pair, x: Float[Array, "H"]) -> Pair:
        """Advance by one step; `others` is not read."""
        u, v = turned(own, theta.recurrent["g"], theta.recurrent["phi"])
        u = u + jnp.inner(x, theta.feedforward["B_u"])
        v = v + jnp.inner(x, theta.feedforward["B_v"])
        return (jnp.tanh(u), jnp.tanh(v)) if self.tanh else (u, v)

    def readout(self, h: Pair, x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return `C_u u + C_v v + D * x`."""
        return jnp.inner(h[0], self.C_u) + jnp.inner(h[1], self.C_v) + self.D * x
