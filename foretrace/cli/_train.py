"""The commands `foretrace train`, `rl` and `align`."""

import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any

from foretrace import experiment
from foretrace._distributed.processes import is_first, join, loss_explained
from foretrace._learner.state import UntrainedParameters
from foretrace._network import Network
from foretrace._rule import RULES, rule_text
from foretrace._runs.config_json import differences
from foretrace._runs.directory import default_path
from foretrace._runs.follow import Result
from foretrace._runs.signals import STOPPED
from foretrace.cli._kinds import again, report, show, stopped
from foretrace.cli._options import RL, Align, Train
from foretrace.cli._recorded import network_in
from foretrace.experiment._config import Config, task_name
from foretrace.experiment._program import align
from foretrace.experiment._report import alignment_tables
from foretrace.rl._config import task_name as environment_name
from foretrace.rl._run import train as train_agent
from foretrace.tasks.own import OwnSequences


def _train(command: Train) -> int:
    run_dir = command.run_dir or default_path(task_name(command.config.task))
    if command.cluster:
        join()
    with loss_explained():
        result = experiment.train(
            pinned(command.config, resume=command.resume),
            run_dir,
            resume=command.resume,
            devices=command.devices,
        )
    if not is_first():
        return 0 if result.scores is not None else STOPPED
    return _ended(command, result, devices=command.devices, cluster=command.cluster)


def _rl(command: RL) -> int:
    run_dir = command.run_dir or default_path(environment_name(command.config.environment))
    return _ended(command, train_agent(command.config, run_dir, resume=command.resume))


def _ended(command: Train | RL, result: Result, **given: Any) -> int:
    """Print the report of a run, or the command that continues it, and return the exit code."""
    run_dir = result.run.path
    if result.scores is not None:
        return report(run_dir, draws=False)
    place = f"after step {result.step} of {command.config.steps}; the state is saved"
    return stopped(place, again(run_dir, **given))


def _align(command: Align) -> int:
    settings = {name: getattr(command, name) for name in ("network", "rule", "batch_size", "seed")}
    # A network that decodes a mean over time cannot run in chunks.
    chunk = None if command.network.cumulative_mean else command.chunk
    config = pinned(Config(task=command.data, chunk=chunk, **settings))
    with warnings.catch_warnings():
        # The table shows the parameters that a rule leaves untrained.
        warnings.simplefilter("ignore", UntrainedParameters)
        if command.run_dir is None:
            network = experiment.build(config).learner.network
        else:
            network = _network_in(command.run_dir, config)
    found = {}
    for rule in dict.fromkeys((*map(rule_text, RULES), config.rule)):
        print(f"aligning {rule}", file=sys.stderr)
        found[rule] = align(config, network, rule)
    for grid in alignment_tables(found, config.rule, config):
        show(grid)
    return 0


def _network_in(run_dir: Path, asked: Config) -> Network:
    """Return the network of a run's checkpoint."""
    config = experiment.read_config(run_dir)
    changed = [
        *differences(config.task, asked.task, "task"),
        *differences(config.network, asked.network, "network"),
    ]
    if changed:
        raise ValueError(
            f"{run_dir} holds a network of another size or task; recorded and asked for are "
            f"{'; '.join(changed)}; leave these options out"
        )
    return network_in(run_dir, config)


def pinned(config: Config, *, resume: bool = False) -> Config:
    """Return a configuration with the full path and the digest of its data file.

    Args:
        config: configuration of runs.
        resume: whether the run exists already. If it has recorded no digest, it gets none.
    """
    own = config.task
    if not isinstance(own, OwnSequences) or (resume and own.digest is None):
        return config
    return dataclasses.replace(config, task=own.pinned())
