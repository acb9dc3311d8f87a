"""A sweep's trials in a database, by Optuna: planned at once, each for one worker.

Whoever opens a sweep puts all its trials into the queue; a worker takes the next one. So a grid is
exactly its combinations and a search exactly its number of trials, however many workers there are
and whenever they come and go.
"""

import contextlib
import copy
import hashlib
import logging
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace._runs.directory import Run
from foretrace._runs.escape import without_secrets
from foretrace._runs.files import LockedError, locked
from foretrace.sweep._config import Sweep
from foretrace.sweep._space import Choice, Dimension, Value
from foretrace.sweep._trials import LOST, State, Trial

if TYPE_CHECKING:
    import optuna


STORAGE = "FORETRACE_SWEEP_STORAGE"
"""Variable of the environment with the address of the database."""

HEARTBEAT = 10
"""Seconds between signs of life of a trial."""

SILENT = 6
"""Heartbeats without a sign after which a trial is lost."""

RETRIES = 3
"""Times that a trial whose worker was lost is run again: it may be what kills its worker."""

_NUMBER, _OWNER, _REASON = "number", "owner", "reason"


def library() -> Any:
    """Return Optuna.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ValueError("a sweep needs optuna; pip install 'foretrace[sweep]'") from error
    # Its messages on trials are in the record; no user can act on the experimental heartbeats.
    optuna.logging.set_verbosity(logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def default_storage(folder: Path) -> str:
    """Return the address of the database in a sweep's folder."""
    return f"sqlite:///{(folder / 'sweep.db').resolve()}"


def connect(folder: Path, storage: str, sweep: Sweep, heartbeat: int = HEARTBEAT) -> "optuna.Study":
    """Return the study of a sweep, which is begun if there is none.

    Args:
        folder: folder of the sweep; all who share it share the study.
        storage: address of the database.
        sweep: configuration of the sweep.
        heartbeat: seconds between signs of life.

    Raises:
        ValueError: no Optuna, or no such database.
    """
    optuna = library()
    from sqlalchemy.exc import SQLAlchemyError

    lost = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
    # Workers wait for each other instead of giving up at once.
    patience = (
        {"connect_args": {"timeout": 60}}
        if storage.startswith("sqlite")
        else {"pool_pre_ping": True}
    )
    try:
        database = optuna.storages.RDBStorage(
            storage,
            engine_kwargs=patience,
            heartbeat_interval=heartbeat,
            grace_period=SILENT * heartbeat,
            heartbeat_stale_trial_callback=lost,
        )
        return optuna.create_study(
            storage=database,
            study_name=_name(folder),
            direction="minimize" if sweep.sign > 0 else "maximize",
            load_if_exists=True,
        )
    except (SQLAlchemyError, ImportError, optuna.exceptions.StorageInternalError) as error:
        # A driver may say the address in words of its own, so that its secrets are looked for by
        # themselves.
        text = without_secrets(" ".join(str(error).split()), storage)
        raise ValueError(f"--storage: no database there: {text[:300]}") from error


def plan(study: "optuna.Study", folder: Path, sweep: Sweep) -> None:
    """Put missing trials into the queue, and the ones that were lost for good."""
    with _alone(folder):
        latest = _latest(study)
        for number in range(sweep.planned):
            if number not in latest:
                study.enqueue_trial(
                    sweep.combinations[number] if sweep.grid else {}, user_attrs={_NUMBER: number}
                )
            elif _state(latest[number]) == "failed" and not latest[number].user_attrs.get(_REASON):
                put_back(study, latest[number])


def take(trial: "optuna.Trial", sweep: Sweep, owner: str) -> tuple[int, dict[str, Value]] | None:
    """Return the number and the values of a trial that a worker begins; None if it is one too many.

    Args:
        trial: Optuna's.
        sweep: searched options.
        owner: who runs it.
    """
    number = trial.user_attrs.get(_NUMBER)
    if number is None:
        return (
            None  # another worker took the last one between a look at the queue and a grasp into it
        )
    trial.set_user_attr(_OWNER, owner)
    # A seed for each trial: with one for each worker, resumed workers would repeat earlier draws.
    seed = int(np.random.SeedSequence([sweep.seed, number]).generate_state(1)[0])
    trial.study.sampler = library().samplers.TPESampler(seed=seed)
    return number, {dimension.option: _drawn(trial, dimension) for dimension in sweep.dimensions}


