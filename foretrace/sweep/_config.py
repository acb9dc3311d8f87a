"""The typed configuration of a sweep: a configuration of the runs, searched options, a score."""

import dataclasses
import math
from typing import Annotated, Any

import tyro

from foretrace.experiment._config import Config
from foretrace.sweep import _space
from foretrace.sweep._kinds import KINDS, SweptConfig

_Config = Annotated[SweptConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Many runs that differ in some options.

    Args:
        config: configuration of the trials, except for the searched options.
        grid: an option with its values, such as optimizer.learning-rate=1e-3,2e-3. Repeat --grid
            for more options: every combination of values is a trial.
        search: an option with a range LOW:HIGH or log:LOW:HIGH, or with values. Repeat --search for
            more options. Each trial is chosen by the scores so far (TPE).
        trials: number of trials of a search. Default: 20.
        score: score that compares the trials. After train, it is a score on the validation
            sequences at the last step: loss, accuracy, or sequences (fraction of whole sequences).
            After rl: return, reward or error. After stream: accuracy, log_loss, calibration_error,
            mae or rmse. Default: loss for train; error for a prediction, otherwise return, for rl;
            accuracy for classes, mae for numbers, for stream.

    Raises:
        ValueError: an option or a value does not exist.

    >>> Sweep(grid=("optimizer.learning-rate=1e-3,2e-3", "rule=online,bptt")).planned
    4
    """

    config: _Config = Config()
    grid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    search: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    trials: int | None = None
    score: str | None = None

    def __post_init__(self) -> None:
        # JSON has lists. A resumed sweep may receive the same command again, whose options are
        # appended.
        for name in ("grid", "search"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.grid and (self.search or self.trials is not None):
            raise ValueError("--grid excludes --search and --trials; a search takes values, too")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials={self.trials} must be at least 1")
        scores = KINDS[type(self.config)].scores
        if self.score is not None and self.score not in scores:
            raise ValueError(f"score={self.score!r} must be one of {', '.join(scores)}")
        _ = self.dimensions  # raises an error for a wrong option

    @property
    def dimensions(self) -> dict[str, Any]:
        """Searched options, each with its distribution in Optuna."""
        argument = "--grid" if self.grid else "--search"
        return _space.dimensions(argument, self.grid or self.search, self.config)

    @property
    def planned(self) -> int:
        """Number of trials."""
        if self.grid:
            return math.prod(len(found.choices) for found in self.dimensions.values())
        return self.trials or 20

    @property
    def sign(self) -> int:
        """1 if a smaller score is better, else -1."""
        return KINDS[type(self.config)].scores[self.measure]

    @property
    def measure(self) -> str:
        """Name of the score that compares the trials.

        Raises:
            ValueError: no score is named, and the kind of the target is not known.
        """
        if (found := self.score or KINDS[type(self.config)].default(self.config)) is None:
            raise ValueError("a target of unknown kind: name it by --task, or a score by --score")
        return found

    def check(self) -> None:
        """Check that every searched value gives a valid run.

        Raises:
            ValueError: there is nothing to search, or a value gives no valid network.
        """
        if not self.dimensions:
            raise ValueError("nothing to search: name options and values by --grid or --search")
        _ = self.measure
        for option, found in self.dimensions.items():
            for value in _space.ends_of(found):
                try:
                    KINDS[type(self.config)].check(_space.applied(self.config, {option: value}))
                except ValueError as error:
                    raise ValueError(
                        f"a trial with {option}={value} cannot run: {error}"
                    ) from error
