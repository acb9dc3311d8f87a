"""The trials of a sweep, as lines and as a table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from foretrace._runs.escape import for_rich
from foretrace.sweep._config import Sweep


def assigned(values: Mapping[str, Any]) -> str:
    """Return options and their values as text, with four digits for numbers.

    >>> assigned({"optimizer.learning-rate": 0.00123456, "rule": "bptt"})
    'optimizer.learning-rate=0.001235, rule=bptt'
    """
    return ", ".join(f"{option}={_shown(value)}" for option, value in values.items())


def told(trial: Any, measure: str) -> str:
    """Return a line about a finished trial of Optuna."""
    return f"trial {trial.number}: {measure} {_result(trial)}; {assigned(trial.params)}"


def table(sweep: Sweep, trials: Sequence[Any]) -> Any:
    """Return a table for rich with the score of each choice of options, the best first.

    Runs that differ only in the seed are one choice, with their mean and a line for each run.

    Args:
        sweep: configuration of the sweep.
        trials: trials of the sweep's study. Trials that have not begun are left out.
    """
    from rich.table import Column, Table

    options = [option for option in sweep.dimensions if option != "seed"]
    choices = dict[tuple[Any, ...], list[Any]]()
    for trial in trials:
        if trial.params:
            choices.setdefault(tuple(map(trial.params.get, options)), []).append(trial)

    def mean(choice: tuple[Any, ...]) -> float:
        scores = [trial.value for trial in choices[choice] if trial.value is not None]
        return statistics.fmean(scores) if scores else sweep.sign * math.inf

    headers = (*options, f"mean {sweep.measure}", "each", "run directory")
    table = Table(*(Column(name, overflow="fold") for name in headers))
    for choice in sorted(choices, key=lambda choice: sweep.sign * mean(choice)):
        each = "\n".join(for_rich(_result(trial)) for trial in choices[choice])
        runs = "\n".join(trial.user_attrs.get("run", "") for trial in choices[choice])
        table.add_row(*(for_rich(_shown(cell)) for cell in (*choice, mean(choice))), each, runs)
    return table


def _result(trial: Any) -> str:
    if trial.value is not None:
        return _shown(trial.value)
    failure = f"failed: {trial.user_attrs.get('reason', '')}"
    return failure if trial.state.is_finished() else "unfinished"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
