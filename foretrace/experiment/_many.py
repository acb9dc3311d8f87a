"""Train many configurations, each in a run directory of its own."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from foretrace._runs.directory import Run, digest
from foretrace._runs.loop import DivergenceError
from foretrace.experiment._config import Config
from foretrace.experiment._scores import Scores
from foretrace.experiment._train import Result, train


def many(
    configs: Iterable[Config],
    folder: str | os.PathLike[str],
    *,
    show_progress: bool = True,
    watch: Callable[[int, Scores], bool] | None = None,
) -> Iterator[Result]:
    """Train configurations one after another, and yield the result of each.

    Each has the run directory in the folder that is named by its digest. A run that is there goes
    on, and one that is finished is not repeated. Runs that differ in seed, learning rate and
    recorded values alone are compiled once.

    Args:
        configs: configurations of the runs.
        folder: folder of the run directories.
        show_progress: show the progress of each run on standard error.
        watch: function that may end a run at an evaluation, as in `train`.

    Yields:
        The result of each run. The scores of a run that diverges are NaN. A run that is stopped has
        none, and is the last one.

    Raises:
        ValueError, OSError: as in `train`.
    """
    for config in configs:
        run = Run(Path(folder) / digest(config))
        try:
            result = train(
                config,
                run.path,
                resume=run.config.exists(),
                show_progress=show_progress,
                watch=watch,
            )
        except DivergenceError:
            result = Result(run, config.steps, Scores(*[math.nan] * 3), math.nan)
        yield result
        if result.scores is None:
            return
