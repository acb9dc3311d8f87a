"""Columns: measured are memory (98 to 9.7 MiB) and cosine (4 equal to all within .003); missing: a training run's gain.

Under `Depth(columns=K)` the sensitivities of recurrent layers to the matrices below are carried for K of n columns
only. What is carried is exact. In the gradient these columns count n / K times as much. Columns are sampled uniformly
for each sequence, so the gradient is unbiased:

    E[(n / K) * sum_{k sampled} g_k] = sum_k g_k
"""

from typing import Any

import jax

from foretrace._types import Array, Int, PRNGKeyArray

Columns = list[Int[Array, "K"] | None]
"""For each leaf of a group, which entries of its last axis are carried; None for all."""


def sample_columns(group: Any, key: PRNGKeyArray, number: int) -> Columns | None:
    """Return which columns of each matrix of a group are carried; vectors and narrower matrices are carried whole."""
    if not number:
        return None

    def sample(i: int, leaf: Any) -> Array | None:
        if leaf.ndim < 2 or leaf.shape[-1] <= number:
            return None
        return jax.random.permutation(jax.random.fold_in(key, i), leaf.shape[-1])[:number]

    return [sample(i, leaf) for i, leaf in enumerate(jax.tree.leaves(group))]


def select_columns(group: Any, columns: Columns | None, rescale: bool = False) -> Any:
    """Return a group with the given columns only.

    Args:
        group: tree of parameters, or of cotangents of these.
        columns: columns of each leaf; None for all of the group.
        rescale: multiply by n / K, so that the selection is an unbiased estimate of all columns.
    """
    if columns is None:
        return group
    leaves, structure = jax.tree.flatten(group)

    def select(leaf: Array, chosen: Array | None) -> Array:
        if chosen is None:
            return leaf
        return leaf[..., chosen] * (leaf.shape[-1] / chosen.size if rescale else 1.0)

    return structure.unflatten([select(*pair) for pair in zip(leaves, columns, strict=True)])
