"""Compiled programs of an experiment: a training step with measurements, and an evaluation."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._distributed.devices import Devices, agreeing
from foretrace._engine.alignment import Alignment, alignment, compare
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._engine.gradient import jitted_evaluate
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._learner.state import Info, LearnerState
from foretrace._network import Network
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._runs.programs import described, program
from foretrace._types import Array, Float
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.experiment._precision import matrix_products
from foretrace.experiment._scores import _Tally, _tally
from foretrace.tasks import Batch, EvaluationSplit
from foretrace.tasks._drawn import AbstractDrawnTask


class At(NamedTuple):
    """Values of a run that are arguments of the compiled training step.

    Args:
        step: number of finished steps.
        seed: seed of the run.
        rate: largest learning rate of the run.
    """

    step: Any
    seed: Any
    rate: Any


@lru_cache(maxsize=2)
def programs(
    config: Config, devices: Devices
) -> tuple[Callable[..., tuple[LearnerState, Array]], Callable[..., Batch], Callable[..., _Tally]]:
    """Return the programs of runs that differ only in seed, rate and records.

    They are compiled once per process.

    Args:
        config: configuration after `shared`.
        devices: devices over which a batch is sharded.

    Returns:
        The functions `(state, at) -> (state, row of StepMetrics)`, `(split, seed, index) -> batch`
        for evaluations, and `tally_batch` for this configuration.
    """
    optimizer = adamw(**config.optimizer.settings(config.steps))

    def step(state: LearnerState, at: At) -> tuple[LearnerState, Array]:
        def update(*arguments: Any) -> tuple[Any, Any]:
            updates, after = optimizer.update(*arguments)
            return jax.tree.map(lambda leaf: at.rate * leaf, updates), after

        scaled = optax.GradientTransformation(optimizer.init, update)
        learner = build(config, scaled, devices.mesh, state.network).learner
        return learn(config, learner, state, at.step, at.seed, devices.shard)

    # The same call as in `align`, so that one program draws the batches of both.
    draw = drawing(config) if devices.mesh is None else drawing(config, devices.shard)
    of, tally = _text(config), partial(tally_batch, config)
    learning = agreeing(step) if devices.several else step
    return (
        devices.compile("train", learning, of, form=lambda state, at: (state, 0), changes=True),
        draw,
        devices.compile("tally", tally, of, form=lambda network, total, batch: total),
    )


def _text(config: Config) -> str | None:
    """Return the text for `program`, or None if a batch is read on the host."""
    return described(config) if isinstance(config.task, AbstractDrawnTask) else None


def _unchanged(batch: Batch) -> Batch:
    return batch


@lru_cache(maxsize=4)
def drawing(
    config: Config, shard: Callable[[Batch], Batch] = _unchanged
) -> Callable[[EvaluationSplit, Any, Any], Batch]:
    """Return the function `(split, seed, index) -> batch` for evaluation batches.

    The function is compiled separately, so that programs that use a batch are compiled once for
    both splits.
    """

    def draw(split: EvaluationSplit, seed: Array, index: Array) -> Batch:
        return shard(config.task.evaluation(split, seed, index, config.batch_size))

    return jax.jit(draw, static_argnums=0)


def shared(config: Config) -> Config:
    """Return the part of a configuration on which the compiled programs depend."""
    optimizer = dataclasses.replace(config.optimizer, learning_rate=1.0)
    return dataclasses.replace(config.unobserved(), seed=0, optimizer=optimizer)


def learn(
    config: Config,
    learner: Learner,
    state: LearnerState,
    step: Array,
    seed: int | Array,
    shard: Callable[[Batch], Batch] = _unchanged,
) -> tuple[LearnerState, Float[Array, "M"]]:
    """Draw the batch of a step and learn from it; return the `StepMetrics` as one array."""
    task = config.task
    batch = shard(task.batch(seed, step, config.batch_size))
    with matrix_products(config.matmul_precision):
        if config.chunk is None:
            state, info = learner.step(state, batch.xs, batch.ys, mask=batch.mask)
        else:
            state, info = _learn_in_chunks(config.chunk, learner, state, batch)
    right = _tally(task, info.outputs, batch).scores().accuracy
    # In the order of the fields of `StepMetrics`.
    row = info.loss, right, info.gradient_norm, info.accepted
    return state, jnp.stack([jnp.asarray(value, info.loss.dtype) for value in row])


def _learn_in_chunks(
    chunk: int, learner: Learner, state: LearnerState, batch: Batch
) -> tuple[LearnerState, Info]:
    """Scan over equal chunks and sum their gradients; update with the last chunk."""
    size, length = batch.mask.shape
    whole = (length - 1) // chunk

    def fold(leaf: Array) -> Array:
        return jnp.moveaxis(
            leaf[:, : whole * chunk].reshape(size, whole, chunk, *leaf.shape[2:]), 1, 0
        )

    def one(state: LearnerState, part: Batch) -> tuple[LearnerState, Any]:
        return learner.step(state, part.xs, part.ys, mask=part.mask)

    after, infos = lax.scan(one, state, jax.tree.map(fold, batch))
    xs, ys, mask = jax.tree.map(lambda leaf: leaf[:, whole * chunk :], batch)
    after, last = learner.step(after, xs, ys, mask=mask, end=True)
    # The end of a sequence resets the carry to its initial value. Written in this way, no device
    # needs the carry of another device.
    after = after._replace(carry=learner.fresh_carry(after.network, after.key))
    state = state._replace(carry=learner.fresh_carry(state.network, state.key))
    accepted = infos.accepted.all() & last.accepted
    # If one chunk is refused, the sequence has no gradient.
    before = state._replace(skipped=state.skipped + 1)
    state = optax.tree.where(accepted, after, before)
    first = jnp.moveaxis(infos.outputs, 0, 1).reshape(size, whole * chunk, last.outputs.shape[-1])
    return state, last._replace(
        loss=infos.loss.sum() + last.loss,
        outputs=jnp.concatenate([first, last.outputs], axis=1),
        gradient_norm=jnp.append(infos.gradient_norm, last.gradient_norm).max(),
        accepted=accepted,
    )


def empty_tally() -> _Tally:
    """Return sums over zero sequences."""
    return _Tally(*[jnp.zeros(())] * 4)


def tally_batch(
    config: Config,
    network: Network,
    total: _Tally,
    batch: Batch,
) -> _Tally:
    """Return the sums over a split's sequences after one more batch."""
    with matrix_products(config.matmul_precision):
        outputs, _ = run(network, None, Data(batch.xs), rule=BPTT, return_carry=False)
    return jax.tree.map(
        lambda old, new: old + new.astype(old.dtype), total, _tally(config.task, outputs, batch)
    )


