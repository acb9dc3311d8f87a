"""A run of `foretrace stream`: rows in, scores and checkpoints out, exactly resumable."""

import os
from contextlib import closing, nullcontext
from itertools import chain
from typing import Any, cast

from foretrace._experts.mixture import Mixture
from foretrace._rows.source import Source, check_row_count
from foretrace._runs.appended import FileMark
from foretrace._runs.checkpoint import restoring
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import read_begun
from foretrace._runs.session import Session, session
from foretrace._runs.signals import Interrupted, Stop
from foretrace._runs.tensorboard import Board
from foretrace.stream._config import StreamConfig
from foretrace.stream._first_look import describe, first_rows, reach
from foretrace.stream._first_look import warnings as first_warnings
from foretrace.stream._in_c import NativeMixture
from foretrace.stream._intake import Intake
from foretrace.stream._loop import StreamLoop, StreamResult
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import Plan, Rows, build, check_columns, make_plan, open_source
from foretrace.stream._predictions import OnPrediction, Outlet
from foretrace.stream._saved import KIND, StreamSaved, saved_of


def follow(
    config: StreamConfig,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    rows: int | None = None,
    tensorboard: bool = False,
    show_progress: bool = True,
    on_prediction: OnPrediction | None = None,
    frame: Any = None,
) -> StreamResult:
    """Learn from a stream to its end, or to Ctrl-C or SIGTERM; `resume` continues.

    A resumed run on a file ends with the same state and record, bit for bit, as one that was never
    stopped; only times and memory in the record differ. On standard input it continues with the
    next row that comes.

    Args:
        config: the stream and the model that learns.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        resume: whether to continue the run in the directory.
        rows: total number of rows after which to stop, including those before the resumption.
        tensorboard: whether the metrics are also written for TensorBoard.
        show_progress: whether rows, scores and speed are shown on standard error.
        on_prediction: function that is called with the prediction of each row.
        frame: frame of pandas whose rows are read. Default: the configuration's source.

    An error in the middle of the run, in the data or of learning, also saves the state before it is
    raised.

    Raises:
        ValueError: the source cannot be read (`SourceError`), settings do not fit it, or the
            directory cannot be used (`RunError`) or is in use (`LockedError`).
        CheckpointError: the checkpoint to continue from is damaged.
        DivergenceError: loss or gradient was NaN or infinite for many steps in a row.
        OSError: a file could not be written in the middle of the run.
    """
    check_row_count(rows)
    with session(KIND, config, run_dir, resume, show_progress) as run:
        saved = saved_of(run.run, run.before) if resume else StreamSaved()
        source = open_source(config, frame)
        plan, stream, warnings = _begin(run, source, saved)
        intake = build(config, plan)
        outlet = _outlet(run, intake, on_prediction, saved)
        if config.backend == "native":
            # It has all that a run asks of a mixture.
            intake.use(lambda mixture: cast(Mixture, NativeMixture(mixture)))
        _ = intake.mixture  # reports wrong settings before anything is written
        with outlet.claimed() as mark:
            run.begin(saved, plan=plan.to_json(), predictions=mark)
        for line in (*describe(config, plan), *_describe_model(intake)):
            run.show.say(line)
        kinds = {column.kind for column in plan.columns}
        found = {"classes": bool(plan.classes), "format": source.format, "kinds": kinds}
        without = config.without_effect(**found)
        for line in (*(options.on_command_line() for options in without), *warnings):
            run.show.say(f"warning: {line}")
        with (
            closing(Board(run.run.path / "tensorboard")) if tensorboard else nullcontext() as board,
            closing(outlet),
        ):
            outlet.open()
            with restoring(run.run.checkpoint) if saved.step >= 0 else nullcontext():
                loop = StreamLoop(run, plan, intake, source, saved, board, outlet)
            return loop.follow(stream, rows)


def _outlet(
    run: Session[StreamConfig],
    intake: Intake,
    on_prediction: OnPrediction | None,
    saved: StreamSaved,
) -> Outlet:
    """Return the outlet of predictions; before the first checkpoint, a run has begun its file."""
    mark = saved.predictions
    if run.resumed and saved.step < 0:
        begun = read_begun(run.run, "predictions")
        mark = None if begun is None else from_json(FileMark, begun)
    rows = saved.position.row
    return Outlet(run.config, intake.target, on_prediction, run.run, mark, rows)


def _begin(
    run: Session[StreamConfig], source: Source, saved: StreamSaved
) -> tuple[Plan, Rows, list[str]]:
    """Return the plan, the rows from where the run is, and what to warn of.

    The plan comes from a checkpoint; without one, from the configuration of a run that was stopped
    before its first one; else from the first rows.
    """
    config = run.config
    if saved.step >= 0:
        return _go_on(config, source, saved, run.stop)
    stream = source.rows()
    first = first_rows(config.look_ahead, source, stream, run.stop, run.show)
    rows = [row for row, _ in first]
    if not run.resumed or (recorded := read_begun(run.run, "plan")) is None:
        plan = make_plan(config, source, rows)
        return plan, chain(first, stream), first_warnings(config, plan, rows)
    plan = Plan.from_json(recorded)
    return plan, check_columns(source, chain(first, stream), _needed(config, plan)), []


def _needed(config: StreamConfig, plan: Plan) -> list[str]:
    """Return the columns that a source must have."""
    target = [] if config.target is None else [config.target]
    return [*plan.inputs, *target, *config.roles]


def _go_on(
    config: StreamConfig, source: Source, saved: StreamSaved, stop: Stop
) -> tuple[Plan, Rows, list[str]]:
    """Return the plan of a checkpoint, the rows behind it, and the lost part of standard input."""
    plan = Plan.from_json(saved.plan)
    needed = _needed(config, plan)
    rows = source.rows(saved.position, plan.names)
    if source.pipe is None or saved.pipe is None:
        return plan, check_columns(source, rows, needed), []
    try:
        stop.waiting = True
        lost = source.pipe.restore(saved.pipe, quotes=source.has_quotes)
    except Interrupted:
        lost = []  # the loop stops before its first row
    finally:
        stop.waiting = False
    return plan, _checked_later(source, rows, needed), lost


def _checked_later(source: Source, rows: Rows, needed: list[str]) -> Rows:
    """Look at a pipe's first row when needed: no byte is read before the checkpoint."""
    yield from check_columns(source, rows, needed)


def _describe_model(intake: Intake) -> list[str]:
    """Return a run's report of its experts and its network."""
    config, shape, mixture = intake.config, intake.shape, intake.mixture
    experts = [name for name in config.expert_names() if name != "contexts" or shape.classes]
    lines = [f"experts: {', '.join(experts)}"]
    if mixture.reach or not config.has_network:
        lines.append(reach(mixture.reach, mixture.groups))
    if mixture.left_out:
        left_out = ", ".join(mixture.left_out)
        lines.append(
            f"left out, too large with {shape.inputs} inputs and {shape.outputs} outputs: "
            f"{left_out}"
        )
    return [*lines, _describe_network(config)] if config.has_network else lines


def _describe_network(config: ModelConfig) -> str:
    what = "the encoder and the norms before the recurrent layers"
    frozen = "" if config.train_encoder else f"; {what} are frozen"
    return f"cell {config.cell or 'lru'}, rule {config.rule}, {config.sizes()[0]} layers{frozen}"
