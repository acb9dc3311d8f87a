"""A sweep: many runs that differ in some options, on one or several machines; resumable.

    config = sweep.Sweep(config, grid=("rule=online,truncated", "seed=0,1,2"))
    study = sweep.run(config, "runs/rules", workers=2)

The trials are a study of Optuna, which chooses their values. A trial is unfinished until the study
has its result. It is run by the process that holds the file lock with its number, and the system
releases this lock when the process ends. A trial that waits, was stopped, or lost its process is
therefore treated alike: the next free process runs it, from its checkpoint if there is one.
"""

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from foretrace._runs import directory
from foretrace._runs.files import LockedError, locked
from foretrace._runs.follow import DivergenceError
from foretrace._runs.many import many
from foretrace._runs.signals import Stop
from foretrace.sweep._config import Sweep
from foretrace.sweep._kinds import scores_of
from foretrace.sweep._report import told
from foretrace.sweep._space import applied, library

if TYPE_CHECKING:
    import optuna

STORAGE = "FORETRACE_SWEEP_STORAGE"
"""Environment variable with the address of a database, which may contain a password.

Other users of the machine can see the arguments of a process, but not its environment.
"""

LOSSES = 4
"""Number of processes that a trial may lose before it counts as the cause and as failed."""

_WORKER = "from foretrace.sweep._run import *; work(study(sys.argv[1]), Path(sys.argv[1]))"


def run(
    sweep: Sweep,
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    resume: bool = False,
    show_progress: bool = True,
) -> "optuna.Study":
    """Run the trials of a sweep until all are finished, or until Ctrl-C or SIGTERM.

    `resume` continues a sweep. A trial that fails does not end the others. If a process is killed,
    another process continues its trial. The study is a journal of Optuna in the folder. If the
    environment variable FORETRACE_SWEEP_STORAGE has the address of a database, in the form of
    Optuna, the study is in this database.

    Args:
        sweep: configuration of the sweep.
        folder: new or empty directory, or the directory of the sweep to continue or join.
        workers: number of trials that run at the same time. This process runs one, and other
            processes run the others.
        resume: whether to continue or join the sweep in the folder. Another machine can join if it
            shares the folder and its file locks. With more `trials` than before, a search is
            extended.
        show_progress: whether to show the progress of this process's runs, and all results, on
            standard error.

    Returns:
        The study, with `trials`, `best_trial`, `best_params` and `best_value`. The user attributes
        of a trial are `run`, its run directory, and `reason`, the reason why it failed.

    Raises:
        ValueError: there is nothing to search, a value gives no valid network, Optuna is not
            installed, or the database does not exist.
        RunError: the folder cannot be used.
    """
    if workers < 1:
        raise ValueError(f"workers={workers} must be at least 1")
    sweep.check()
    folder = Path(folder)
    if resume:
        own = directory.Run(folder)
        directory.reopen(own, sweep, may_change=("trials",))
        directory.record_config(own, sweep)
    else:
        directory.check_free(folder)
        directory.create(folder, sweep, study=f"{folder.name}-{os.urandom(4).hex()}")
    trials = study(folder, begin=True)
    if workers > 1:
        with contextlib.suppress(LockedError), locked(folder), locked(folder):
            raise directory.RunError(f"workers={workers} needs file locks; {folder} has none")
    with contextlib.ExitStack() as waits, contextlib.ExitStack() as stops:
        for _ in range(workers - 1):
            worker = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(folder)],
                stderr=None if show_progress else subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal reaches all processes of a session
            )
            waits.enter_context(worker)
            stops.callback(worker.terminate)
        work(trials, folder, show_progress, show_progress and workers == 1)
    return trials


def study(folder: str | os.PathLike[str], *, begin: bool = False) -> "optuna.Study":
    """Return the study of a sweep, for example for the figures of `optuna.visualization`.

    Args:
        folder: directory of the sweep.
        begin: whether to begin a study if the folder has none. If False, nothing is written.

    Raises:
        ValueError: Optuna is not installed, the journal is damaged, or the database does not exist.
        RunError: there is no sweep, or it has not begun.
    """
    optuna, address, journal = library(), os.environ.get(STORAGE), Path(folder) / "study.log"
    sweep = directory.read_config_as(folder, Sweep)
    if not (begin or address or journal.exists()):
        raise directory.RunError(
            f"{folder} has nothing to report yet; a study in a database is named by {STORAGE}, a "
            "variable of the environment"
        )
    try:
        lock = _JournalLock(journal)
        backend = optuna.storages.journal.JournalFileBackend
        kept = {
            "storage": address or optuna.storages.JournalStorage(backend(str(journal), lock)),
            "study_name": directory.read_begun(directory.Run(Path(folder)), "study") or "sweep",
        }
        if not begin:
            return optuna.load_study(**kept)
        direction = "minimize" if sweep.sign > 0 else "maximize"
        return optuna.create_study(**kept, direction=direction, load_if_exists=True)
    except Exception as error:
        if not address:
            raise ValueError(
                f"{journal} cannot be opened as the study of a sweep ({error})"
            ) from error
        # A driver's message may contain the password.
        raise ValueError(
            f"{STORAGE} must be the address of a database that can be opened and holds the study, "
            f"such as postgresql://host/name ({type(error).__name__}); FORETRACE_DEBUG=1 shows the "
            "message of its driver"
        ) from error


