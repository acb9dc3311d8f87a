"""The kinds of run: how each is resumed, reported and checked.

Every command that takes a run directory asks here.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._runs.directory import RunError, files, is_run_of, read_config_as
from foretrace._runs.session import RunKind
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import RL, Stream, Subcommand, Sweep, Train
from foretrace.experiment import _report as train_report
from foretrace.experiment import _train
from foretrace.experiment._config import task_name
from foretrace.rl import _report as rl_report
from foretrace.rl import _run as rl_run
from foretrace.rl._config import RLConfig
from foretrace.rl._config import task_name as rl_task_name
from foretrace.stream import _figure as stream_figure
from foretrace.stream import _report as stream_report
from foretrace.stream import _saved as stream_saved
from foretrace.stream._config import StreamConfig
from foretrace.sweep import _report as sweep_report
from foretrace.sweep import study
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.sweep._kinds import SweptConfig
from foretrace.sweep._run import STORAGE


class Known(NamedTuple):
    """A kind of run; functions get its directory.

    Args:
        command: name of the command that begins and resumes it.
        kind: class of its configuration, and settings that a resumed run may change.
        again: function of a recorded configuration and the directory; the command with the options
            of the run.
        table: function that returns a report's text.
        figure: function that draws the figure of a report.
        contents: files of the directory, and what each of them is.
        parts: function that returns the runs that it is made of. None for a single run.
        more: function that returns the last line of a report.
    """

    command: str
    kind: RunKind[Any]
    again: Callable[[Any, Path], Subcommand]
    table: Callable[[Path], Any]
    figure: Callable[[Path], Any]
    contents: Mapping[str, str]
    parts: Callable[[Path], Iterable[Path]] | None = None
    more: Callable[[Path], str] = lambda folder: ""


def _sweep_table(folder: Path) -> Any:
    trials = study(folder).get_trials()
    if not any(trial.params for trial in trials):
        raise RunError(
            f"{folder} has nothing to report yet; a study in a database is named by "
            f"{STORAGE}, a variable of the environment"
        )
    return sweep_report.table(read_config_as(folder, SweepConfig), trials)


def _best_trial(folder: Path) -> str:
    found = study(folder)
    if not any(trial.value is not None for trial in found.get_trials()):
        return ""
    best = found.best_trial
    run = shlex.quote(str(folder / best.user_attrs["run"]))
    return f"best: {sweep_report.assigned(best.params)}; more: foretrace report {run}"


def _swept_task(config: SweptConfig) -> Any:
    """Return the word that follows `foretrace sweep`."""
    if isinstance(config, StreamConfig):
        return "stream"
    return (
        rl_task_name(config.environment) if isinstance(config, RLConfig) else task_name(config.task)
    )


TRAIN = Known(
    "train",
    _train.KIND,
    lambda config, path: Train(task_name(config.task), config, path, resume=True),
    train_report.table,
    train_report.figure,
    train_report.CONTENTS,
)

KINDS = (
    TRAIN,
    Known(
        "stream",
        stream_saved.KIND,
        lambda config, path: Stream(config, path, resume=True),
        stream_report.table,
        stream_figure.figure,
        {
            "config.json": "what was run, with versions and hardware",
            "metrics.jsonl": "scores, speed and memory, a line each",
            "checkpoint.safetensors": "what was learned, encoding and position",
            "curves.png": "scores, experts, time and memory",
            "tensorboard": "the same for TensorBoard",
        },
    ),
    Known(
        "rl",
        rl_run.KIND,
        lambda config, path: RL(rl_task_name(config.environment), config, path, resume=True),
        rl_report.table,
        rl_report.figure,
        rl_report.CONTENTS,
    ),
    Known(
        "sweep",
        RunKind(SweepConfig, may_change=("trials",)),
        lambda sweep, path: Sweep(_swept_task(sweep.config), sweep, path, resume=True),
        _sweep_table,
        lambda folder: None,
        {
            "config.json": "what was searched, with versions and hardware",
            "study.log": "the study of Optuna",
            "trials": "a run directory for each configuration",
        },
        lambda folder: sorted((folder / "trials").iterdir()),
        _best_trial,
    ),
)
"""Every kind of run."""


def known_in(path: Path, among: Iterable[Known] = KINDS) -> Known:
    """Return the kind of the run in a directory; the first one if it is none of these."""
    among = tuple(among)
    return next((known for known in among if is_run_of(path, known.kind.config)), among[0])


def resumed(command: str, path: Path) -> Subcommand:
    """Return the command that goes on with a run, with all its options.

    Raises:
        RunError: there is no run, or one of another command.
    """
    known = known_in(path, [known for known in KINDS if known.command == command])
    return known.again(read_config_as(path, known.kind.config), path)


def again(command: str, folder: Path, **given: Any) -> str:
    """Return the command line that goes on with a run.

    Args:
        command: name of the command.
        folder: directory of the run.
        **given: options that the directory does not hold; None and False are left out.
    """
    words = ["foretrace", command, "--resume", str(folder)]
    for name, value in given.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def stopped(place: str, line: str) -> int:
    """Print where a run stopped and the command line that continues it; return the exit code."""
    print(f"stopped {place}. Go on with:\n    {line}")
    return STOPPED


def show(table: Any) -> None:
    """Print a table by `print`: rich itself would end the process where the reader left."""
    from rich.console import Console

    console = Console()
    with console.capture() as text:
        console.print(table)
    print(text.get(), end="")


def report(path: Path) -> int:
    """Print the table of a run, draw its figure and list its files; return the exit code.

    Raises:
        RunError: there is no run, or nothing to report yet.
    """
    known = known_in(path)
    show(known.table(path))
    known.figure(path)
    print(files(path, known.contents))
    if more := known.more(path):
        print(more)
    return 0
