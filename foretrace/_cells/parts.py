"""Functions that several cells share: initial values, time constants, products, checks."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._types import Array, Complex, Float, Pair, PRNGKeyArray


def decay_rates(
    owner: str, timescales: tuple[float, float], shape: tuple[int, ...], *, key: PRNGKeyArray
) -> Float[Array, "..."]:
    """Return 1 / tau, with tau sampled log-uniformly from the range `timescales`.

    tau is the number of steps in which a memory fades to 1/e, so the decay of its module is |a| =
    exp(-1 / tau). Under a log-uniform distribution, as many modules lie between 1 and 10 steps as
    between 100 and 1000. (If a is uniform in area on the unit disk, 2 % of the modules lie above
    100 steps.) Use this function if the distances in time of a task span orders of magnitude or are
    not known.

    Args:
        owner: name of the cell, for the error message.
        timescales: shortest and longest time constant, in steps.
        shape: shape of the result.
        key: PRNG key.

    Raises:
        ValueError: the timescales are not 0 < shortest <= longest < infinity.

    >>> rates = decay_rates("example", (10.0, 10.0), (2,), key=jax.random.key(0))
    >>> [round(float(rate), 3) for rate in rates]
    [0.1, 0.1]
    """
    low, high = _logarithms(owner, timescales)
    return jnp.exp(-jax.random.uniform(key, shape, minval=low, maxval=high))


def spaced_timescales(owner: str, timescales: tuple[float, float], size: int) -> np.ndarray:
    """Return time constants evenly spaced on a logarithmic scale, from the shortest to the longest.

    Few evenly spaced time constants cover the range better than few samples (`decay_rates`).

    Args:
        owner: name of the cell, for the error message.
        timescales: shortest and longest time constant, in steps.
        size: number of time constants. If it is one, the result is the geometric mean of both ends.

    Raises:
        ValueError: the timescales are not 0 < shortest <= longest < infinity.

    >>> spaced_timescales("example", (2.0, 32.0), 3).round(6).tolist()
    [2.0, 8.0, 32.0]
    """
    low, high = _logarithms(owner, timescales)
    return np.exp(np.linspace(low, high, size) if size > 1 else np.array([(low + high) / 2]))


def _logarithms(owner: str, timescales: tuple[float, float]) -> tuple[float, float]:
    if len(timescales) != 2 or not 0 < timescales[0] <= timescales[1] < math.inf:
        raise ValueError(
            f"{owner}(timescales={timescales}) must be the shortest and the longest time constant "
            "in steps, 0 < shortest <= longest, such as (1, 1000)"
        )
    return math.log(timescales[0]), math.log(timescales[1])


def check_sizes(owner: str, **sizes: int) -> None:
    """Raise an error that names the first size that is not a whole number of at least one."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise TypeError(f"{owner}({name}={size!r:.80}) must be a whole number")
        if size < 1:
            raise ValueError(f"{owner}({name}={size}) must be at least 1")


def check_numbers(owner: str, *, allow_zero: bool = False, **numbers: Any) -> None:
    """Raise a ValueError that names the first number that is infinite, NaN or not above zero."""
    for name, value in numbers.items():
        if not (0 < value < math.inf or (allow_zero and value == 0)):
            bound = "of at least 0" if allow_zero else "above 0"
            raise ValueError(f"{owner}({name}={value}) must be a finite number {bound}")


def checked_sizes(owner: str, input_size: int, state_size: int | None) -> tuple[int, int]:
    """Return both sizes of a cell. Default of the state size: the input size."""
    state_size = input_size if state_size is None else state_size
    check_sizes(owner, input_size=input_size, state_size=state_size)
    return input_size, state_size


def check_key(owner: str, key: Any) -> None:
    """Raise a TypeError unless `key` is one PRNG key. Raw and traced keys are accepted."""
    is_array = isinstance(key, jax.Array)
    new = is_array and is_key(key) and key.ndim == 0
    raw = is_array and key.dtype == jnp.uint32 and key.ndim == 1
    if not (new or raw):
        got = (
            f"an array {key.dtype}{list(key.shape)}"
            if isinstance(key, jax.Array)
            else repr(key)[:80]
        )
        raise TypeError(f"{owner}(key={got}) must be a PRNG key, such as jax.random.key(0)")


