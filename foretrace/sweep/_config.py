"""A sweep as typed data: one configuration, what of it is searched, and which score counts."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import jax
import tyro

from foretrace._learner.state import LearnerState
from foretrace._runs.options import Advanced
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.sweep import _space as _sweep_space
from foretrace.sweep._space import Dimension, Value, applied, combinations

TRIALS = 20
"""Of a search, if nothing else is said."""

Score = Literal["loss", "accuracy", "sequences"]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Many runs that differ in some options.

    Args:
        config: configuration of the trials, but for the options that are searched.
        grid: option and its values, such as optimizer.learning-rate=1e-3,2e-3. Give it again for more options: every
            combination is a trial.
        search: option and a range LOW:HIGH or log:LOW:HIGH, or values. Give it again for more options: the next trial
            depends on the scores so far (TPE).
        trials: number of trials of a search; default: 20.
        score: validation score at the last step by which trials are compared: smallest loss, or largest accuracy or
            share of whole sequences.
        prune: whether to stop trials early that score worse than the median of the others, or than the best third of
            them (successive halving).

    Raises:
        ValueError: an option or value that there is not.

    >>> Sweep(grid=("optimizer.learning-rate=1e-3,2e-3", "rule=online,bptt")).planned
    4
    """

    config: Advanced[Annotated[Config, tyro.conf.arg(name="")]] = Config()
    grid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    search: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    trials: int | None = None
    score: Score = "loss"
    prune: Advanced[Literal["none", "median", "halving"]] = "none"

    def __post_init__(self) -> None:
        # JSON has lists. Whoever goes on may give the same command again, and what it says comes on top.
        for name in ("grid", "search"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.grid and self.search:
            raise ValueError("--grid and --search exclude each other; a search takes values as well: OPTION=A,B,C")
        if self.trials is not None and self.grid:
            raise ValueError("--trials is for --search; a grid has as many trials as combinations")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials={self.trials} must be at least 1")
        _ = self.dimensions  # says what is wrong with them

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What is searched."""
        if self.grid:
            return _sweep_space.grid(self.grid, self.config)
        return _sweep_space.search(self.search, self.config)

    @property
    def planned(self) -> int:
        """The number of trials."""
        return len(self.combinations) if self.grid else self.trials or TRIALS

    @property
    def combinations(self) -> list[dict[str, str]]:
        """Those of a grid."""
        return combinations(_sweep_space.grid(self.grid, self.config))

    @property
    def sign(self) -> int:
        """1 where a smaller score is better, else -1."""
        return 1 if self.score == "loss" else -1

    def of(self, values: dict[str, Value]) -> Config:
        """Return the configuration of a trial."""
        return applied(self.config, values)

    def check(self) -> None:
        """Make sure that every single value makes a run; nothing is computed.

        Raises:
            ValueError: nothing to search, or a value that makes no network.
        """
        if not self.dimensions:
            raise ValueError("nothing to search: name an option and its values by --grid or --search")
        for values in self._probes():
            try:
                jax.eval_shape(partial(_first_state, self.of(values)))
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


def _first_state(config: Config) -> LearnerState:
    return build(config).learner.init(jax.random.key(config.seed))