def explain(trial: "optuna.Trial", reason: str) -> None:
    """Note why a trial failed: it will fail again, and is not run again."""
    trial.set_user_attr(_REASON, reason)


def put_back(study: "optuna.Study", trial: Any) -> None:
    """Let a trial that was not finished be run again, with the same values, from its checkpoint."""
    known = study.get_trials(deepcopy=False)[trial.number]
    # Its planned values count even if it ended before it asked for them.
    values = {**known.system_attrs.get("fixed_params", {}), **known.params}
    study.enqueue_trial(
        values, user_attrs={k: v for k, v in known.user_attrs.items() if k != _OWNER}
    )


def is_over(study: "optuna.Study", number: int) -> bool:
    """Say whether a trial, by Optuna's number, has ended."""
    return study.get_trials(deepcopy=False)[number].state.is_finished()


def recover(study: "optuna.Study", heartbeat: int) -> None:
    """Run again what workers have left that give no sign of life, on whatever machine they were."""
    optuna = library()
    optuna.storages.fail_stale_trials(study)
    for trial in _planned(study):
        # A worker that was lost before its first sign of life, which Optuna does not miss.
        nameless = _state(trial) == "running" and trial.user_attrs.get(_OWNER) is None
        if (
            nameless
            and abs(datetime.now() - trial.datetime_start).total_seconds() > SILENT * heartbeat
        ):
            _run_again(study, trial)


def give_up(study: "optuna.Study", owner: str) -> bool:
    """Queue again the trials of a worker that is known to be gone; False if there are none."""
    left = [
        t for t in _planned(study) if t.user_attrs.get(_OWNER) == owner and _state(t) == "running"
    ]
    for trial in left:
        _run_again(study, trial)
    return bool(left)


def standing(study: "optuna.Study") -> list[Trial]:
    """Return how far every trial of a sweep is."""
    return [_trial(number, found) for number, found in sorted(_latest(study).items())]


def _run_again(study: "optuna.Study", trial: Any) -> None:
    optuna = library()
    with contextlib.suppress(ValueError):  # somebody else noticed
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        again = copy.deepcopy(trial)
        again.user_attrs.pop(_OWNER, None)
        optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)(study, again)


def _drawn(trial: "optuna.Trial", dimension: Dimension) -> Value:
    """Return the value of an option that the trial has already, or a new one."""
    if isinstance(dimension, Choice):
        return trial.suggest_categorical(dimension.option, dimension.values)
    if dimension.whole:
        return trial.suggest_int(
            dimension.option, int(dimension.low), int(dimension.high), log=dimension.log
        )
    return trial.suggest_float(dimension.option, dimension.low, dimension.high, log=dimension.log)


def _trial(number: int, found: Any) -> Trial:
    steps = sorted(found.intermediate_values)
    score = found.intermediate_values[steps[-1]] if steps else None
    reason = found.user_attrs.get(_REASON, LOST) if _state(found) == "failed" else ""
    values = found.params or found.system_attrs.get("fixed_params", {})
    finite = None if score is None or not math.isfinite(score) else score
    return Trial(number, _state(found), values, steps[-1] if steps else 0, finite, reason)


def _state(trial: Any) -> State:
    names: dict[str, State] = {"COMPLETE": "finished", "FAIL": "failed"}
    return names.get(trial.state.name, "running" if trial.state.name == "RUNNING" else "waiting")


def _planned(study: "optuna.Study") -> Sequence[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if _NUMBER in trial.user_attrs]


def _latest(study: "optuna.Study") -> dict[int, Any]:
    """Return the last attempt at every trial."""
    return {trial.user_attrs[_NUMBER]: trial for trial in _planned(study)}


def _name(folder: Path) -> str:
    """Return a name that those have in common who share the folder, and nobody else."""
    return f"foretrace-{hashlib.sha256(Run(folder).config.read_bytes()).hexdigest()[:16]}"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else fills the queue."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except LockedError:
                time.sleep(0.1)
        yield
