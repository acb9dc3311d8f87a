"""Sampling of the modules that carry sensitivities to the layers below.

M of N modules are sampled for each sequence. The contribution of module n to the gradient is
multiplied by 1 / p_n, where p_n is the probability that the module is sampled. The gradient is
therefore unbiased for all probabilities:

    E[sum_{n sampled} g_n / p_n] = sum_n g_n

A module's contribution from the past lasts as long as its memory. Probabilities in proportion to
the memory, the time constant 1 / (1 - |a|) of a module, therefore leave less noise in the gradient
than equal probabilities (`results/credit.md`).
"""

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell
from foretrace._credit.groups import depth_of
from foretrace._network import Network
from foretrace._recurrence.chunk import Modules
from foretrace._recurrence.sensitivity import own_derivatives
from foretrace._rule import LearningRule
from foretrace._types import Array, Float, Int, PRNGKeyArray

LONGEST = 1e4
"""Longest time constant, in steps: also beside a module that never forgets, others are sampled."""


def sample_modules(network: Network, rule: LearningRule, key: PRNGKeyArray) -> Modules | None:
    """Sample modules of each recurrent layer for a sequence. None if all carry sensitivities.

    Args:
        network: the network. Its present parameters determine the memory of the modules.
        rule: rule with a credit depth.
        key: PRNG key of the sequence.
    """
    credit = depth_of(rule)
    if not 0 < credit.modules < network.block(0).cell.state_size:
        return None
    # Samples come from this half of the key, as in the recorded runs.
    key = jax.random.split(key)[1]
    found = []
    for m in range(1, network.depth + 1):
        cell, own_key = network.block(m - 1).cell, jax.random.fold_in(key, m)
        if credit.by_memory:
            p = inclusion_probabilities(memory(cell), credit.modules)
            chosen = systematic_sample(p, credit.modules, own_key)
        else:
            p = jnp.full(cell.state_size, credit.modules / cell.state_size, network.dtype)
            chosen = jax.random.permutation(own_key, cell.state_size)[: credit.modules]
        found.append(Modules(chosen, 1 / p[chosen]))
    return lax.stop_gradient(jax.tree.map(lambda *leaves: jnp.stack(leaves), *found))


def memory(cell: AbstractCell) -> Float[Array, "N"]:
    """Return each module's time constant in steps, 1 / (1 - |a|); a is the state's derivative.

    The derivative is taken at the initial state and at zero input. If a module has several state
    dimensions, the longest time constant counts.
    """
    theta, h = cell.coefficients(), cell.init_state()
    x = jnp.zeros(cell.input_size, jax.tree.leaves(cell)[0].dtype)
    # The states that other modules read are constants, so `own` is only each module's own state.
    slopes = own_derivatives(lambda own: cell.step(theta, own, lax.stop_gradient(h), x), h)
    a = jnp.stack([abs(leaf) for leaf in jax.tree.leaves(slopes)]).max(axis=0)
    # A slope that is not finite must not become a weight.
    a = jnp.where(jnp.isfinite(a), a, 1.0)
    return 1 / jnp.maximum(1 - a, 1 / LONGEST)


def inclusion_probabilities(weights: Float[Array, "N"], number: int) -> Float[Array, "N"]:
    """Return min(1, c * weight), with the c for which the probabilities add up to `number`.

    >>> import jax.numpy as jnp
    >>> inclusion_probabilities(jnp.array([1.0, 1.0, 2.0, 8.0]), 2).tolist()
    [0.25, 0.25, 0.5, 1.0]
    """
    largest_first = -jnp.sort(-weights)
    certain = jnp.arange(number, dtype=weights.dtype)
    # Entry k is c if the k heaviest modules are certain. The right c is the first one with which no
    # further probability exceeds one.
    rest = jnp.cumsum(largest_first[::-1])[::-1][:number]
    c = (number - certain) / rest
    return jnp.minimum(1.0, c[jnp.argmax(c * largest_first[:number] <= 1)] * weights)


def systematic_sample(p: Float[Array, "N"], number: int, key: PRNGKeyArray) -> Int[Array, "M"]:
    """Return `number` different modules, module n among them with probability p_n.

    The probabilities lie on a line, one after another, in random order. The points of a grid of
    step 1 with a random start fall into the intervals of the chosen modules.

    Source: Madow, Annals of Mathematical Statistics, 1949.
    """
    for_order, for_start = jax.random.split(key)
    order = jax.random.permutation(for_order, p.size)
    ends = jnp.cumsum(p[order])
    points = jnp.arange(number, dtype=p.dtype) + jax.random.uniform(for_start, dtype=p.dtype)
    # The last end equals `number` only up to rounding.
    return order[jnp.minimum(jnp.searchsorted(ends, points, side="right"), p.size - 1)]
