"""Predictions of a stream's network for more rows, without learning."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from foretrace._rows.number_target import NumberTarget
from foretrace._rows.source import SYMBOL, Format, Source
from foretrace._rows.target import NumberContext
from foretrace._runs.checkpoint import read_extra
from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace.stream._config import StreamConfig
from foretrace.stream._plan import Plan, build, check_columns
from foretrace.stream._saved import load_state


def predictions(
    run_dir: str | os.PathLike[str], source: str, *, format: Format = "auto", rows: int | None = None
) -> Iterator[list[Any]]:
    """Yield the names of the output columns, then for each row its number, its member if it has one, and predictions.

    Args:
        run_dir: directory of a run of `foretrace stream`; its checkpoint stays as it is.
        source: path of a file, or "-" for standard input.
        format: format of the source; "auto" goes by its name.
        rows: number of rows after which to stop.

    Raises:
        RunError: there is no run, or it has no checkpoint.
        CheckpointError: the checkpoint is damaged.
        SourceError: the source cannot be read, or has other columns than the run.
    """
    run = Run(Path(run_dir))
    config = read_config_as(run.path, StreamConfig)
    if not run.checkpoint.exists():
        raise RunError(f"{run.path} has no checkpoint yet")
    saved = read_extra(run.checkpoint)
    plan = Plan.from_json(saved["plan"])
    intake = build(config, plan)
    intake.restore(saved["intake"])
    state = load_state(run.checkpoint, intake.learner)
    name = SYMBOL if config.target is None else config.target
    member = [] if config.member is None else [config.member]
    yield ["row", *member, *_names(name, config.horizon, plan.classes)]
    reader = Source(source, format, delimiter=config.delimiter, encoding=config.encoding, bad_rows=config.bad_rows)
    stream = check_columns(reader, reader.rows(), [*plan.inputs, *member])
    for row, position in islice(stream, rows):
        output, state, context = intake.advance(state, row, row.get(name))
        found = intake.target.describe(output, context)
        if isinstance(intake.target, NumberTarget) and isinstance(context, NumberContext):
            found += intake.target.interval(output, context).T.ravel().tolist()
        yield [position.row, *(row.get(column) for column in member), *found]


def _names(target: str, horizon: int, classes: int) -> list[str]:
    if classes:
        return [target, "probability"]
    names = [f"{target}+{i}" for i in range(1, horizon + 1)] or [target]
    return [*names, *(f"{name}_{end}" for name in names for end in ("low", "high"))]
