"""Rotation: vectors in the plane that the input rotates, shortens and shifts."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_sizes, normal, spaced_timescales, turned, unit_gain
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class Rotation(AbstractCell):
    r"""Rotation: N independent vectors z = u + i v that the input rotates, shortens and shifts.

        m = exp(-softplus(W_a x_t + a)),  phi = W_p x_t + p
        z_t = m exp(i phi) z_{t-1} + sqrt(1 - m^2) (tanh(W_u x_t + b_u) + i tanh(W_v x_t + b_v))
        y_t = [u_t, v_t]

    Decay and angle depend on the input, unlike in `LRU` and `RTU`. An event can rotate the vector
    by a fraction of a full circle, so that the angle counts events modulo an integer. Between
    events the vector stays unchanged if m is near one. The arithmetic is real, and both state
    dimensions of a module depend on all of its coefficients.

    At zero input, the parameter `a` gives each module its time constant 1 / softplus(a). The
    weights are sampled from normal distributions with mean zero. The standard deviations are
    1/sqrt(H) for W_u and W_v, 0.3/sqrt(H) for W_a, 0.5/sqrt(H) for W_p, and 0.02 for p. b_u begins
    at 0.3 and b_v at zero.

    Args:
        state_size: number of modules, N. Default: H / 2 rounded up, so that the output is as wide
            as the input. If H is odd, the v of the last module is not an output.
        timescales: shortest and longest time constant at zero input, in steps. The time constants
            of the modules are evenly spaced in this range on a logarithmic scale.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the timescales are not 0 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> cell = ft.Rotation(input_size=3, state_size=4, key=jax.random.key(0))
    >>> cell.output_size, cell.independent
    (8, True)
    """

    a: Float[Array, "N"]
    p: Float[Array, "N"]
    b_u: Float[Array, "N"]
    b_v: Float[Array, "N"]
    W_a: Float[Array, "N H"]
    W_p: Float[Array, "N H"]
    W_u: Float[Array, "N H"]
    W_v: Float[Array, "N H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    num_outputs: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        state_size: int | None = None,
        *,
        timescales: tuple[float, float] = (2.0, 500.0),
        key: PRNGKeyArray,
    ):
        check_sizes("Rotation", input_size=input_size)
        self.num_outputs = input_size if state_size is None else 2 * state_size
        state_size = -(-input_size // 2) if state_size is None else state_size
        check_sizes("Rotation", state_size=state_size)
        self.input_size, self.state_size = input_size, state_size
        tau = jnp.asarray(spaced_timescales("Rotation", timescales, state_size))
        keys, shape = jax.random.split(key, 5), (state_size, input_size)
        self.a = jnp.log(jnp.expm1(1 / tau))
        self.p = 0.02 * jax.random.normal(keys[0], (state_size,))
        self.b_u, self.b_v = jnp.full_like(self.p, 0.3), jnp.zeros_like(self.p)
        self.W_a = 0.3 * normal(keys[1], shape, input_size)
        self.W_p = 0.5 * normal(keys[2], shape, input_size)
        self.W_u, self.W_v = normal(keys[3], shape, input_size), normal(keys[4], shape, input_size)

    @property
    def output_size(self) -> int:
        """Number of features of the readout: two for each module, unless the last v is left out."""
        return self.num_outputs

    def coefficients(self) -> Coefficients:
        """Return the parameters; the coefficients of decay and angle are recurrent."""
        return Coefficients(
            {"a": self.a, "p": self.p, "W_a": self.W_a, "W_p": self.W_p},
            {"b_u": self.b_u, "b_v": self.b_v, "W_u": self.W_u, "W_v": self.W_v},
        )

    def init_state(self) -> Pair:
        """Return the zero state (u, v)."""
        return jnp.zeros_like(self.p), jnp.zeros_like(self.p)

    def step(self, theta: Coefficients, own: Pair, others: Pair, x: Float[Array, "H"]) -> Pair:
        """Advance by one step; `others` is not read."""
        past, now = theta.recurrent, theta.feedforward
        log_decay = -jax.nn.softplus(jnp.inner(x, past["W_a"]) + past["a"])
        angle, gain = jnp.inner(x, past["W_p"]) + past["p"], unit_gain(log_decay)
        decay = jnp.exp(log_decay)
        u, v = turned(own, decay * jnp.cos(angle), decay * jnp.sin(angle))
        return (
            u + gain * jnp.tanh(jnp.inner(x, now["W_u"]) + now["b_u"]),
            v + gain * jnp.tanh(jnp.inner(x, now["W_v"]) + now["b_v"]),
        )

    def readout(self, h: Pair, x: Float[Array, "H"]) -> Float[Array, "O"]:
        """Return `[u, v]`."""
        return jnp.concatenate(h)[: self.num_outputs]