def is_key(array: Any) -> bool:
    """Return whether an array holds typed PRNG keys, as `jax.random.key` makes them."""
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def wrapped_key(owner: str, key: Any) -> PRNGKeyArray:
    """Return a typed PRNG key; raise a TypeError if the value is no PRNG key."""
    check_key(owner, key)
    return key if is_key(key) else jax.random.wrap_key_data(key)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    """Return samples of N(0, 1/fan_in)."""
    return jax.random.normal(key, shape) / math.sqrt(fan_in)


def unit_gain(log_decay: Float[Array, "N"]) -> Float[Array, "N"]:
    """Return `sqrt(1 - a^2)` for a decay `a = exp(log_decay)`.

    If white input is multiplied by this factor, the state has the variance of the input. At a = 1
    the derivative of the root would be infinite. There the result is the root of the smallest
    normal number, and its derivative is zero.
    """
    return jnp.sqrt(jnp.maximum(-jnp.expm1(2 * log_decay), jnp.finfo(log_decay.dtype).tiny))


def disk_squares(
    key: PRNGKeyArray, size: int, r_min: float = 0.0, r_max: float = 1.0
) -> Float[Array, "N"]:
    """Return |a|^2 of poles a that are uniform in area on the ring from r_min to r_max.

    The values |a| = 0 and |a| = 1 cannot occur: their rates -log |a| would be infinite or zero.
    """
    area = 1.0 - jax.random.uniform(key, (size,))
    tiny = float(jnp.finfo(area.dtype).eps)
    return jnp.clip(r_min**2 + area * (r_max**2 - r_min**2), tiny**2, 1.0 - tiny)


def turned(
    z: Pair,
    along: Float[Array, "N"],
    across: Float[Array, "N"],
) -> Pair:
    """Return the product of the poles `along + i across` and `z = u + i v`, in real arithmetic."""
    u, v = z
    return along * u - across * v, across * u + along * v


def mixing(keys: Array, input_size: int, state_size: int) -> tuple[Array, ...]:
    """Return the parameters B and C (real and imaginary parts) and D of modules with poles.

    Each part of B is sampled from N(0, 1/2H), each part of C from N(0, 1/N), and D from N(0, 1).

    Args:
        keys: five PRNG keys.
        input_size: number of features, H.
        state_size: number of modules, N.
    """
    B = (normal(key, (state_size, input_size), 2 * input_size) for key in keys[:2])
    C = (normal(key, (input_size, state_size), state_size) for key in keys[2:4])
    return *B, *C, jax.random.normal(keys[4], (input_size,))


def by_gate(
    weights: Float[Array, "N G ..."], names: Sequence[str]
) -> dict[str, Float[Array, "N ..."]]:
    """Return the weights of each gate as a separate array under the name of the gate.

    A joint array would be split at every step, and the derivative of a split pads arrays. On a CPU,
    a layer would then take two to three times as long (dev/log/2026-11.md).
    """
    return {name: weights[:, gate] for gate, name in enumerate(names)}


def complex_product(B: Complex[Array, "N H"], x: Float[Array, "H"]) -> Complex[Array, "N"]:
    """Return `B x`, computed as one real product, which is faster than a complex product."""
    re, im = jnp.split(jnp.inner(x, jnp.concatenate([B.real, B.imag])), 2)
    return lax.complex(re, im)


def real_readout(
    C_re: Float[Array, "H N"],
    C_im: Float[Array, "H N"],
    D: Float[Array, "H"],
    h: Complex[Array, "N"],
    x: Float[Array, "H"],
) -> Float[Array, "H"]:
    """Return `Re[C h] + D * x`."""
    C = jnp.concatenate([C_re, -C_im], axis=1)
    return jnp.inner(jnp.concatenate([h.real, h.imag]), C) + D * x
