"""The opening of a run on a stream: plan, rows after the present position, first messages."""

import dataclasses
from itertools import chain, islice
from typing import Any

from foretrace._runs.config_json import from_json
from foretrace._runs.directory import read_begun
from foretrace._runs.follow import Session
from foretrace.stream.experts.by_name import OF_CLASSES
from foretrace.stream.experts.distant import REACH
from foretrace.stream.model.intake import Intake
from foretrace.stream.read.encode import SPARE_FEATURES
from foretrace.stream.read.source import Source
from foretrace.stream.runs.config import LOOK_AHEAD, StreamConfig
from foretrace.stream.runs.first_look import first_rows
from foretrace.stream.runs.first_look import warnings as first_warnings
from foretrace.stream.runs.plan import Plan, Rows, check_columns, make_plan, open_source
from foretrace.stream.runs.saved import StreamSaved


def open_rows(
    run: Session, source: Source, saved: StreamSaved, *, checked: bool = False
) -> tuple[Plan, Rows, list[str]]:
    """Return the plan, the rows after the run's position, and warnings.

    The plan comes from the checkpoint. A run that was stopped before its first checkpoint has it in
    its configuration file. Otherwise the first rows determine it.

    Args:
        run: the open run.
        source: source of the rows.
        saved: checkpoint of the run.
        checked: whether the columns of each row were checked before the source got it.
    """
    config = run.config

    def looked(plan: Plan, rows: Rows, *, waits: bool) -> tuple[Plan, Rows, list[str]]:
        if not checked:
            check = _checked_later if waits else check_columns
            rows = check(source, rows, _needed(config, plan))
        return plan, rows, []

    if (plan := saved.plan) is not None:
        return looked(plan, source.rows(saved.position), waits=source.pipe is not None)
    if config.like is not None:
        return looked(_planned_like(run, source), source.rows(), waits=True)
    stream = source.rows()
    first = first_rows(LOOK_AHEAD, source, stream, run.stop, run.show)
    rows = [row for row, _ in first]
    if not run.resumed or (recorded := read_begun(run.run, "plan")) is None:
        plan = make_plan(config, source, rows)
        return plan, chain(first, stream), first_warnings(config, plan, rows)
    return looked(from_json(Plan, recorded), chain(first, stream), waits=False)


def _planned_like(run: Session, source: Source) -> Plan:
    """Return the plan of a new run, made from the first rows of a file like its source."""
    config = run.config
    if run.resumed and (recorded := read_begun(run.run, "plan")) is not None:
        return from_json(Plan, recorded)
    return plan_like(config, grows=source.format == "jsonl")


def plan_like(config: StreamConfig, *, grows: bool) -> Plan:
    """Return the plan of a stream, made from the first rows of `config.like`.

    Args:
        config: configuration of the stream.
        grows: whether further columns may appear, as in JSON lines, whatever the format of the
            file.

    Raises:
        ValueError: the file cannot be read, or does not fit the configuration.
    """
    assert config.like is not None
    changes: dict[str, Any] = {"source": config.like, "journal": None, "predictions": None}
    config = dataclasses.replace(config, **changes, format="auto")
    sample = open_source(config)
    rows = [row for row, _ in islice(sample.rows(), LOOK_AHEAD)]
    if all(config.id not in row for row in rows):  # rows get their ids when they arrive
        config = dataclasses.replace(config, id=None, waiting=0, keep=None)
    plan = make_plan(config, sample, rows)
    return dataclasses.replace(plan, spare=SPARE_FEATURES * grows)


def _needed(config: StreamConfig, plan: Plan) -> list[str]:
    """Return the columns that a source must have."""
    target = [] if config.target is None else [config.target]
    added = set(config.unlagged)
    return [*(name for name in plan.inputs if name not in added), *target, *config.roles]


def _checked_later(source: Source, rows: Rows, needed: list[str]) -> Rows:
    """Check the first row of a pipe when it arrives, which may take long."""
    yield from check_columns(source, rows, needed)


def describe_model(intake: Intake) -> list[str]:
    """Return a run's report of its experts and its network."""
    config, shape, mixture = intake.config, intake.shape, intake.mixture
    experts = [name for name in config.expert_names() if shape.classes or name not in OF_CLASSES]
    lines = [f"experts: {', '.join(experts)}"]
    if mixture.reach or not config.has_network:
        single = f"single values up to {REACH:,} rows back are searched by the expert `distant`"
        unseen = "no expert sees the inputs of an ordinary row further back"
        further = single if "distant" in mixture.groups else unseen
        lines.append(f"the lags reach back {mixture.reach} rows; {further}")
    if mixture.pure.left_out:
        left_out = ", ".join(mixture.pure.left_out)
        lines.append(
            f"left out, too large with {shape.inputs} inputs and {shape.outputs} outputs: "
            f"{left_out}"
        )
    if config.has_network:
        what = "the encoder and the norms before the recurrent layers"
        is_trained = mixture.network is not None and mixture.network.trains_encoder(1)
        frozen = "" if is_trained else f"; {what} are frozen"
        lines.append(f"cell {config.cell}, rule {config.rule}, {config.depth} layers{frozen}")
    return lines
