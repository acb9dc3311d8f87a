"""The command `foretrace export`."""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from foretrace import experiment
from foretrace._export.export import Exported, export, export_network
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._learner.state import UntrainedParameters
from foretrace._native.compiler import code_size, find_compiler
from foretrace._network import Network
from foretrace._runs.directory import RunError
from foretrace.cli._kinds import known_in
from foretrace.cli._options import Export
from foretrace.cli._recorded import network_in
from foretrace.experiment._config import Config
from foretrace.rl._config import RLConfig
from foretrace.rl._learning_step import inputs_of
from foretrace.rl._run import agent_of
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.exported import export_run
from foretrace.tasks.own import OwnSequences


def write_graph(command: Export) -> int:
    """Write the files of an export, and print their names and sizes."""
    # A wrong CC raises an error before a file is written.
    compiler = find_compiler(required=False) if command.format == "c" else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedParameters)
        files = _writer(command.run_dir)(command)
    for path in filter(None, (*files, files.include)):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    if (size := code_size(files.graph, compiler)) is not None:
        print(f"compiled for size on this machine: {size} bytes of code and constants")
    return 0


def _writer(path: Path) -> Callable[[Export], Exported]:
    """Return the function that exports a run of this kind."""
    writers = {Config: _of_training, RLConfig: _of_agent, StreamConfig: _of_stream}
    if (kind := known_in(path).kind.config) not in writers:
        raise RunError(
            f"{path} is no run of `foretrace train`, `rl` or `stream`, the only kinds that are "
            "exported; for the learner of a program of yours, use foretrace.export"
        )
    return writers[kind]


def _of_agent(command: Export) -> Exported:
    """Write the network of an agent; the moments that normalise observations are constants."""
    if command.learn or command.learning_rate is not None:
        raise ValueError(
            f"{command.run_dir} is a run of `foretrace rl`, whose learning step draws actions, "
            "which a plain graph cannot hold; leave out --learn and --learning-rate, and the "
            "network that acts is written"
        )
    _, state = agent_of(command.run_dir)
    inputs = None if state.observations is None else partial(inputs_of, state.observations)
    return export_network(state.network, command.out, command.format, inputs)


def _of_stream(command: Export) -> Exported:
    """Write the model of a stream, which learns from every row."""
    if command.learning_rate is not None:
        raise ValueError(
            f"{command.run_dir} is a run of `foretrace stream`, whose model goes on learning as it "
            "did; leave out --learning-rate"
        )
    if command.format != "c":
        raise ValueError(
            f"{command.run_dir} is a run of `foretrace stream`, which is exported as a C program "
            f"alone, not as {command.format}; say --format c"
        )
    return export_run(command.run_dir, command.out)


def _of_training(command: Export) -> Exported:
    config = experiment.read_config(command.run_dir)
    network = network_in(command.run_dir, config)
    model: Network | Learner = network
    own = config.task if isinstance(config.task, OwnSequences) and config.task.standardise else None
    if not command.learn and command.learning_rate is not None:
        raise ValueError("--learning-rate is for --learn, the graph that goes on learning")
    if own is not None and not command.learn:
        return export_network(network, command.out, command.format, own.scaled, own.unscaled)
    if command.learn:
        if own is not None:
            print(
                "warning: the graph learns from rows as the run did, scaled to mean 0 and variance "
                "1; scale x, and y if it is a number",
                file=sys.stderr,
            )
        # The run learned from batches with a schedule that ends. The graph learns from one stream
        # without an end.
        settings = config.optimizer.settings(None) | {"warmup_steps": 0}
        if command.learning_rate is not None:
            settings["learning_rate"] = command.learning_rate
        task, trained = experiment.build(config)
        model = Learner(network, rule=trained.rule, optimizer=adamw(**settings), loss=task.loss)
    return export(model, command.out, command.format, command.learn)
