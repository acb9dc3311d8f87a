"""The defaults of a command line, from the task or run that its first word names.

Options that are given replace the defaults. When a run is resumed, the run itself checks whether
they may differ from the recorded options.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tyro

from foretrace._learner.state import LearnerState
from foretrace._network import Network
from foretrace._options.cells import OPTIONS
from foretrace._options.network import NetworkConfig
from foretrace._runs.checkpoint import load, restoring
from foretrace._runs.directory import Run, read_config_as
from foretrace._runs.saved import read_saved
from foretrace.cli._kinds import known_in
from foretrace.cli._options import COMMANDS, Align, Serve, ServeConfig, Sweep
from foretrace.experiment._build import build
from foretrace.experiment._config import TASKS, Config
from foretrace.experiment._train import BEST, KIND, Progress, read_config
from foretrace.rl._config import TASKS as RL_TASKS
from foretrace.rl._config import RLConfig, without_network
from foretrace.stream.runs.config import StreamConfig
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.tasks._files import DataError

HELP = {"-h", "--help"}
_TASKS: dict[str, Mapping[Any, Any]] = {"train": TASKS, "rl": RL_TASKS}


def default_for(command: str, words: list[str]) -> tuple[Any, list[str]]:
    """Return the defaults of a command, or None, and the words of its options.

    Raises:
        ValueError: the task does not exist, or the run cannot be read.
    """
    named = words[:1] if words and not words[0].startswith("-") else []
    if command == "resume" and named:
        path = Path(words[0])
        known = known_in(path)
        config = read_config_as(path, known.kind.config)
        return known.command(config=config, run_dir=path, resume=True), words[1:]
    if command == "align":
        if named and named[0] not in TASKS:
            return _of_run(Path(words[0])), words[1:]
        config, words = _begun("train", words)
        return Align(config.task, config.network), words
    if command == "sweep":
        first = words[0] if words else ""
        if first in (*_TASKS, "stream"):
            command, words = first, words[1:]
        else:
            command = "rl" if first in RL_TASKS else "train"
        config, words = _begun(command, words)
        return Sweep(SweepConfig(config)), words
    if command in (*_TASKS, "stream"):
        config, words = _begun(command, words)
        return COMMANDS[command](config), words
    if command == "serve":
        given = named or [word for word in words if word[:1] != "-"]  # RUN may follow options
        for word in [word for word in given if Run(Path(word)).config.exists()][-1:]:
            options = vars(read_config_as(Path(word), StreamConfig))
            at = 0 if named else len(words) - 1 - words[::-1].index(word)
            return Serve(Path(word), ServeConfig(**options)), words[:at] + words[at + 1 :]
    return None, words


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint with a known word that resembles an unknown one."""
    known = list(known)
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"


def _begun(command: str, words: list[str]) -> tuple[Any, list[str]]:
    """Return the initial configuration of a run, and the words after the task."""
    if command == "stream":
        # With an example as the source, the help can be shown without a source.
        return StreamConfig("FILE" if HELP & set(words) else tyro.MISSING_NONPROP), words
    tasks = _TASKS[command]
    if words and not words[0].startswith("-"):
        task, words = words[0], words[1:]
    else:
        own = any(word.split("=")[0] == "--data" for word in words)
        task = "own" if own and command == "train" else next(iter(tasks))
    if task not in tasks:
        raise ValueError(f"there is no task {task!r} of {command}; {nearest(task, tasks)}")
    return tasks[task], words


def _option_in(word: str) -> str:
    """Return the name of the option in a word of a command line, with underscores; "" for none."""
    return word[2:].partition("=")[0].replace("-", "_") if word.startswith("--") else ""


def check_network(words: list[str], command: Any) -> None:
    """Check that no network option is given to an agent without a network.

    Raises:
        ValueError: a network option is given.
    """
    config = getattr(command, "config", None)
    config = getattr(config, "config", config)
    if not isinstance(config, RLConfig) or "network" not in config.unused:
        return
    names = {*(field.name for field in dataclasses.fields(NetworkConfig)), *OPTIONS}
    given = [word for word in words if word.startswith("--network.") or _option_in(word) in names]
    if given:
        raise ValueError(without_network(given))


def check_cell_options(words: list[str], command: Any) -> None:
    """Raise an error if a sweep over cells is given options of a cell.

    Raises:
        ValueError: an option of a cell is given. It would hold for one of the cells alone.
    """
    texts = (*command.config.grid, *command.config.search) if isinstance(command, Sweep) else ()
    searched = {text.partition("=")[0].strip().rpartition(".")[2] for text in texts}
    for word in words if "cell" in searched else ():
        name = _option_in(word).rpartition(".")[2]
        if name in OPTIONS:
            raise ValueError(
                f"{word} would hold for one cell alone, and the sweep compares cells; search it, "
                f"too: --grid {name.replace('_', '-')}=VALUE"
            )


def network_in(run_dir: Path, config: Config) -> Network:
    """Return the network of a run of `foretrace train`, checked before memory is allocated.

    With `keep_best`, it is the network with the best score, which the report is about.

    Raises:
        CheckpointError: the arrays do not fit the configuration.
        RunError: the configuration has changed since the checkpoint was written.
        DataError: the data of the task are missing, which is not a fault of the checkpoint.
    """

    def described() -> LearnerState:
        # Only traced for its shapes, without an allocation.
        return build(config).learner.init()

    checkpoint = Run(run_dir).checkpoint
    read_saved(Run(run_dir), config, Progress, KIND)
    best = run_dir / BEST
    if config.keep_best and best.exists():
        return load(best, SimpleNamespace(init=lambda: described().network))
    with restoring(checkpoint):
        try:
            return load(checkpoint, SimpleNamespace(init=described)).network
        except DataError as error:
            missing = error
    raise missing


def _of_run(path: Path) -> Align:
    config = read_config(path)
    settings = {name: getattr(config, name) for name in ("network", "rule", "batch_size", "seed")}
    if config.chunk is not None:
        # A run on whole sequences does not determine the chunks of a stream.
        settings["chunk"] = config.chunk
    return Align(config.task, **settings, run_dir=path)