class _JournalLock:
    """Lock of Optuna's journal, which first removes an incomplete last line."""

    def __init__(self, path: Path):
        self._path, self._lock = path, library().storages.journal.JournalFileSymlinkLock(str(path))
        self.release = self._lock.release

    def acquire(self) -> bool:
        self._lock.acquire()
        with open(self._path, "r+b") as file:
            file.seek(-min(1, file.seek(0, os.SEEK_END)), os.SEEK_END)
            if file.read() not in (b"", b"\n"):  # read all only if a line is incomplete
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return True


def unfinished(trials: "optuna.Study", sweep: Sweep) -> list[int]:
    """Return the numbers of the planned trials without a result; missing trials are added."""
    while len(found := trials.get_trials(deepcopy=False)) < sweep.planned:
        trials.ask()
    return [trial.number for trial in found[: sweep.planned] if not trial.state.is_finished()]


def work(trials: "optuna.Study", folder: Path, say: bool = True, show: bool = False) -> None:
    """Run trials until all are finished, or until Ctrl-C; include abandoned trials.

    Args:
        trials: study of the sweep.
        folder: directory of the sweep.
        say: whether to print the result of each trial.
        show: whether to show the progress of each run.
    """
    sweep = directory.read_config_as(folder, Sweep)

    def attempt(number: int) -> None:
        line = _attempt(trials, number, sweep, folder, show)
        if say and line:
            print(line, file=sys.stderr, flush=True)

    with Stop() as stop:
        many(lambda: unfinished(trials, sweep), attempt, stop)


def _attempt(trials: "optuna.Study", number: int, sweep: Sweep, folder: Path, show: bool) -> str:
    """Run a trial; return a line about its result, or an empty text if it has none.

    Raises:
        LockedError: another process is running the trial.
    """
    with locked(folder, f".trial-{number}.lock"):
        optuna, found = library(), trials.get_trials(deepcopy=False)[number]
        if found.state.is_finished():
            return ""
        trials.sampler = _sampler(sweep, number)
        trial = optuna.Trial(trials, found._trial_id)  # keeps the values that the trial already has
        values = {option: trial._suggest(option, each) for option, each in sweep.dimensions.items()}
        trials.sampler = optuna.samplers.RandomSampler()  # a grid's would stop Optuna's loop
        score, losses = None, trial.user_attrs.get("losses", 0)
        # The trial counts as lost until the end of this block, which a killed process does not
        # reach.
        trial.set_user_attr("losses", losses + 1)
        try:
            if losses == LOSSES:
                raise ValueError(f"its process was lost {losses} times")
            config = applied(sweep.config, values)
            run = directory.run_in(folder / "trials", config)
            trial.set_user_attr("run", f"trials/{run.path.name}")
            scores = scores_of(config, run, show)
            if scores is None:
                return ""
            if not math.isfinite(scores.get(sweep.measure, math.nan)):
                raise ValueError(f"no finite {sweep.measure} in {dict(scores)}")
            score = float(scores[sweep.measure])
        except (LockedError, directory.TakenError):
            raise
        # Errors that repeat in this trial: no network has these sizes, or it does not fit into
        # memory.
        except (DivergenceError, ValueError, jax.errors.JaxRuntimeError) as error:
            trial.set_user_attr("reason", " ".join(str(error).split()) or type(error).__name__)
        finally:
            trial.set_user_attr("losses", losses)
        state = optuna.trial.TrialState.FAIL if score is None else None
        return told(trials.tell(number, score, state), sweep.measure)


def _sampler(sweep: Sweep, number: int) -> Any:
    """Return the sampler of a trial's values."""
    samplers = library().samplers
    if sweep.grid:
        return samplers.GridSampler({option: d.choices for option, d in sweep.dimensions.items()})
    # A seed for each trial. With a seed for each process, a resumed sweep would repeat earlier
    # draws.
    return samplers.TPESampler(seed=(int(directory.digest(sweep.config), 16) + number) % 2**32)