def evaluation_batches(config: Config, split: EvaluationSplit, sequences: int) -> int:
    """Return the number of batches for a number of sequences, at most the whole split."""
    wanted = -(-sequences // config.batch_size)
    most = config.task.evaluation_steps(split, config.batch_size)
    return wanted if most is None else min(wanted, most)


def align(config: Config, network: Network, rule: LearningRule | str) -> Alignment:
    """Return the alignment of a rule's gradient with BPTT on the first validation batch."""
    task, same = config.task, shared(config)
    batch = drawing(same)("validation", config.seed, np.int32(0))
    if config.chunk is None:
        each = (dataclasses.replace(same, rule=str(as_rule(one))) for one in (rule, BPTT))
        return compare(network, *(_gradient(one)(network, batch) for one in each))
    xs, ys, mask = batch
    return alignment(network, xs, ys, rule=rule, loss=task.loss, mask=mask, chunk=config.chunk)


@lru_cache(maxsize=4)
def _gradient(config: Config) -> Callable[[Network, Batch], Network]:
    """Return the gradient on whole sequences under the configuration's rule, as a program."""
    options = {"rule": as_rule(config.rule), "loss": config.task.loss, "return_carry": False}

    def whole(network: Network, batch: Batch) -> Network:
        return jitted_evaluate(network, None, Data(*batch), **options).grads

    return program("gradient", whole, _text(config), form=lambda network, _: network)
