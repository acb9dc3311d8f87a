"""Leaky integrate-and-fire unit with a surrogate gradient."""

from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_numbers, checked_sizes, decay_rates, normal
from foretrace._types import Array, Float, PRNGKeyArray, State


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def spike(v: Float[Array, "N"], threshold: float, dampening: float) -> Float[Array, "N"]:
    """Return 1 where v is above the threshold, else 0, with a triangular surrogate derivative.

    dz/dv := dampening / threshold * max(0, 1 - |v - threshold| / threshold)
    """
    return (v > threshold).astype(v.dtype)


@spike.defjvp
def _spike_jvp(threshold: float, dampening: float, primals: tuple, tangents: tuple) -> tuple:
    (v,), (dv,) = primals, tangents
    triangle = jnp.maximum(0.0, 1 - jnp.abs(v - threshold) / threshold)
    return spike(v, threshold, dampening), dampening / threshold * triangle * dv


class LIF(AbstractCell):
    r"""Leaky integrate-and-fire units without connections: N independent modules that emit spikes.

        z_t = 1 if v_t > threshold, else 0
        v_t = alpha * v_{t-1} + W x_t - threshold * z_{t-1},  alpha = exp(-exp(rate_log))

    The output is z_t, and the state is v_t. As in e-prop, the reset (the term with z_{t-1}) is not
    differentiated, so the sensitivity of v to W is the leaky sum of the inputs. That is the true
    derivative wherever no infinitesimal change adds or removes a spike. Only the derivative of the
    spike itself, in the readout, is a surrogate: a triangle of height `dampening / threshold`
    around the threshold. Unlike in the cited paper, alpha is trained. W is sampled from N(0,
    1/fan-in).

    Args:
        input_size: number of input features, H.
        state_size: number of modules, N. Default: the input size.
        threshold: value of v above which a unit spikes. The threshold is also subtracted from v
            after a spike.
            dampening: height of the surrogate derivative, multiplied by the threshold.
        dampening: height of the surrogate derivative, multiplied by the threshold.
        timescales: shortest and longest time constant of the leak, in steps. The time constants of
            the modules are log-uniform in this range.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, the threshold or dampening is not positive, or the
            timescales are not 0 < shortest <= longest.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> cell = ft.LIF(input_size=3, key=jax.random.key(0))
    >>> cell.readout(jnp.array([0.5, 1.5, -2.0]), jnp.zeros(3)).tolist()
    [0.0, 1.0, 0.0]

    Source: Bellec et al., A solution to the learning dilemma for recurrent networks of spiking
        neurons, Nature Communications 11, 2020 (the LIF neuron of e-prop, without its recurrent
        weights and refractory time).
    """

    rate_log: Float[Array, "N"]
    W: Float[Array, "N H"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    threshold: float = eqx.field(static=True)
    dampening: float = eqx.field(static=True)

    slow_parameters: ClassVar[tuple[str, ...]] = ("rate_log",)

    def __init__(
        self,
        input_size: int,
        state_size: int | None = None,
        *,
        threshold: float = 1.0,
        dampening: float = 0.3,
        timescales: tuple[float, float] = (20.0, 20.0),
        key: PRNGKeyArray,
    ):
        input_size, state_size = checked_sizes("LIF", input_size, state_size)
        check_numbers("LIF", threshold=threshold, dampening=dampening)
        self.input_size, self.state_size = input_size, state_size
        self.threshold, self.dampening = threshold, dampening
        feed, leak = jax.random.split(key)
        self.W = normal(feed, (state_size, input_size), input_size)
        self.rate_log = jnp.log(decay_rates("LIF", timescales, (state_size,), key=leak))

    def coefficients(self) -> Coefficients:
        """Return alpha (N,) and W."""
        return Coefficients({"alpha": jnp.exp(-jnp.exp(self.rate_log))}, {"W": self.W})

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "H"]) -> State:
        """Advance by one step; `others` is not read."""
        reset = self.threshold * lax.stop_gradient(spike(own, self.threshold, self.dampening))
        return theta.recurrent["alpha"] * own + jnp.inner(x, theta.feedforward["W"]) - reset

    def readout(self, h: Float[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "N"]:
        """Return the spikes."""
        return spike(h, self.threshold, self.dampening)
