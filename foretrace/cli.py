"""The `foretrace` command. Its options are the fields of `experiment.Config`, its help their docstrings."""

import dataclasses
import importlib.metadata
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro
from tyro.conf import Positional

from foretrace import experiment, report
from foretrace._checkpoint import load, read_extra
from foretrace._config import NetworkConfig, RuleName, from_json
from foretrace._learner import UntrainedParameters
from foretrace._network import Network
from foretrace._program import align
from foretrace._run import Run, default_path, read_config
from foretrace.experiment import Config, DivergenceError
from foretrace.tasks.copy import Copy

STOPPED = 130
"""Exit code of a run that Ctrl-C or SIGTERM stopped, as that of any program on Ctrl-C."""


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a network on a task; by default the paper's network on the copy task, online, in about two minutes.

    Args:
        task: what to learn.
        config: the run.
        run_dir: where records go; runs/<task>-<time> if not given.
        resume: go on with the run in --run-dir, with its configuration.
    """

    task: Positional[Literal["copy"]]
    config: Annotated[Config, tyro.conf.arg(name="")] = Config()
    run_dir: Path | None = None
    resume: bool = False


@dataclasses.dataclass(frozen=True)
class Align:
    """Compare the gradient of every rule with that of backpropagation through time, by layer and by parameter.

    The network is a new one, or that of a checkpoint.

    Args:
        task: whose sequences.
        data: the settings of the task.
        network: the network.
        rule: whose gradient is shown by parameter.
        batch_size: number of sequences.
        chunk: length of the chunks that the rules run in; whole sequences if None.
        seed: of the initialisation and the data.
        checkpoint: a checkpoint of `foretrace train`, or a run directory with one: its network and settings.
    """

    task: Positional[Literal["copy"]]
    data: Annotated[Copy, tyro.conf.arg(name="task")] = Copy()
    network: NetworkConfig = NetworkConfig()
    rule: RuleName = "online"
    batch_size: int = 20
    chunk: int | None = None
    seed: int = 0
    checkpoint: Path | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """Print the table of a run and draw its curves again, from its records.

    Args:
        run_dir: the run.
    """

    run_dir: Positional[Path]


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Align, tyro.conf.subcommand("align")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    0 done, 1 failed on the way, 2 bad input, 130 stopped by Ctrl-C or SIGTERM. FORETRACE_DEBUG=1 shows tracebacks.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"foretrace {importlib.metadata.version('foretrace')}")
        return 0
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", UntrainedParameters)
            return _run(_parse(arguments))
    except KeyboardInterrupt:
        print("foretrace: stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        return _explain(error)


def _run(command: Train | Align | Report) -> int:
    if isinstance(command, Train):
        return _train(command)
    return _align(command) if isinstance(command, Align) else _report(command)


def _parse(arguments: list[str]) -> Train | Align | Report:
    """Parse twice where a run or a checkpoint is named: its configuration takes the place of the defaults."""
    command = _parse_with(arguments, None)
    if isinstance(command, Train) and command.resume:
        if command.run_dir is None:
            raise ValueError("--resume needs the run to go on with: --run-dir PATH")
        return _parse_with(arguments, dataclasses.replace(command, config=read_config(command.run_dir)))
    if isinstance(command, Align) and command.checkpoint is not None:
        config = _config_in(_checkpoint_file(command.checkpoint))
        settings = {name: getattr(config, name) for name in ("network", "rule", "batch_size", "chunk", "seed")}
        return _parse_with(arguments, Align(command.task, config.task, **settings))
    return command


def _parse_with(arguments: list[str], default: Train | Align | None) -> Train | Align | Report:
    return tyro.cli(
        Command,
        prog="foretrace",
        description="Recurrent networks that learn long-range dependencies online. `foretrace --version` says which.",
        args=arguments,
        config=(tyro.conf.CascadeSubcommandArgs,),
        default=tyro.MISSING_NONPROP if default is None else default,
    )


def _train(command: Train) -> int:
    run_dir = default_path(command.task) if command.run_dir is None else command.run_dir
    result = experiment.train(command.config, run_dir, resume=command.resume)
    if result.scores is None:
        again = f"foretrace train {command.task} --run-dir {shlex.quote(str(run_dir))} --resume"
        print(
            f"stopped after step {result.step} of {command.config.steps}; the state is saved. Go on with:\n    {again}"
        )
        return STOPPED
    return _report(Report(run_dir))


def _report(command: Report) -> int:
    from rich.console import Console

    Console().print(report.table(command.run_dir))
    report.figure(command.run_dir)
    run = Run(command.run_dir)
    print(f"{run.path}:")
    for name, what in report.CONTENTS.items():
        if (run.path / name).exists():
            print(f"    {name:<24} {what}")
    return 0


def _align(command: Align) -> int:
    from rich.console import Console

    config = Config(
        task=command.data,
        network=command.network,
        rule=command.rule,
        batch_size=command.batch_size,
        chunk=command.chunk,
        seed=command.seed,
    )
    with warnings.catch_warnings():
        # What a rule leaves untrained is in the table.
        warnings.simplefilter("ignore", UntrainedParameters)
        task, learner = experiment.build(config)
    network = learner.network
    if command.checkpoint is not None:
        network = _network_in(_checkpoint_file(command.checkpoint), config)
    found = {}
    for rule in get_args(RuleName):
        if rule != "snap1":  # another name of the online rule
            print(f"aligning {rule}", file=sys.stderr)
            found[rule] = align(config, task, network, rule)
    for grid in report.alignment_tables(found, "online" if command.rule == "snap1" else command.rule):
        Console().print(grid)
    return 0


def _network_in(checkpoint: Path, asked: Config) -> Network:
    """Return the network of a checkpoint, read by the learner that wrote it."""
    config = _config_in(checkpoint)
    if config.network != asked.network or config.task != asked.task:
        raise ValueError(
            f"{checkpoint} holds a network of another size or task than the options ask for; leave them out"
        )
    return load(checkpoint, experiment.build(config).learner).network


def _config_in(checkpoint: Path) -> Config:
    config = from_json(read_extra(checkpoint).get("config"))
    if not isinstance(config, Config):
        raise ValueError(f"{checkpoint} does not say how its network is made; `foretrace train` writes one that does")
    return config


def _checkpoint_file(path: Path) -> Path:
    return Run(path).checkpoint if path.is_dir() else path


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"foretrace: warning: {message}", file=sys.stderr)


def _explain(error: Exception) -> int:
    """Print an error as one line; return the exit code."""
    if os.environ.get("FORETRACE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    known = isinstance(error, ValueError | OSError | DivergenceError)
    if not known:
        text = f"{type(error).__name__}: {text} (unexpected; FORETRACE_DEBUG=1 shows where)"
    print(f"foretrace: error: {text}", file=sys.stderr)
    bad_input = isinstance(error, ValueError | FileNotFoundError)
    return 2 if bad_input else 1
