"""The opening of a run on a stream: its plan, its rows from where it is, and its first lines."""

from itertools import chain

from foretrace._experts.by_name import OF_CLASSES
from foretrace._rows.source import Source
from foretrace._runs.config_json import from_json
from foretrace._runs.directory import read_begun
from foretrace._runs.follow import Session
from foretrace._runs.signals import Interrupted, Stop
from foretrace.stream._config import StreamConfig
from foretrace.stream._first_look import first_rows, reach
from foretrace.stream._first_look import warnings as first_warnings
from foretrace.stream._intake import Intake
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import Plan, Rows, check_columns, make_plan
from foretrace.stream._saved import StreamSaved


def open_rows(run: Session, source: Source, saved: StreamSaved) -> tuple[Plan, Rows, list[str]]:
    """Return the plan, the rows from where the run is, and what to warn of.

    The plan comes from a checkpoint; without one, from the configuration of a run that was stopped
    before its first one; else from the first rows.
    """
    config = run.config
    if saved.plan is not None:
        return _go_on(config, saved.plan, source, saved, run.stop)
    stream = source.rows()
    first = first_rows(config.look_ahead, source, stream, run.stop, run.show)
    rows = [row for row, _ in first]
    if not run.resumed or (recorded := read_begun(run.run, "plan")) is None:
        plan = make_plan(config, source, rows)
        return plan, chain(first, stream), first_warnings(config, plan, rows)
    plan = from_json(Plan, recorded)
    return plan, check_columns(source, chain(first, stream), _needed(config, plan)), []


def _needed(config: StreamConfig, plan: Plan) -> list[str]:
    """Return the columns that a source must have."""
    target = [] if config.target is None else [config.target]
    return [*plan.inputs, *target, *config.roles]


def _go_on(
    config: StreamConfig, plan: Plan, source: Source, saved: StreamSaved, stop: Stop
) -> tuple[Plan, Rows, list[str]]:
    """Return the plan of a checkpoint, the rows behind it, and the lost part of standard input."""
    rows = source.rows(saved.position, plan.names)
    checked = check_columns(source, rows, _needed(config, plan))
    if source.pipe is None or saved.pipe is None:
        return plan, checked, []
    try:
        stop.waiting = True
        lost = source.pipe.restore(saved.pipe, quotes=source.has_quotes)
    except Interrupted:
        lost = []  # the loop stops before its first row
    finally:
        stop.waiting = False
    return plan, checked, lost


def describe_model(intake: Intake) -> list[str]:
    """Return a run's report of its experts and its network."""
    config, shape, mixture = intake.config, intake.shape, intake.mixture
    experts = [name for name in config.expert_names() if shape.classes or name not in OF_CLASSES]
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
