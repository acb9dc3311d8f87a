"""The task, network and learner that a configuration describes."""

import dataclasses
from typing import NamedTuple

import jax
import optax
from jax.sharding import Mesh

from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import LearningRule, as_rule
from foretrace._types import PRNGKeyArray
from foretrace.experiment._config import Config
from foretrace.tasks import Task


class TaskAndLearner(NamedTuple):
    """The task and the learner of a configuration."""

    task: Task
    learner: Learner


def build(
    config: Config, optimizer: optax.GradientTransformation | None = None, mesh: Mesh | None = None
) -> TaskAndLearner:
    """Make the task and the learner of a configuration.

    Args:
        config: configuration of a run.
        optimizer: optimiser that replaces the configuration's.
        mesh: one-dimensional mesh of the devices that share a batch.

    Raises:
        ValueError: sizes, rates or probabilities out of range, or a rule without credit in depth.
        DataError: the task's data are missing.

    >>> import foretrace as ft
    >>> task, learner = build(Config())
    >>> ft.parameter_count(learner.network)
    268430
    """
    task = config.task
    # Says what is wrong with the sizes before anything is written.
    jax.eval_shape(lambda: task.batch(config.seed, 0, config.batch_size))
    warmup = config.optimizer.warmup_steps
    if optimizer is None and warmup >= config.steps:
        raise ValueError(
            f"optimizer.warmup_steps={warmup} must be below steps={config.steps}: a run that is so short needs a "
            "shorter warm-up, such as --optimizer.warmup-steps 0"
        )
    chunked = config.chunk is not None
    rule = rule_of(config)
    if config.credit_modules and not chunked:
        raise ValueError(
            f"credit_modules={config.credit_modules} is for runs in chunks, because whole sequences "
            "carry nothing; set chunk, or 0 here"
        )
    schedule = {**dataclasses.asdict(config.optimizer), "steps": config.steps}
    learner = Learner(
        initial_network(config, task, jax.random.key(config.seed)),
        rule=rule,
        optimizer=adamw(**schedule) if optimizer is None else optimizer,
        loss=task.loss,
        batch_size=config.batch_size,
        accumulate=chunked,
        whole_sequences=not chunked,
        segment=config.segment,
        mesh=mesh,
    )
    return TaskAndLearner(task, learner)


def rule_of(config: Config) -> LearningRule:
    """Return the rule of a configuration.

    Raises:
        ValueError: a rule without credit in depth; groups or modules without depth.
    """
    rule = as_rule(config.rule).with_depth(config.credit_depth).with_groups(config.credit_groups)
    return rule.with_modules(config.credit_modules, by_memory=config.credit_by_memory)


def initial_network(config: Config, task: Task, key: PRNGKeyArray) -> Network:
    """Draw the network of a configuration; may be traced."""
    net = config.network
    return Network(
        task.input_size,
        task.output_size,
        model_size=net.model_size,
        depth=net.depth,
        cell=net.cell.factory(),
        glu=net.glu,
        norm=net.norm,
        norm_eps=net.norm_eps,
        dropout=net.dropout,
        readout_size=net.readout_size,
        cumulative_mean=net.cumulative_mean,
        key=key,
    )
