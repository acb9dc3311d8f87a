"""A sweep as typed data: one configuration, what of it is searched, and which score counts."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import tyro

from foretrace._runs.options import Advanced
from foretrace.experiment._config import Config
from foretrace.stream._config import StreamConfig
from foretrace.sweep import _space as _sweep_space
from foretrace.sweep._kinds import SweptConfig, swept
from foretrace.sweep._space import Dimension, Value, applied, combinations

TRIALS = 20
"""Of a search, if nothing else is said."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Many runs that differ in some options.

    Args:
        config: configuration of the trials, but for the options that are searched.
        grid: option and its values, such as optimizer.learning-rate=1e-3,2e-3. Give it again for
            more options: every combination is a trial.
        search: option and a range LOW:HIGH or log:LOW:HIGH, or values. Give it again for more
            options: the next trial depends on the scores so far (TPE).
        trials: number of trials of a search. Default: 20.
        score: score by which trials are compared. Of train, on validation sequences at the last
            step: loss, accuracy, or sequences, the share of whole ones. Of rl: return, reward or
            error. Of stream: accuracy, log_loss, calibration_error, mae or rmse. Default: loss;
            error of a prediction, else return; accuracy of a class, mae of a number.

    Raises:
        ValueError: an option or value that there is not.

    >>> Sweep(grid=("optimizer.learning-rate=1e-3,2e-3", "rule=online,bptt")).planned
    4
    """

    config: Advanced[Annotated[SweptConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]] = (
        Config()
    )
    grid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    search: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    trials: int | None = None
    score: str | None = None

    def __post_init__(self) -> None:
        # JSON has lists. A resumed sweep may get the same command again, whose options come on top.
        for name in ("grid", "search"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.grid and self.search:
            raise ValueError(
                "--grid and --search exclude each other; a search takes values as well: "
                "OPTION=A,B,C"
            )
        if self.trials is not None and self.grid:
            raise ValueError("--trials is for --search; a grid has as many trials as combinations")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials={self.trials} must be at least 1")
        kind = swept(self.config)
        if self.score is not None and self.score not in kind.scores:
            raise ValueError(f"score={self.score!r} must be one of {', '.join(kind.scores)}")
        _ = self.dimensions  # reports their faults

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Searched options."""
        if self.grid:
            return _sweep_space.grid(self.grid, self.config)
        return _sweep_space.search(self.search, self.config)

    @property
    def planned(self) -> int:
        """The number of trials."""
        return len(self.combinations) if self.grid else self.trials or TRIALS

    @property
    def combinations(self) -> list[dict[str, str]]:
        """Values of a grid."""
        return combinations(_sweep_space.grid(self.grid, self.config))

    @property
    def seed(self) -> int:
        """Seed of a search's sampler: the configuration's."""
        return self.config.model.seed if isinstance(self.config, StreamConfig) else self.config.seed

    @property
    def sign(self) -> int:
        """1 where a smaller score is better, else -1."""
        return swept(self.config).scores[self.measure]

    @property
    def measure(self) -> str:
        """Name of the score by which trials are compared.

        Raises:
            ValueError: neither it nor the kind of the target is named.
        """
        kind = swept(self.config)
        if (found := self.score or kind.default(self.config)) is None:
            raise ValueError(
                "which score counts depends on the target: name its kind by --task, or a score by "
                "--score"
            )
        return found

    def of(self, values: dict[str, Value]) -> SweptConfig:
        """Return the configuration of a trial."""
        return applied(self.config, values)

    def check(self) -> None:
        """Make sure that every single value makes a run; nothing is computed.

        Raises:
            ValueError: nothing to search, or a value that makes no network.
        """
        if not self.dimensions:
            raise ValueError(
                "nothing to search: name an option and its values by --grid or --search"
            )
        _ = self.measure
        for values in self._probes():
            try:
                swept(self.config).check(self.of(values))
            except ValueError as error:
                asked = ", ".join(f"{option}={value}" for option, value in values.items())
                raise ValueError(f"a trial with {asked} cannot run: {error}") from error

    def _probes(self) -> Iterator[dict[str, Any]]:
        """Yield combinations among which every value is; a range has its ends."""
        first: dict[str, Any] = {d.option: d.values[0] for d in self.dimensions}
        yield first
        for dimension in self.dimensions:
            for value in dimension.values[1:]:
                yield first | {dimension.option: value}
