"""The task, network and learner that a configuration describes."""

from typing import NamedTuple

import jax
import optax
from jax.sharding import Mesh

from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import Depth, as_rule
from foretrace.experiment._config import Config
from foretrace.tasks import Task


class TaskAndLearner(NamedTuple):
    """Task and learner of a configuration."""

    task: Task
    learner: Learner


def build(
    config: Config,
    optimizer: optax.GradientTransformation | None = None,
    mesh: Mesh | None = None,
    network: Network | None = None,
) -> TaskAndLearner:
    """Make the task and the learner of a configuration.

    Args:
        config: configuration of a run.
        optimizer: optimiser to use instead of the configuration's.
        mesh: one-dimensional mesh of the devices over which a batch is sharded.
        network: network to use. The learner then does not warn of untrained parameters. Default: a
            network sampled from the seed.

    Raises:
        ValueError: a size, rate or probability is out of range, or a depth is given for a rule
            without sensitivities.
        DataError: the task's data are missing.

    >>> import foretrace as ft
    >>> task, learner = build(Config())
    >>> ft.parameter_count(learner.network)
    268430
    """
    _check(config, scheduled=optimizer is None)
    task, chunked = config.task, config.chunk is not None
    # This reports wrong sizes before anything is written. A task may read and decode its data here.
    jax.eval_shape(lambda: task.batch(config.seed, 0, config.batch_size))
    drawn = network is None
    if network is None:
        sizes = task.input_size, task.output_size
        network = config.network.drawn(*sizes, jax.random.key(config.seed))
    if optimizer is None:
        optimizer = adamw(**config.optimizer.settings(config.steps))
    learner = Learner(
        network,
        rule=config.rule,
        optimizer=optimizer,
        loss=task.loss,
        batch_size=config.batch_size,
        accumulate=chunked,
        whole_sequences=not chunked,
        segment=config.segment,
        mesh=mesh,
        warn=drawn,
    )
    return TaskAndLearner(task, learner)


def _check(config: Config, *, scheduled: bool) -> None:
    """Check the settings that can be checked without the data.

    Raises:
        ValueError: the warm-up is not shorter than the run, or the rule samples modules in a run on
            whole sequences.
    """
    warmup = config.optimizer.warmup_steps
    if scheduled and warmup >= config.steps:
        raise ValueError(
            f"optimizer.warmup_steps={warmup} must be below steps={config.steps}: a run that is so "
            "short needs a shorter warm-up, such as --optimizer.warmup-steps 0"
        )
    credit = as_rule(config.rule).credit
    if config.chunk is None and isinstance(credit, Depth) and credit.modules:
        raise ValueError(
            f"rule={config.rule!r}: modules are for runs in chunks, because whole sequences carry "
            "nothing; set chunk, or leave modules out"
        )
