"""The linear scan `h_t = a_t * h_{t-1} + b_t`, the one loop that diagonal linear cells need.

The computation (the methods below) is separate from the derivative (`linear_scan_given_states`).
For every method, the adjoint of a linear scan is a linear scan in reverse.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from foretrace._types import Array, Bool, Inexact

STATES = "states"
"""Name under which `jax.checkpoint` finds the states of a linear scan."""


Method = Literal["sequential", "associative"]


def linear_scan(
    a: Inexact[Array, "N"] | Inexact[Array, "C N"],
    b: Inexact[Array, "C N"],
    h: Inexact[Array, "N"],
    starts: Bool[Array, "C"] | None = None,
    method: Method | None = None,
) -> Inexact[Array, "C N"]:
    """Return all states of `h_t = a_t * h_{t-1} + b_t`.

    Args:
        a: decay, either constant over the chunk or given for each step.
        b: drive of each step.
        h: state before the first step.
        starts: steps before which the state is zero instead of h_{t-1}.
        method: method of the computation. Default: the method of the platform.

    >>> import jax.numpy as jnp
    >>> linear_scan(jnp.array([0.5]), jnp.ones((3, 1)), jnp.zeros(1))[:, 0].tolist()
    [1.0, 1.5, 1.75]
    """
    hs = _run(*lax.stop_gradient((a, b, h)), starts, method or platform_method())
    return linear_scan_given_states(a, b, h, starts, kept(hs))


def kept(hs: Array) -> Array:
    """Name a value so that `jax.checkpoint` saves it; a complex value is saved as two parts."""
    if jnp.iscomplexobj(hs):
        return lax.complex(checkpoint_name(hs.real, STATES), checkpoint_name(hs.imag, STATES))
    return checkpoint_name(hs, STATES)


def platform_method() -> Method:
    """Return the method for the default backend: a loop on CPUs, logarithmic depth elsewhere."""
    return "sequential" if jax.default_backend() == "cpu" else "associative"


@jax.custom_vjp
def linear_scan_given_states(
    a: Array, b: Array, h: Array, starts: Array | None, hs: Array
) -> Array:
    """Return the known result `hs` of a `linear_scan`, with the derivative of the scan.

    With the cotangent δ_t, the adjoint is `mu_t = δ_t + a_{t+1} * mu_{t+1}`. The cotangent of b_t
    is then `mu_t`, and the cotangent of a_t is `mu_t * h_{t-1}`. Nothing of the forward scan is
    computed again.
    """
    return hs


def _given_states_forward(
    a: Array, b: Array, h: Array, starts: Array | None, hs: Array
) -> tuple[Array, tuple]:
    return hs, (a, h, starts, hs)


def _given_states_backward(saved: tuple, deltas: Array) -> tuple:
    a, h, starts, hs = saved
    varying = a.ndim == 2
    # In reverse order, the error of step t+1 decays by a_{t+1} on its way to step t. It is cut if
    # t+1 starts an episode.
    later = jnp.roll(a, -1, axis=0) if varying else a
    cuts = None if starts is None else jnp.roll(starts, -1)
    mus = _run(later, deltas, jnp.zeros_like(h), cuts, platform_method(), reverse=True)
    # The error that leaves the chunk at its first step, with respect to the state before it.
    to_h = mus[0] * (a[0] if varying else a)
    if starts is not None:
        to_h = jnp.where(starts[0], 0, to_h)
    if varying or starts is not None:
        before = jnp.concatenate([h[None], hs[:-1]])
        before = before if starts is None else jnp.where(starts[:, None], 0, before)
        to_a = mus * before
        to_a = to_a if varying else to_a.sum(0)
    else:
        # The same, without a copy of all states.
        to_a = (mus[1:] * hs[:-1]).sum(0) + mus[0] * h
    return to_a, mus, to_h, None, None


linear_scan_given_states.defvjp(_given_states_forward, _given_states_backward)


def _run(
    a: Array, b: Array, h: Array, starts: Array | None, method: Method, reverse: bool = False
) -> Array:
    return _METHODS[method](a, b, h, starts, reverse)


def _sequential(a: Array, b: Array, h: Array, starts: Array | None, reverse: bool) -> Array:
    def step(h: Array, now: tuple) -> tuple[Array, Array]:
        a_t, b_t, start = now
        if start is not None:
            h = jnp.where(start, 0, h)
        h = (a if a_t is None else a_t) * h + b_t
        return h, h

    return lax.scan(step, h, (a if a.ndim == 2 else None, b, starts), reverse=reverse)[1]


def _associative(a: Array, b: Array, h: Array, starts: Array | None, reverse: bool) -> Array:
    # The state before the chunk enters through the drive of the first step.
    first = -1 if reverse else 0
    decays = jnp.broadcast_to(a, b.shape)
    if starts is not None:
        decays = jnp.where(starts[:, None], 0, decays)
        h = jnp.where(starts[first], 0, h)
    b = b.at[first].add(decays[first] * h)

    # h -> a_1 h + b_1, followed by h -> a_2 h + b_2, is h -> (a_1 a_2) h + (a_2 b_1 + b_2).
    def combine(early: tuple[Array, Array], late: tuple[Array, Array]) -> tuple[Array, Array]:
        return early[0] * late[0], late[0] * early[1] + late[1]

    return lax.associative_scan(combine, (decays, b), reverse=reverse)[1]


_METHODS: dict[Method, Callable[..., Array]] = {
    "sequential": _sequential,
    "associative": _associative,
}
