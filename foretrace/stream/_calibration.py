"""Probabilities of a network alone, calibrated: never much worse than the base rates, as sure as it has been right.

    p = (1 - escape) sum_e v_e p_e + escape / O         p_e: base rates; softmax(outputs * t), t in SHARPNESS
    v <- (1 - share) v p_e(y) / p(y) + share / E        Bayes' rule, and a share for what comes to be right again
    escape = k / (n + k)                                k of O classes seen in n labels (Witten and Bell, method C)

A network that learns at every row follows what changes, and is too sure: its logits are softened as much as its own
past asks for. Over n rows, the sum of log losses is at most that of any p_e plus log(E) - n log(1 - share).

Source: Herbster and Warmuth, Tracking the best expert, Machine Learning 32, 1998.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Bool, Float, Int

SHARPNESS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""Factors of the logits."""

SHARE = 1e-3

_SMALLEST = 1e-12


class Calibration(NamedTuple):
    """What is known of the classes and of the network's probabilities.

    Args:
        counts: number of labels of each class.
        weights: logarithm of the weight of the base rates, and of each sharpness.
    """

    counts: Float[Array, "O"]
    weights: Float[Array, "E"]


def new_calibration(num_outputs: int) -> Calibration:
    """Return the calibration before the first label."""
    size = 1 + len(SHARPNESS)
    dtype = jnp.result_type(float)
    return Calibration(jnp.zeros(num_outputs, dtype), jnp.full(size, -np.log(size), dtype))


def calibrated(calibration: Calibration, outputs: Float[Array, "R M"]) -> Float[Array, "R M"]:
    """Return the logarithms of calibrated probabilities, logits in place of those of the network; more outputs stay."""
    probabilities = jnp.exp(calibration.weights) @ _experts(calibration, outputs)
    logits = jnp.log(jnp.maximum(probabilities, _SMALLEST)).astype(outputs.dtype)
    return jnp.concatenate([logits, outputs[:, calibration.counts.size :]], axis=1)


def with_labels(
    calibration: Calibration, outputs: Float[Array, "R M"], ys: Int[Array, "R"], mask: Bool[Array, "R"]
) -> Calibration:
    """Return the calibration behind labels, whose rows had these outputs; the rows count together."""
    truth = jax.nn.one_hot(ys, calibration.counts.size, dtype=calibration.counts.dtype)
    truth = jnp.where(mask[:, None], truth, 0.0)
    of_label = (_experts(calibration, outputs) * truth[:, None]).sum(axis=2)
    gained = jnp.where(mask[:, None], jnp.log(jnp.maximum(of_label, _SMALLEST)), 0.0).sum(axis=0)
    weights = jax.nn.softmax(calibration.weights + gained)
    weights = jnp.log((1 - SHARE) * weights + SHARE / weights.size)
    return Calibration(calibration.counts + truth.sum(axis=0), jnp.where(mask.any(), weights, calibration.weights))


def _experts(calibration: Calibration, outputs: Float[Array, "R M"]) -> Float[Array, "R E O"]:
    """Return the probabilities of the base rates and of each sharpness; before a label, all classes may come."""
    counts = calibration.counts
    seen, total = counts > 0, counts.sum()
    num_seen = seen.sum().astype(counts.dtype)
    escape = jnp.where(seen.all(), 0.0, num_seen / jnp.maximum(total + num_seen, 1.0))
    logits = jnp.nan_to_num(outputs[:, : counts.size].astype(counts.dtype))[:, None]
    logits = logits * np.asarray(SHARPNESS, counts.dtype)[None, :, None]
    by_network = jax.nn.softmax(jnp.where((seen | ~seen.any())[None, None], logits, -jnp.inf), axis=2)
    rates = jnp.where(seen.any(), counts + 0.5 * seen.astype(counts.dtype), 1.0)
    by_rates = jnp.broadcast_to((rates / rates.sum())[None, None], (len(outputs), 1, counts.size))
    return (1 - escape) * jnp.concatenate([by_rates, by_network], axis=1) + escape / counts.size
