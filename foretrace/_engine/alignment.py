"""Cosine and norm ratio of a rule's gradient and the gradient of backpropagation through time."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._cells.abstract import read_by_coefficients
from foretrace._engine.carry import init_carry
from foretrace._engine.checks import check_chunk, check_labels, check_loss
from foretrace._engine.data import Data
from foretrace._engine.gradient import Loss, jitted_evaluate
from foretrace._network import Network
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._types import Array, Mask


class Alignment(NamedTuple):
    """Comparison of a gradient with the gradient of backpropagation through time (BPTT).

    Args:
        cosine: cosine for each parameter, by name: one number for each block, or one float for a
            parameter outside the blocks.
        norm_ratio: norm of the gradient, divided by the norm of BPTT's gradient, in the same form.
        layer_cosine: array (D,), the cosine of each recurrent layer. All parameters that
            `cell.coefficients` reads count as one vector.
        total: cosine of the whole gradient.

    A cosine is NaN if BPTT's gradient is exactly zero, and zero if only the rule's gradient is
    zero.
    """

    cosine: dict[str, Any]
    norm_ratio: dict[str, Any]
    layer_cosine: np.ndarray
    total: float


def alignment(
    network: Network,
    xs: Array,
    ys: Array,
    *,
    rule: LearningRule | str,
    loss: Loss,
    mask: Mask | None = None,
    reset: Array | None = None,
    chunk: int | None = None,
) -> Alignment:
    """Compare a rule's gradient of whole sequences with backpropagation through time.

    Each gradient is divided by its largest entry before its norm is computed, so that tiny
    gradients are compared as precisely as large ones.

    Args:
        network: network to differentiate.
        xs: inputs, (T, I) or (B, T, I).
        ys: targets, with the same axes in front.
        rule: learning rule or its name.
        loss: loss of one step.
        mask: booleans or weights, one for each step, that say whether the step counts.
        reset: booleans, one for each step, that say whether the step starts an episode.
        chunk: number of steps in the chunks in which the rule runs, which matters for HYBRID and
            BPTT. Default: the whole sequence.

    Raises:
        ValueError: as in `gradient`, or the chunk is below 1.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> xs, ys = jnp.ones((6, 2)), jnp.zeros(6, int)
    >>> found = ft.alignment(network, xs, ys, rule=ft.ONLINE, loss=ft.losses.softmax_cross_entropy)
    >>> bool(found.layer_cosine[1] > 0.9999)
    True
    """
    check_chunk(network, xs, ys, mask, reset)
    if not isinstance(network, Network):
        raise TypeError(
            f"alignment(network={type(network).__name__}) must be a foretrace.Network, whose "
            "layers are equal"
        )
    check_loss(loss)
    check_labels(network, loss, xs, ys, mask)
    if chunk is not None and chunk < 1:
        raise ValueError(
            f"alignment(chunk={chunk}) must be at least 1, or None for the whole sequence"
        )
    arguments = (network, xs, ys, mask, reset)
    grads = _whole_gradient(*arguments, rule=as_rule(rule), loss=loss, chunk=chunk)
    exact = _whole_gradient(*arguments, rule=BPTT, loss=loss, chunk=None)
    return compare(network, grads, exact)


def compare(network: Network, grads: Network, exact: Network) -> Alignment:
    """Return the alignment of two gradients of a network."""
    coefficients = _coefficient_names(network)
    cosine: dict[str, Any] = {}
    ratio: dict[str, Any] = {}
    layers: list[tuple[np.ndarray, np.ndarray]] = []
    everything: list[tuple[np.ndarray, np.ndarray]] = []
    for (path, ours), theirs in zip(
        jax.tree.leaves_with_path(grads), jax.tree.leaves(exact), strict=True
    ):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        rows = network.depth if name.startswith("blocks.") else 1
        pair = tuple(np.asarray(g, dtype=np.float64).reshape(rows, -1) for g in (ours, theirs))
        cosine[name], ratio[name] = _cosine(*pair), _ratio(*pair)
        if not name.startswith("blocks."):
            cosine[name], ratio[name] = float(cosine[name][0]), float(ratio[name][0])
        everything.append((pair[0].reshape(1, -1), pair[1].reshape(1, -1)))
        if name in coefficients:
            layers.append((pair[0], pair[1]))
    return Alignment(cosine, ratio, _cosine(*_join(layers)), float(_cosine(*_join(everything))[0]))


def _whole_gradient(
    network: Network,
    xs: Array,
    ys: Array,
    mask: Array | None,
    reset: Array | None,
    *,
    rule: LearningRule,
    loss: Loss,
    chunk: int | None,
) -> Network:
    """Return the gradient of whole sequences, as the sum over their chunks."""
    run = partial(jitted_evaluate, network, rule=rule, loss=loss)
    if chunk is None:
        return run(None, Data(xs, ys, mask, reset), return_carry=False).grads
    axis = jnp.ndim(xs) - 2
    length = jnp.shape(xs)[axis]
    # The gradient of a sequence is the sum over its chunks.
    carry = init_carry(network, rule, jnp.shape(xs)[0] if axis else None)
    total = jax.tree.map(jnp.zeros_like, network)
    for start in range(0, length, chunk):
        part = (slice(None),) * axis + (slice(start, start + chunk),)
        now = jax.tree.map(
            lambda leaf, part=part: jnp.asarray(leaf)[part], Data(xs, ys, mask, reset)
        )
        found = run(carry, now, return_carry=start + chunk < length)
        carry, total = found.carry, jax.tree.map(jnp.add, total, found.grads)
    return total


def _coefficient_names(network: Network) -> set[str]:
    """Return the names of the parameters from which the coefficients are computed."""
    cell = jax.eval_shape(lambda network: network.block(0).cell, network)
    names = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree.leaves_with_path(cell)
    ]
    return {
        f"blocks.cell.{name}"
        for name, read in zip(names, read_by_coefficients(cell), strict=True)
        if read
    }


def _join(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    ours, theirs = zip(*pairs, strict=True)
    return np.concatenate(ours, axis=1), np.concatenate(theirs, axis=1)


def _scaled(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Squares of tiny gradients would underflow, so norms are relative to the largest entry.
    largest = np.abs(g).max(axis=1, keepdims=True)
    return g / np.where(largest == 0, 1, largest), largest[:, 0]


def _cosine(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    (a, _), (b, largest) = _scaled(ours), _scaled(theirs)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    product = np.sum(a * b, axis=1) / np.where(norms == 0, 1, norms)
    return np.where(largest == 0, np.nan, product)


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    (a, ours_largest), (b, theirs_largest) = _scaled(ours), _scaled(theirs)
    scale = ours_largest / np.where(theirs_largest == 0, np.nan, theirs_largest)
    return scale * np.linalg.norm(a, axis=1) / np.maximum(np.linalg.norm(b, axis=1), 1)
