"""The kinds of runs: how each is resumed, reported and checked.

Every command that takes a run directory uses this table.
"""

import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._runs.directory import Run, RunError, files, read_config_as, read_type
from foretrace._runs.saved import RunKind
from foretrace._runs.signals import STOPPED
from foretrace.cli._options import RL, Reproduce, Stream, Sweep, Train
from foretrace.experiment import _report as train_report
from foretrace.experiment import _train
from foretrace.paper import _page as paper_page
from foretrace.paper import _reproduce
from foretrace.rl import _report as rl_report
from foretrace.rl import _run as rl_run
from foretrace.stream.runs import figure as stream_figure
from foretrace.stream.runs import report as stream_report
from foretrace.stream.runs import saved as stream_saved
from foretrace.sweep import _report as sweep_report
from foretrace.sweep import study
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.tasks._files import DataError


class Known(NamedTuple):
    """A kind of run. Its functions take the run directory.

    Args:
        command: class of the command that begins and resumes the run.
        kind: class of the configuration, and the settings that a resumed run may change.
        report: function that prints a report and, if requested, draws the figures.
        parts: folder of the runs of which it consists; None for a single run.
    """

    command: Callable[..., Any]
    kind: RunKind[Any]
    report: Callable[[Path, bool], None]
    parts: str | None = None


def _of_run(
    table: Callable[[Path], Any],
    figure: Callable[[Path], Any],
    costs: Callable[[Path], str] | None = None,
) -> Callable[[Path, bool], None]:
    """Return the function that reports a run by its table, its figure and its files.

    The costs are counted where a figure may be drawn, because this also takes longer than the rest.
    """

    def report(folder: Path, draws: bool) -> None:
        show(table(folder))
        if draws and costs is not None:
            with contextlib.suppress(DataError):  # without its data, the sizes are not known
                print(costs(folder))
        if draws or Run(folder).figure.exists():  # an existing figure shows the whole run
            figure(folder)
        print(files(folder))
        if not Run(folder).figure.exists():
            print(f"curves: {shlex.join(['foretrace', 'report', str(folder)])}")

    return report


def _of_sweep(folder: Path, draws: bool) -> None:
    found = study(folder)
    trials = found.get_trials()
    if not any(trial.params for trial in trials):
        raise RunError(f"{folder} has nothing to report yet")
    show(sweep_report.table(read_config_as(folder, SweepConfig), trials))
    print(files(folder))
    if any(trial.value is not None for trial in trials):
        best = found.best_trial
        run = shlex.quote(str(folder / best.user_attrs["run"]))
        print(f"best: {sweep_report.assigned(best.params)}; more: foretrace report {run}")


KINDS = (
    Known(Train, _train.KIND, _of_run(train_report.table, train_report.figure, train_report.costs)),
    Known(RL, rl_run.KIND, _of_run(rl_report.table, rl_report.figure)),
    Known(Stream, stream_saved.KIND, _of_run(stream_report.page, stream_figure.figure)),
    Known(Sweep, RunKind(SweepConfig, may_change=("trials",)), _of_sweep, "trials"),
    Known(
        Reproduce,
        _reproduce.KIND,
        lambda folder, draws: paper_page.print_report([folder], folder),
        "runs",
    ),
)
"""Every kind of run."""


def known_in(path: Path) -> Known:
    """Return the kind of the run in a directory.

    Raises:
        RunError: there is no run, or this version does not have its command.
    """
    name = read_type(path)
    for known in KINDS:
        if known.kind.config.__name__ == name:
            return known
    raise RunError(f"{path} holds a run of a command that is not known here: {name}")


def again(folder: Path, **given: Any) -> str:
    """Return the command line that continues a run.

    Args:
        folder: directory of the run.
        **given: options that the directory does not record. None, False and () are left out.
    """
    words = ["foretrace", "resume", str(folder)]
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            values = value if isinstance(value, tuple) else () if value is True else (value,)
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return shlex.join(words)


def stopped(place: str, line: str) -> int:
    """Print where a run stopped and the command line that continues it; return the exit code."""
    print(f"stopped {place}. Go on with:\n    {line}")
    return STOPPED


def show(table: Any) -> None:
    """Print a table with `print`, because rich would end the process on a closed pipe."""
    from rich.console import Console

    console = Console()
    with console.capture() as text:
        console.print(table)
    print(text.get(), end="")


def report(path: Path, *, draws: bool = True) -> int:
    """Print the report of a run, draw its figures, and return the exit code.

    Args:
        path: directory of the run.
        draws: whether to draw a figure that does not exist yet, which takes longer than all else.

    Raises:
        RunError: there is no run, or nothing to report yet.
    """
    known_in(path).report(path, draws)
    return 0
