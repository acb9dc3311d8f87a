"""The one gradient function: rule and chunk length say which gradient, and how much memory it takes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._engine.carry import Carry, init_carry
from foretrace._engine.checks import check_carry, check_chunk
from foretrace._engine.forward import Outcome, run
from foretrace._network import Network
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._types import Array, Float, Keys, Mask, PRNGKeyArray, PyTree

Loss = Callable[[Array, Array], Float[Array, ""]]
"""Loss of one step, `loss(output, y)`."""


def gradient(
    network: Network,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    ys: Array,
    *,
    rule: LearningRule | str,
    loss: Loss,
    mask: Mask | None = None,
    reset: Array | None = None,
    key: PRNGKeyArray | None = None,
) -> tuple[Float[Array, ""], Network, Carry]:
    """Return the loss of a chunk, its gradient under a rule, and the carry after the chunk.

        value = sum_t mask_t * loss(output_t, y_t)

    The gradient of a sequence is the sum over its chunks, whatever their lengths (for `HYBRID`, `BPTT` and `UORO` the
    chunk is part of the rule). With a batch axis in front, value and gradient are the means over the streams. They are
    exact if the parameters stay as they are until the sequence ends; after an update in between, sensitivities
    belong to the parameters of the past and are stale, as always in real-time recurrent learning.

    Args:
        network: the network.
        carry: what came before, from `init_carry` or the previous call; None starts a sequence.
        xs: inputs, (C, I) or (B, C, I).
        ys: targets with the same axes in front.
        rule: a rule or its name.
        loss: loss of one step.
        mask: which steps count, (C,) or (B, C): booleans, or weights.
        reset: steps that start an episode, same shape, booleans: state, sensitivity and errors are cut before them.
        key: PRNG key for dropout; none without it.

    Returns:
        `(value, grads, carry)`; grads has the structure of the network.

    Raises:
        TypeError: inputs that are not floating point, a reset that is not boolean.
        ValueError: wrong shapes, an empty chunk, NaN or infinity in xs, an unknown rule.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> carry = ft.init_carry(network, ft.ONLINE)
    >>> value, grads, carry = ft.gradient(
    ...     network, carry, jnp.ones((5, 2)), jnp.zeros(5, int), rule=ft.ONLINE, loss=ft.losses.softmax_cross_entropy
    ... )
    >>> grads.blocks.cell.nu_log.shape
    (2, 4)
    """
    rule = as_rule(rule)
    check_chunk(network, xs, ys, mask, reset)
    check_carry(network, rule, carry, xs)
    out = jitted_evaluate(network, carry, xs, ys, mask, reset, key, rule=rule, loss=loss)
    return out.loss, out.grads, out.carry


class Evaluation(NamedTuple):
    """Loss, gradient, carry and outputs of one chunk."""

    loss: Float[Array, ""]
    grads: Network
    carry: Carry | None
    outputs: Float[Array, "*B C O"]


def evaluate(
    network: Network,
    carry: Carry | None,
    xs: Array,
    ys: Array,
    mask: Mask | None = None,
    reset: Array | None = None,
    key: Keys | None = None,
    *,
    rule: LearningRule,
    loss: Loss,
    keep_carry: bool = True,
    segment: int | None = None,
) -> Evaluation:
    """Compute what `gradient` returns, and the outputs; no checks, to be traced inside a larger program.

    With `segment`, a whole sequence (carry None, none kept) goes by parts of so many steps: the same gradient in the
    memory of one part, see `segmented_loss`.
    """
    data = (xs, ys, mask, reset, key)

    def total(network: Network) -> tuple[Array, Outcome]:
        if segment is not None and segment < xs.shape[-2]:
            return segmented_loss(network, *data, rule=rule, loss=loss, segment=segment)
        return chunk_loss(network, carry, *data, rule=rule, loss=loss, keep_carry=keep_carry)

    (value, out), grads = jax.value_and_grad(total, has_aux=True)(network)
    return Evaluation(value, grads, out.carry, out.outputs)


def chunk_loss(
    network: Network,
    carry: Carry | None,
    xs: Array,
    ys: Array,
    mask: Mask | None,
    reset: Array | None,
    key: Keys | None,
    *,
    rule: LearningRule,
    loss: Loss,
    keep_carry: bool,
    through: bool = False,
) -> tuple[Float[Array, ""], Outcome]:
    """Return the mean over streams of `sum_t mask_t * loss_t`, and what the run gave."""
    options: dict[str, Any] = {"reset": reset, "key": key, "keep_carry": keep_carry, "through": through, "merged": True}
    out = run(network, carry, xs, rule=rule, **options)
    outputs = out.outputs
    losses_of = jax.vmap(loss) if outputs.ndim == 2 else jax.vmap(jax.vmap(loss))
    if mask is None:
        return losses_of(outputs, ys).sum(axis=-1).mean(), out
    # Not a product, neither forth nor back: the loss of a step that does not count may be anything, even NaN.
    counts = mask.astype(bool)
    losses = losses_of(jnp.where(counts[..., None], outputs, lax.stop_gradient(outputs)), ys)
    losses = jnp.where(counts, losses * mask.astype(losses.dtype), 0.0)
    return losses.sum(axis=-1).mean(), out


def segmented_loss(
    network: Network,
    xs: Array,
    ys: Array,
    mask: Mask | None,
    reset: Array | None,
    key: Keys | None,
    *,
    rule: LearningRule,
    loss: Loss,
    segment: int,
) -> tuple[Float[Array, ""], Outcome]:
    """Return what `chunk_loss` returns for a whole sequence, differentiated part by part.

    The derivative passes from part to part by the states at their borders, as the rule says. Only these are kept;
    the backward pass computes each part again, for one forward pass more in all.
    """
    batched = xs.ndim == 3
    data = (xs, ys, mask, reset)
    in_time = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), data) if batched else data

    @jax.checkpoint
    def part(h: PyTree[Array], now: tuple) -> tuple[PyTree[Array], tuple[Array, Array]]:
        xs, ys, mask, reset = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), now) if batched else now
        carry = Carry(h, None)
        value, out = chunk_loss(
            network, carry, xs, ys, mask, reset, key, rule=rule, loss=loss, keep_carry=True, through=True
        )
        assert out.carry is not None
        return out.carry.h, (value, jnp.swapaxes(out.outputs, 0, 1) if batched else out.outputs)

    count = xs.shape[-2] // segment
    split = jax.tree.map(lambda leaf: leaf[: count * segment].reshape(count, segment, *leaf.shape[1:]), in_time)
    h, (values, outputs) = lax.scan(part, init_carry(network, BPTT, xs.shape[0] if batched else None).h, split)
    value, outputs = values.sum(), outputs.reshape(count * segment, *outputs.shape[2:])
    if xs.shape[-2] % segment:
        _, (last, rest) = part(h, jax.tree.map(lambda leaf: leaf[count * segment :], in_time))
        value, outputs = value + last, jnp.concatenate([outputs, rest])
    return value, Outcome(jnp.swapaxes(outputs, 0, 1) if batched else outputs, None)


jitted_evaluate = jax.jit(evaluate, static_argnames=("rule", "loss", "keep_carry", "segment"))
"""`evaluate` as a program of its own: one compilation for each shape, rule and loss."""
