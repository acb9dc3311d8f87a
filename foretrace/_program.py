"""What an experiment compiles: one step of training with its data and its measurements, and an evaluation."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._alignment import Alignment, alignment
from foretrace._classify import mean_logit_hits
from foretrace._config import Config
from foretrace._fit import fit_predictor
from foretrace._forward import forward
from foretrace._learner import Learner
from foretrace._learner_state import LearnerState
from foretrace._loss import accuracy
from foretrace._network import Network
from foretrace._precision import matrix_products
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, Float
from foretrace.tasks import Batch, EvaluationSplit, Task


class Scores(NamedTuple):
    """Results on sequences.

    Args:
        loss: the task's loss.
        accuracy: share of outputs that are right where something is asked, mean over sequences; for a task that
            classifies sequences, share of these classified rightly by the mean of their logits.
        sequences: share of sequences in which all outputs are right, or the class is.
    """

    loss: Float[Array, ""] | float
    accuracy: Float[Array, ""] | float
    sequences: Float[Array, ""] | float


class _Tally(NamedTuple):
    """Sums over sequences, so that batches that are not equally full can be added up."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    sequences: Float[Array, ""]
    rows: Float[Array, ""]

    def scores(self) -> Scores:
        """Return the means."""
        return Scores(self.loss / self.rows, self.accuracy / self.rows, self.sequences / self.rows)


def learn(
    config: Config, task: Task, learner: Learner, state: LearnerState, step: Array, seed: int | Array
) -> tuple[LearnerState, Float[Array, "4"]]:
    """Draw the batch of a step and learn from it; return loss, accuracy, gradient norm and whether it was accepted.

    In chunks, the norm is the largest of any chunk's gradient.
    """
    batch = task.batch(seed, step, config.batch_size)
    with matrix_products(config.matmul_precision):
        if config.chunk is None:
            state, info = learner.step(state, batch.xs, batch.ys, mask=batch.mask)
            loss, outputs, norm, accepted = info.loss, info.outputs, info.gradient_norm, info.accepted
        else:
            state, loss, outputs, norm, accepted = _learn_in_chunks(config.chunk, learner, state, batch)
    right = jnp.asarray(_tally(task, outputs, batch).scores().accuracy, loss.dtype)
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
    # The end of a sequence leaves the carry that it began with; said in this way, no device asks others for theirs.
    after, state = after._replace(carry=learner.fresh_carry()), state._replace(carry=learner.fresh_carry())
    accepted = infos.accepted.all() & last.accepted
    # Without one of its chunks a sequence has no gradient.
    before = state._replace(skipped=state.skipped + 1)
    state = jax.tree.map(partial(jnp.where, accepted), after, before)
    first = jnp.moveaxis(infos.outputs, 0, 1).reshape(size, whole * chunk, -1)
    outputs = jnp.concatenate([first, last.outputs], axis=1)
    norm = jnp.append(infos.gradient_norm, last.gradient_norm).max()
    return state, infos.loss.sum() + last.loss, outputs, norm, accepted


def evaluate(
    config: Config,
    task: Task,
    network: Network,
    batches: Array,
    seed: int | Array,
    split: EvaluationSplit = "validation",
) -> Scores:
    """Return the mean scores over the sequences of the first batches of a split."""

    def add(index: Array, total: _Tally) -> _Tally:
        batch = task.evaluation(split, seed, index, config.batch_size)
        with matrix_products(config.matmul_precision):
            outputs, _ = forward(network, None, batch.xs, keep_carry=False)
        return jax.tree.map(lambda old, new: old + new.astype(old.dtype), total, _tally(task, outputs, batch))

    zero = jnp.zeros(())
    return lax.fori_loop(0, batches, add, _Tally(zero, zero, zero, zero)).scores()


def evaluation_batches(config: Config, task: Task, split: EvaluationSplit, sequences: int) -> int:
    """Return the number of batches for a number of sequences, or for all if the split has fewer."""
    wanted = -(-sequences // config.batch_size)
    most = task.evaluation_steps(split, config.batch_size)
    return wanted if most is None else min(wanted, most)


def _tally(task: Task, outputs: Float[Array, "B T O"], batch: Batch) -> _Tally:
    asked = batch.mask > 0
    counts = asked.any(axis=1)
    losses = jax.vmap(jax.vmap(task.loss))(outputs, batch.ys)
    losses = jnp.where(asked, losses * batch.mask, 0).sum(axis=1)
    if task.labels == "sequence":
        right = whole = mean_logit_hits(outputs, batch.ys, batch.mask).right.astype(losses.dtype)
    else:
        hits = jax.vmap(jax.vmap(accuracy))(outputs, batch.ys.astype(int))
        steps = jnp.maximum(asked.sum(axis=1), 1).astype(hits.dtype)
        right = jnp.where(asked, hits, 0).sum(axis=1) / steps
        whole = jnp.where(asked, hits == 1, True).all(axis=1).astype(losses.dtype)
    # All of one type: between devices, these sums then travel together, with the gradient.
    return _Tally(*(jnp.where(counts, values, 0).sum() for values in (losses, right, whole, jnp.ones_like(losses))))


def align(config: Config, task: Task, network: Network, rule: LearningRule | str) -> Alignment:
    """Return the alignment of a rule's gradient on the first validation batch with backpropagation through time.

    If the rule has errors predicted, by what is fitted to the second one.
    """
    draw = jax.jit(lambda index: task.evaluation("validation", config.seed, index, config.batch_size))
    xs, ys, mask = draw(0)
    predictor = None
    if as_rule(rule).predicted:
        other = draw(1)
        # As the learner does: each batch is gone through once.
        predictor = fit_predictor(network, other.xs, other.ys, rule=rule, loss=task.loss, mask=other.mask, passes=1)
    options: dict[str, Any] = {"rule": rule, "loss": task.loss, "mask": mask, "chunk": config.chunk}
    return alignment(network, xs, ys, predictor=predictor, **options)
