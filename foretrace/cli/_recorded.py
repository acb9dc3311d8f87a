"""The defaults of a command line, from the task, the run or the checkpoint that it names.

Settings of a run directory need not be repeated: `foretrace train --resume PATH` has all options of
the run. An option that is given is laid over the recorded ones, and the run itself says whether it
may differ.
"""

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import tyro

from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._runs.checkpoint import CheckpointError, load, read_extra, restoring
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import Run
from foretrace.cli._kinds import resumed
from foretrace.cli._options import RL, Align, Subcommand, Sweep, Train
from foretrace.experiment._build import build
from foretrace.experiment._config import TASKS, Config, NetworkConfig, task_name
from foretrace.rl._config import TASKS as RL_TASKS
from foretrace.rl._config import RLConfig, without_network
from foretrace.stream._config import StreamConfig
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.tasks._files import DataError

RESUMED = ("train", "sweep", "rl", "stream")
"""Commands that go on with a run directory."""


def default_for(arguments: Sequence[str]) -> Subcommand | None:
    """Return the defaults of a command line. None if it names no task, run or checkpoint.

    Raises:
        ValueError: a run or a checkpoint that cannot be read, or `--resume` without one.
    """
    command, words = (arguments[0], arguments[1:]) if arguments else ("", ())
    if command in RESUMED and "--resume" in words:
        if (path := _value(words, "--run-dir")) is None:
            raise ValueError(
                "--resume needs the run to go on with: --resume PATH, or --run-dir PATH --resume"
            )
        return resumed(command, Path(path))
    if command == "align" and (path := _value(words, "--checkpoint")) is not None:
        return _of_checkpoint(Path(path))
    return default_of_task(arguments)


def default_of_task(
    arguments: Sequence[str], source: str = tyro.MISSING_NONPROP
) -> Subcommand | None:
    """Return the defaults of the task that is named; None leaves everything to the parser.

    Args:
        arguments: the command line.
        source: source of a stream that is swept. Default: it has to be given.
    """
    match arguments:
        case ["train", task, *_] if task in TASKS:
            return Train(task, TASKS[task])
        case ["sweep", task, *_] if task in TASKS:
            return Sweep(task, SweepConfig(TASKS[task]))
        case ["sweep", task, *_] if task in RL_TASKS:
            return Sweep(task, SweepConfig(RL_TASKS[task]))
        case ["sweep", "stream", *_]:
            return Sweep("stream", SweepConfig(StreamConfig(source)))
        case ["rl", task, *_] if task in RL_TASKS:
            return RL(task, RL_TASKS[task])
        case ["align", task, *_] if task in TASKS:
            return Align(task, TASKS[task].task, TASKS[task].network)
    return None


def without_command(words: list[str]) -> list[str]:
    """Return the words behind `sweep` without train or rl, if a task or an option follows.

    >>> without_command(["rl", "t-maze"]), without_command(["rl", "copy"])
    (['t-maze'], ['rl', 'copy'])
    """
    tasks: dict[str, Collection[str]] = {"train": TASKS, "rl": RL_TASKS}
    fits = (
        words[:1]
        and words[0] in tasks
        and (len(words) == 1 or words[1] in tasks[words[0]] or words[1][:1] == "-")
    )
    return words[1:] if fits else words


def check_task(default: Subcommand | None, command: Subcommand) -> None:
    """Check that a command line with a run or a checkpoint does not name another task.

    Raises:
        ValueError: it does.
    """
    recorded, given = getattr(default, "task", None), getattr(command, "task", None)
    if recorded is not None and recorded != given:
        path = (
            command.checkpoint if isinstance(command, Align) else getattr(command, "run_dir", None)
        )
        raise ValueError(f"{path} holds a run of {recorded}, not of {given}; leave the task out")


def check_network(arguments: Sequence[str], command: Subcommand) -> None:
    """Check that no option of a network is given to an agent that has none, not even its default.

    Raises:
        ValueError: there is one.
    """
    config = getattr(command, "config", None)
    config = getattr(config, "config", config)
    if not isinstance(config, RLConfig) or "network" not in config.unused:
        return
    short = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(NetworkConfig)}
    given = [
        word.replace("network.cell:", "--cell ")
        for word in arguments
        if word.startswith(("--network.", "network.cell:"))
        or word.split("=")[0].replace("_", "-") in short
    ]
    if given:
        raise ValueError(without_network(given))


def spelled_out(words: list[str]) -> list[str]:
    """Return words in which `--resume PATH` is `--run-dir PATH --resume`, unless both are there.

    >>> spelled_out(["--resume", "runs/a", "--steps", "90"])
    ['--run-dir', 'runs/a', '--resume', '--steps', '90']
    """
    at = next((i for i, word in enumerate(words) if word.split("=")[0] == "--resume"), len(words))
    _, equals, path = "".join(words[at : at + 1]).partition("=")
    behind = words[at + 1 :]
    if at == len(words) or _value(words, "--run-dir") is not None:
        return words
    if not equals and behind and not behind[0].startswith("-"):
        path, *behind = behind
    return [*words[:at], *(["--run-dir", path] if path else []), "--resume", *behind]


def checkpoint_file(path: Path) -> Path:
    """Return the checkpoint of a run directory, or the file itself."""
    return Run(path).checkpoint if path.is_dir() else path


def config_in(checkpoint: Path) -> Config:
    """Return the configuration of `foretrace train` in a checkpoint.

    Raises:
        CheckpointError: it has none, or cannot be read.
    """
    try:
        return from_json(Config, read_extra(checkpoint).get("config"))
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(
            f"{checkpoint} does not say how its network is made; `foretrace train` writes one that "
            f"does ({error})"
        ) from error


def network_in(checkpoint: Path, config: Config) -> Network:
    """Return the network of a checkpoint whose configuration is checked before allocation.

    Raises:
        CheckpointError: the arrays do not fit the configuration.
        DataError: the data of its task are missing, which is no fault of the checkpoint.
    """
    with restoring(checkpoint):
        try:
            return load(checkpoint, _Described(config)).network
        except DataError as error:
            missing = error
    raise missing


class _Described(NamedTuple):
    """The learner of a configuration, made only for its shapes: nothing is allocated."""

    config: Config

    def init(self) -> LearnerState:
        """Return a state before its first step."""
        return build(self.config).learner.init()


def _of_checkpoint(path: Path) -> Align:
    config = config_in(checkpoint_file(path))
    settings = {name: getattr(config, name) for name in ("network", "rule", "batch_size", "seed")}
    if config.chunk is not None:
        # A run on whole sequences says nothing of the chunks of a stream.
        settings["chunk"] = config.chunk
    return Align(task_name(config.task), config.task, **settings)


def _value(words: Sequence[str], option: str) -> str | None:
    """Return the last value of an option; None if it is not given."""
    value = None
    for word, behind in zip(words, [*words[1:], None], strict=False):
        name, equals, rest = word.partition("=")
        if name.replace("_", "-") == option:
            value = rest if equals else behind
    return value
