"""The gradient of a chunk under a rule."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.parts import wrapped_key
from foretrace._credit.table import advances_in_place
from foretrace._engine.carry import init_carry, is_finite
from foretrace._engine.checks import check_carry, check_chunk, check_labels, check_loss
from foretrace._engine.data import Data, weighted
from foretrace._engine.forward import run
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._types import Array, Bool, Float, Mask, PRNGKeyArray, PyTree

Loss = Callable[[Array, Array], Float[Array, ""]]
"""Loss of one step, `loss(output, y)`."""


AnyNetwork = TypeVar("AnyNetwork", bound=AbstractNetwork)


def gradient(
    network: AnyNetwork,
    carry: Carry | None,
    xs: Float[Array, "*B C I"],
    ys: Array,
    *,
    rule: LearningRule | str,
    loss: Loss,
    mask: Mask | None = None,
    reset: Array | None = None,
    key: PRNGKeyArray | None = None,
    mean_loss: bool = False,
    last: bool = False,
) -> tuple[Float[Array, ""], AnyNetwork, Carry]:
    """Return the loss of a chunk, its gradient under a rule, and the carry after the chunk.

        value = sum_t mask_t * loss(output_t, y_t)

    The gradient of a sequence is the sum over its chunks. It does not depend on their lengths,
    except under `HYBRID` and `BPTT`. With a batch axis in front, value and gradient are means over
    the streams. The sum is exact if the parameters do not change before the sequence ends. After an
    update within the sequence, the sensitivities belong to earlier parameters and are stale, as
    always in real-time recurrent learning.

    Args:
        network: network to differentiate.
        carry: carry from `init_carry` or from the previous call. None starts a sequence. Under a
            rule that samples modules, call `init_carry(key=…)` with a new key for each sequence.
        xs: inputs, (C, I) or (B, C, I).
        ys: targets; their first axes are those of `xs`.
        rule: learning rule or its name.
        loss: loss of one step.
        mask: booleans or weights, (C,) or (B, C), that say whether each step counts.
        reset: booleans of the same shape that say whether each step starts an episode. State,
            sensitivity and errors do not pass from the step before into an episode.
        key: PRNG key for dropout. Default: no dropout.
        mean_loss: whether the loss of each stream is divided by the sum of its weights. Value and
            gradient are then means over the steps that count, and the gradients of the chunks do
            not add up to the gradient of the sequence.
        last: whether each sequence has only one target. ys then has the shape (…) or (B, …), and
            each target is compared with the output of the sequence's last step that counts. Only
            for whole sequences.

    Returns:
        `(value, grads, carry)`; grads has the structure of the network.

    Raises:
        TypeError: the inputs are not a floating-point array, the reset is not boolean, the loss is
            not callable, or the key is no PRNG key.
        ValueError: a shape is wrong, the chunk is empty, xs contains NaN or infinity, a label is
            not one of the classes, the loss does not return one number for each step, or the rule
            is unknown.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> carry = ft.init_carry(network, ft.ONLINE)
    >>> value, grads, carry = ft.gradient(
    ...     network,
    ...     carry,
    ...     jnp.ones((5, 2)),
    ...     jnp.zeros(5, int),
    ...     rule=ft.ONLINE,
    ...     loss=ft.losses.softmax_cross_entropy,
    ... )
    >>> grads.blocks.cell.nu_log.shape
    (2, 4)
    """
    rule = as_rule(rule)
    check_chunk(network, xs, ys, mask, reset, last=last)
    check_loss(loss)
    check_labels(network, loss, xs, ys, mask, last=last)
    if key is not None:
        key = wrapped_key("gradient", key)
    check_carry(network, rule, carry, xs)
    data = Data(xs, ys, mask, reset, key)
    if mean_loss or last:
        data = _jitted_weighted(data, mean_loss=mean_loss, last=last)
    found = jitted_evaluate(network, carry, data, rule=rule, loss=loss)
    assert found.carry is not None
    return found.loss, found.grads, found.carry


class Evaluation(NamedTuple):
    """Results of a chunk.

    Args:
        loss: mean over the streams of `sum_t mask_t * loss_t`.
        grads: gradient of the loss under the rule.
        carry: carry after the chunk; None if it is not returned.
        outputs: outputs of the network.
    """

    loss: Float[Array, ""]
    grads: Any
    carry: Carry | None
    outputs: Float[Array, "*B C O"]


def evaluate(
    network: AbstractNetwork,
    carry: Carry | None,
    data: Data,
    *,
    rule: LearningRule,
    loss: Loss,
    return_carry: bool = True,
    segment: int | None = None,
    advance: bool = True,
) -> Evaluation:
    """Compute the results of `gradient` and the outputs, without checks, inside a larger program.

    If `segment` is given, a whole sequence is differentiated in parts of that many steps. This
    gives the same gradient in the memory of one part (see `segmented_loss`). The carry must then be
    None, and none is returned.

    If sensitivities are updated in place (`advances_in_place`), this happens after the gradient has
    read them. With `advance=False`, they are returned unchanged, and the caller calls
    `advance_in_place`.
    """
    late = (
        return_carry and carry is not None and advances_in_place(network, rule, data.xs.shape[-2])
    )

    # Plain automatic differentiation of the chunk's loss: the rule has stopped the other gradients,
    # and the past is attached.
    def total(network: AbstractNetwork) -> tuple[Array, tuple[Array, Carry | None]]:
        if segment is not None and segment < data.xs.shape[-2]:
            return segmented_loss(network, data, rule=rule, loss=loss, segment=segment)
        return chunk_loss(
            network, carry, data, rule=rule, loss=loss, return_carry=return_carry, accepted=not late
        )

    (value, (outputs, after)), grads = jax.value_and_grad(total, has_aux=True)(network)
    if late and advance:
        assert carry is not None
        after = advance_in_place(network, carry, data, rule=rule, accepted=_true_after(grads))
    return Evaluation(value, grads, after, outputs)


def advance_in_place(
    network: AbstractNetwork,
    carry: Carry,
    data: Data,
    *,
    rule: LearningRule,
    accepted: Bool[Array, ""],
) -> Carry:
    """Return the carry after a chunk, with sensitivities overwritten block by block.

    The chunk is run a second time, which costs little compared with copying such sensitivities.

    Args:
        network: network.
        carry: carry before the chunk.
        data: the chunk.
        rule: learning rule.
        accepted: whether the sensitivities are updated. It must depend on the gradient, so that XLA
            knows that the old sensitivities are not read again; otherwise it copies them.
    """
    after = run(network, carry, data, rule=rule, flatten_batch=True, accepted=accepted)[1]
    assert after is not None
    return after


def advance_late(
    network: AbstractNetwork,
    carry: Carry,
    data: Data,
    *,
    rule: LearningRule,
    accepted: Bool[Array, ""],
) -> tuple[PyTree[Array], Bool[Array, ""]]:
    """Return the sensitivities after a chunk, updated in place, and whether they are finite.

    Sensitivities that overflow are set to zero, because the overwritten ones cannot be restored.

    Args:
        network: network.
        carry: carry before the chunk.
        data: the chunk.
        rule: learning rule.
        accepted: as in `advance_in_place`.
    """
    e = advance_in_place(network, carry, data, rule=rule, accepted=accepted).e
    fine = is_finite(e)
    return jax.tree.map(lambda leaf: jnp.where(fine, leaf, jnp.zeros_like(leaf)), e), fine


def _true_after(tree: PyTree[Array]) -> Bool[Array, ""]:
    """Return True, computed from all leaves of a tree so that XLA cannot simplify it."""
    total = sum(jnp.sum(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(tree))
    # The sign of the sum, shifted out at the right.
    sign = lax.shift_right_logical(lax.bitcast_convert_type(total, jnp.uint32), jnp.uint32(31))
    return lax.shift_right_logical(sign, jnp.uint32(1)) == 0


def chunk_loss(
    network: AbstractNetwork,
    carry: Carry | None,
    data: Data,
    *,
    rule: LearningRule,
    loss: Loss,
    return_carry: bool,
    differentiate_carry: bool = False,
    accepted: bool = True,
) -> tuple[Float[Array, ""], tuple[Float[Array, "*B C O"], Carry | None]]:
    """Return the mean over streams of `sum_t mask_t * loss_t`, the outputs and the carry."""
    out = run(
        network,
        carry,
        data,
        rule=rule,
        return_carry=return_carry,
        differentiate_carry=differentiate_carry,
        flatten_batch=True,
        accepted=accepted,
    )
    outputs, ys, mask = out[0], data.ys, data.mask
    assert ys is not None, "a loss needs targets"
    losses_of = jax.vmap(loss) if outputs.ndim == 2 else jax.vmap(jax.vmap(loss))
    if mask is None:
        return _checked(losses_of(outputs, ys), outputs).sum(axis=-1).mean(), out
    # Not a product, neither forwards nor backwards, because the loss of a step that does not count
    # may be NaN.
    counts = mask.astype(bool)
    losses = _checked(
        losses_of(jnp.where(counts[..., None], outputs, lax.stop_gradient(outputs)), ys), outputs
    )
    losses = jnp.where(counts, losses * mask.astype(losses.dtype), 0.0)
    return losses.sum(axis=-1).mean(), out


def _checked(losses: Array, outputs: Array) -> Array:
    """Return losses after a check that each step has one real number."""
    front = outputs.shape[:-1]
    if jnp.shape(losses) != front or not jnp.issubdtype(losses.dtype, jnp.floating):
        raise ValueError(
            f"loss returned an array {losses.dtype}{list(jnp.shape(losses)[len(front) :])} for one "
            "step, expected one real number; take the mean or the sum over its outputs"
        )
    return losses


def segmented_loss(
    network: AbstractNetwork, data: Data, *, rule: LearningRule, loss: Loss, segment: int
) -> tuple[Float[Array, ""], tuple[Float[Array, "*B C O"], None]]:
    """Return the result of `chunk_loss` for a whole sequence, differentiated in segments.

    The derivative passes from segment to segment through the states at their borders, as the rule
    says. Only these states are stored. The backward pass computes each segment again, which costs
    one more forward pass in total.
    """
    batched, length = data.xs.ndim == 3, data.xs.shape[-2]

    def swapped(tree: PyTree[Array]) -> PyTree[Array]:
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree) if batched else tree

    # One dropout mask for the whole sequence, so its key is not scanned.
    in_time = swapped(data._replace(key=None))
    loss_of = partial(chunk_loss, rule=rule, loss=loss, return_carry=True, differentiate_carry=True)

    @jax.checkpoint
    def part(h: PyTree[Array], now: Data) -> tuple[PyTree[Array], tuple[Array, Array]]:
        value, (outputs, after) = loss_of(
            network, Carry(h, None), swapped(now)._replace(key=data.key)
        )
        assert after is not None
        return after.h, (value, swapped(outputs))

    # Equal segments are scanned, so that one program serves all; the remainder is a separate
    # segment.
    count = length // segment
    split = jax.tree.map(
        lambda leaf: leaf[: count * segment].reshape(count, segment, *leaf.shape[1:]), in_time
    )
    h, (values, outputs) = lax.scan(
        part, init_carry(network, BPTT, data.xs.shape[0] if batched else None).h, split
    )
    value, outputs = values.sum(), outputs.reshape(count * segment, *outputs.shape[2:])
    if length % segment:
        _, (last, rest) = part(h, jax.tree.map(lambda leaf: leaf[count * segment :], in_time))
        value, outputs = value + last, jnp.concatenate([outputs, rest])
    return value, (swapped(outputs), None)


jitted_evaluate = jax.jit(
    evaluate, static_argnames=("rule", "loss", "return_carry", "segment", "advance")
)
"""`evaluate` as a separate program, compiled once for each shape, rule and loss."""

_jitted_weighted = jax.jit(weighted, static_argnames=("mean_loss", "last"))
