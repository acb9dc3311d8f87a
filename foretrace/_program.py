"""What an experiment compiles: one step of training with its data and its measurements, and an evaluation."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._alignment import Alignment, alignment
from foretrace._config import Config
from foretrace._forward import forward
from foretrace._learner import Learner, LearnerState
from foretrace._loss import accuracy
from foretrace._network import Network
from foretrace._types import Array, Float
from foretrace.tasks import Batch, Task


class Scores(NamedTuple):
    """Results on sequences.

    Args:
        loss: the task's loss.
        accuracy: share of outputs that are right, where something is asked.
        sequences: share of sequences in which all of them are.
    """

    loss: Float[Array, ""] | float
    accuracy: Float[Array, ""] | float
    sequences: Float[Array, ""] | float


def learn(
    config: Config, task: Task, learner: Learner, state: LearnerState, step: Array
) -> tuple[LearnerState, Float[Array, "4"]]:
    """Draw the batch of a step and learn from it; return loss, accuracy, gradient norm and whether it was accepted.

    In chunks, the norm is the largest of any chunk's gradient.
    """
    batch = task.batch(config.seed, step, config.batch_size)
    if config.chunk is None:
        state, info = learner.step(state, batch.xs, batch.ys, mask=batch.mask)
        loss, outputs, norm, accepted = info.loss, info.outputs, info.gradient_norm, info.accepted
    else:
        state, loss, outputs, norm, accepted = _learn_in_chunks(config.chunk, learner, state, batch)
    right = scores_of(outputs, batch, loss).accuracy
    return state, jnp.stack([loss, right, norm, accepted.astype(loss.dtype)])


def _learn_in_chunks(
    chunk: int, learner: Learner, state: LearnerState, batch: Batch
) -> tuple[LearnerState, Array, Array, Array, Array]:
    """Accumulate over equal chunks in a scan, and update with the rest, which has one chunk at most."""
    size, length = batch.mask.shape
    whole = (length - 1) // chunk

    def fold(leaf: Array) -> Array:
        return jnp.moveaxis(leaf[:, : whole * chunk].reshape(size, whole, chunk, *leaf.shape[2:]), 1, 0)

    def one(state: LearnerState, part: Batch) -> tuple[LearnerState, Any]:
        return learner.step(state, part.xs, part.ys, mask=part.mask)

    after, infos = lax.scan(one, state, jax.tree.map(fold, batch))
    xs, ys, mask = jax.tree.map(lambda leaf: leaf[:, whole * chunk :], batch)
    after, last = learner.step(after, xs, ys, mask=mask, end=True)
    accepted = infos.accepted.all() & last.accepted
    # Without one of its chunks a sequence has no gradient.
    before = state._replace(skipped=state.skipped + 1)
    state = jax.tree.map(partial(jnp.where, accepted), after, before)
    first = jnp.moveaxis(infos.outputs, 0, 1).reshape(size, whole * chunk, -1)
    outputs = jnp.concatenate([first, last.outputs], axis=1)
    norm = jnp.append(infos.gradient_norm, last.gradient_norm).max()
    return state, infos.loss.sum() + last.loss, outputs, norm, accepted


def evaluate(config: Config, task: Task, network: Network, batches: Array) -> Scores:
    """Return the mean scores over the first validation batches."""

    def add(index: Array, total: Scores) -> Scores:
        batch = task.validation(config.seed, index, config.batch_size)
        outputs, _ = forward(network, None, batch.xs, keep_carry=False)
        losses = jax.vmap(jax.vmap(task.loss))(outputs, batch.ys)
        loss = jnp.where(batch.mask > 0, losses * batch.mask, 0).sum(axis=1).mean()
        return jax.tree.map(lambda old, new: old + new.astype(old.dtype), total, scores_of(outputs, batch, loss))

    zero = jnp.zeros(())
    total = lax.fori_loop(0, batches, add, Scores(zero, zero, zero))
    return jax.tree.map(lambda value: value / batches.astype(value.dtype), total)


def scores_of(outputs: Float[Array, "B T O"], batch: Batch, loss: Float[Array, ""]) -> Scores:
    """Return the scores of outputs, counted where the mask is not zero."""
    right = jax.vmap(jax.vmap(accuracy))(outputs, batch.ys.astype(int))
    asked = batch.mask > 0
    whole = jnp.where(asked, right == 1, True).all(axis=1)
    return Scores(loss, jnp.mean(right, where=asked), jnp.mean(whole, dtype=loss.dtype))


def align(config: Config, task: Task, network: Network, rule: str) -> Alignment:
    """Return the alignment of a rule's gradient on the first validation batch with backpropagation through time."""
    xs, ys, mask = jax.jit(lambda: task.validation(config.seed, 0, config.batch_size))()
    return alignment(network, xs, ys, rule=rule, loss=task.loss, mask=mask, chunk=config.chunk)
