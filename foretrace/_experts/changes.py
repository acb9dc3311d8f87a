"""Numbers as two targets: distances from the mean, and from the last known number."""

import jax.numpy as jnp

from foretrace._experts.expert import Features
from foretrace._types import Array, Float

FAR = 50.0
"""Greatest distance from the mean, in standard deviations, from which a change is predicted."""

RANGE = 20.0
"""Greatest distance from the mean or from the last number, in standard deviations."""


def last_number(features: Features) -> Float[Array, ""]:
    """Return the last known number in standard deviations, clipped at `FAR`, or the mean."""
    return jnp.clip(jnp.nan_to_num(features.labels[0]), -FAR, FAR)


def changes_of(label: Float[Array, "O"], features: Features) -> Float[Array, "2*O"]:
    """Return both targets of the numbers at each step ahead, clipped at `RANGE`."""
    return jnp.clip(jnp.concatenate([label, label - last_number(features)]), -RANGE, RANGE)


def numbers_of(changes: Float[Array, "*S 2*O"], features: Features) -> Float[Array, "E O"]:
    """Return the numbers that both targets stand for, of each set of features."""
    size = changes.shape[-1] // 2
    base = jnp.stack([jnp.zeros(()), last_number(features)])
    return (changes.reshape(-1, 2, size) + base[None, :, None]).reshape(-1, size)
