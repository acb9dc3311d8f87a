"""Time constants that cover a range: how long the modules of a layer remember before anything is learned."""

import math

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float, PRNGKeyArray


def decay_rates(
    owner: str, timescales: tuple[float, float], shape: tuple[int, ...], *, key: PRNGKeyArray
) -> Float[Array, "..."]:
    """Return 1 / tau, with tau drawn log-uniformly from the range `timescales`.

    tau is the number of steps in which a memory fades to 1/e: a module with the decay |a| = exp(-1 / tau) has it.
    Log-uniform, there are as many modules between 1 and 10 steps as between 100 and 1000. (|a| uniform in area on the
    unit disk puts 2 % of the modules above 100 steps.) Use it if the task's distances in time span orders of magnitude
    or are not known.

    Args:
        owner: who asks, for the error message.
        timescales: shortest and longest time constant, in steps.
        shape: of the result.
        key: PRNG key.

    Raises:
        ValueError: not 0 < shortest <= longest < infinity.

    >>> rates = decay_rates("example", (10.0, 10.0), (2,), key=jax.random.key(0))
    >>> [round(float(rate), 3) for rate in rates]
    [0.1, 0.1]
    """
    if len(timescales) != 2 or not 0 < timescales[0] <= timescales[1] < math.inf:
        raise ValueError(
            f"{owner}(timescales={timescales}) must be the shortest and the longest time constant in steps, "
            "0 < shortest <= longest, such as (1, 1000)"
        )
    low, high = (math.log(value) for value in timescales)
    return jnp.exp(-jax.random.uniform(key, shape, minval=low, maxval=high))
