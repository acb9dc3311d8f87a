"""Answers of a stream's network for more rows, without learning."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from foretrace._rows.source import SYMBOL, Format, Source
from foretrace._runs.checkpoint import load, read_extra
from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace.stream._config import StreamConfig
from foretrace.stream._learner import own
from foretrace.stream._plan import Plan, build


def predictions(
    run_dir: str | os.PathLike, source: str, *, format: Format = "auto", rows: int | None = None
) -> Iterator[list[Any]]:
    """Yield the names of what is predicted, then for each row its number, its member if there are any, and predictions.

    Args:
        run_dir: of `foretrace stream`; its checkpoint stays as it is.
        source: file, or "-" for standard input.
        format: of the source; by default that of the run for standard input, or by its name.
        rows: stop after so many rows.

    Raises:
        RunError: no run, or one without a checkpoint.
        CheckpointError: the checkpoint is damaged.
        SourceError: the source cannot be read.
    """
    run = Run(Path(run_dir))
    config = read_config_as(run.path, StreamConfig)
    if not run.checkpoint.exists():
        raise RunError(f"{run.path} has no checkpoint yet")
    kept = read_extra(run.checkpoint)
    plan = Plan.from_json(kept["plan"])
    intake = build(config, plan)
    intake.restore(kept)
    state = own(load(run.checkpoint, intake.learner))
    name = SYMBOL if config.target is None else config.target
    whose = [] if config.member is None else [config.member]
    yield ["row", *whose, *_names(name, config.horizon, plan.classes)]
    read = Source(source, format, delimiter=config.delimiter, encoding=config.encoding, bad_rows=config.bad_rows)
    for row, position in islice(read.rows(), rows):
        output, state = intake.answer(state, row, row.get(name))
        yield [position.row, *(row.get(column) for column in whose), *intake.target.describe(output)]


def _names(target: str, horizon: int, classes: int) -> list[str]:
    if classes:
        return [target, "probability"]
    return [f"{target}+{i}" for i in range(1, horizon + 1)] or [target]
