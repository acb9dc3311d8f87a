"""The plan of a stream: decisions from its configuration and first rows."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import pstdev
from typing import Any

from foretrace.stream.experts.by_name import Own
from foretrace.stream.model.intake import Intake
from foretrace.stream.model.model import resolve, shape_of
from foretrace.stream.model.model_config import MOST
from foretrace.stream.read.encode import SPARE_FEATURES, Encoder, room
from foretrace.stream.read.formats import date_formats, number_format
from foretrace.stream.read.frame import FrameSource
from foretrace.stream.read.journal import Feed, Journal, PipeFeed
from foretrace.stream.read.lines import MAX_COLUMNS, Position, Row, SourceError
from foretrace.stream.read.schema import Column, check_column, infer_columns, is_classes, listed
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.source import SYMBOL, Source, detect_format
from foretrace.stream.read.streams import Streams, gap, seconds_of
from foretrace.stream.read.target import ClassTarget, NumberTarget, Target, class_room
from foretrace.stream.read.values import as_label, as_number, as_time, check_number, is_missing
from foretrace.stream.runs.config import LOOK_AHEAD, StreamConfig

Rows = Iterator[tuple[Row, Position]]

_TEXT_CLASSES = 256

MAX_INPUTS = {"categories": 2**16, "words": 2**19}
"""Maximum number of inputs for categories, and for words."""

MIN_GAPS = 20
"""Minimum number of gaps between first rows that show whether a column of times is irregular."""

REGULAR = 0.01
"""Largest standard deviation of the gaps' logarithm for which a column of times is regular."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Decisions from the first rows of a stream, made once and stored in the checkpoint.

    Args:
        columns: input columns and their kinds.
        names: names of all columns, or the characters of a text.
        classes: maximum number of classes; 0 if numbers are predicted.
        gaps: columns that are added for the time since the previous row, each with the column of
            times from which it is computed.
        spare: number of inputs for columns that appear later, as in rows of JSON.
        own: names of the user's experts.

    Raises:
        ValueError: there are more columns or classes than a stream may have.
    """

    columns: list[Column]
    names: list[str]
    classes: int
    gaps: dict[str, str] = dataclasses.field(default_factory=dict)
    spare: int = 0
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, count, most in (
            ("columns", len(self.columns), MAX_COLUMNS),
            ("names", len(self.names), MAX_COLUMNS),
            ("classes", self.classes, MOST["classes"]),
            ("spare", self.spare, SPARE_FEATURES),
        ):
            if not 0 <= count <= most:
                raise ValueError(f"plan.{name}: {count} must lie between 0 and {most}")
        if any(Column(name, "numeric") not in self.columns for name in self.gaps):
            raise ValueError(f"plan.gaps: {self.gaps} must be columns of numbers")

    @property
    def inputs(self) -> list[str]:
        """Names of the input columns, or the characters of a text."""
        names = [column.name for column in self.columns if column.name not in self.gaps]
        return names or self.names * (self.names == [SYMBOL])


def open_source(config: StreamConfig, frame: Any = None, feed: Feed | None = None) -> Source:
    """Return the source of a configuration.

    Args:
        config: configuration of the stream.
        frame: pandas frame whose rows are read. Default: the configuration's source.
        feed: feed of the journal, if the source is a journal. Default: standard input.

    Raises:
        SourceError: the format is not known.
        ValueError: no target is named, or settings contradict each other.
    """
    times, ahead = config.time_formats, config.ahead
    if config.topic is not None:
        raise ValueError(
            f"source={config.source!r}: a topic of Kafka is read by the command foretrace stream "
            "alone; give a file here"
        )
    if frame is not None:
        source: Source = FrameSource(frame, times, ahead)
    else:
        journal = config.journal if feed is None else config.source
        if journal is not None and feed is None:
            lines = detect_format(journal) if config.format == "auto" else config.format
            feed = PipeFeed(has_header=lines in ("csv", "tsv")).lines
        source = Source(
            config.source if journal is None else journal,
            config.format,
            times=times,
            ahead=ahead,
            journal=None if feed is None or journal is None else Journal(journal, feed),
            **{name: getattr(config, name) for name in ("delimiter", "encoding", "bad_rows")},
        )
    if source.format == "text":
        if feed is not None:
            raise ValueError("a text has no lines to be written to a journal; leave out --journal")
        given = config.horizon, config.task == "regression", config.roles, not config.previous
        if config.target is not None or any(given):
            raise ValueError(
                "a text has one column, its characters, and the target is the next character: "
                "leave out --target, --horizon, --task, --member, --reset, --id and --no-previous"
            )
    elif config.target is None:
        raise ValueError(
            f"no target is given: name the column of {source.name} to predict by --target COLUMN"
        )
    if config.horizon and config.task == "classification":
        raise ValueError("--horizon predicts numbers; classes are predicted for the row itself")
    return source


class OtherColumnsError(SourceError):
    """The columns of a source differ from the columns of the run."""


def check_columns(source: Source, rows: Rows, needed: Sequence[str]) -> Rows:
    """Return the rows, after a check that the first row has the learned columns.

    Args:
        source: source of the rows.
        rows: rows of the source.
        needed: columns that must exist. A row of JSON may lack some of them, but not all.

    Raises:
        OtherColumnsError: the first row has other columns.
    """
    first = next(rows, None)
    if first is None:
        return rows
    names = first[0].keys()
    missing = [name for name in needed if name not in names]
    if missing and (source.format != "jsonl" or len(missing) == len(needed)):
        others = [repr(name[:80]) for name in names if name not in needed]
        lacks = listed([repr(name[:80]) for name in missing], 8)
        raise OtherColumnsError(
            f"{source.name} has other columns than the run has learned from: it lacks "
            f"{lacks}, and {listed(others, 8) or 'nothing'} is new; give it the columns of the "
            "run, or begin a new run"
        )
    return chain([first], rows)


def make_plan(config: StreamConfig, source: Source, rows: Sequence[Mapping[str, Any]]) -> Plan:
    """Determine the kinds of the columns and of the target from the first rows.

    Raises:
        ValueError: there are no rows, no inputs, or a named column does not exist.
    """
    if not rows:
        missing = f" with a value of {config.target!r}" if config.known else ""
        raise ValueError(f"{source.name} has no rows{missing}")
    if source.format == "text":
        return Plan([], [SYMBOL], config.classes or _TEXT_CLASSES)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(names) > MAX_COLUMNS:
        raise ValueError(
            f"{source.name}: the first {len(rows)} rows have {len(names)} columns together, but at "
            f"most {MAX_COLUMNS} are read; give every row the same columns"
        )
    assert config.target is not None
    added = set(config.unlagged)
    own = [name for name in names if name not in added]
    for name in (config.target, *config.known, *config.expert_column):
        check_column(name, own)
    found = infer_columns(rows, config.kinds, texts=config.words > 0)
    _check_times(config, rows)
    for name in (*config.known, *config.expert_column):
        for row in rows:
            check_number(row.get(name), name)
    columns = [column for column in found if column.name != config.target]
    if not columns and not config.previous:
        raise ValueError(
            "there is no input: no columns are left, and --no-previous leaves out the target; "
            "ignore fewer columns"
        )
    gaps = _gaps(config, columns, names, rows)
    columns += [Column(name, "numeric") for name in gaps]
    classes = _classes(config, [row.get(config.target) for row in rows])
    spare = SPARE_FEATURES * (source.format == "jsonl")
    return Plan(columns, names, classes, gaps=gaps, spare=spare)


def _check_times(config: StreamConfig, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error if a column that was given as times has no readable time."""
    for name, kind in config.kinds.items():
        values = [row[name] for row in rows if not is_missing(row.get(name))]
        if kind == "time" and values and all(as_time(value) is None for value in values):
            forms = date_formats([str(value) for value in values])
            given = config.time_formats.get(name)
            how = "in ISO format" if given is None else f"as {given}"
            raise ValueError(
                f"time={name}: none of the {len(values)} values in the first rows is a date {how}, "
                f"such as {str(values[0])[:40]!r}; {time_advice(name, forms)}"
            )


def time_advice(name: str, forms: Sequence[str]) -> str:
    """Return advice on how to give the format of a column of times."""
    shown = " or ".join(f'--time "{name}={form}"' for form in forms or ("%d.%m.%Y %H:%M",))
    return f"give the format, {'' if forms else 'as in '}{shown}"


def _gaps(
    config: StreamConfig,
    columns: Sequence[Column],
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    """Return the name of the added column for each irregular column of times."""
    found = {}
    for column in columns:
        name = f"time since the last {column.name}"
        if column.kind != "time" or name in names:
            continue
        last: dict[Any, float] = {}
        gaps = []
        for row in rows:
            member = None if config.member is None else row.get(config.member)
            now = seconds_of(row.get(column.name))
            if now is not None:
                gaps.append(gap(last.get(member), now))
                last[member] = now
        known = [one for one in gaps if one is not None]
        if len(known) >= MIN_GAPS and pstdev(known) > REGULAR:
            found[name] = column.name
    return found


def _classes(config: StreamConfig, values: list[Any]) -> int:
    """Return the maximum number of classes; 0 if the target is a number.

    Raises:
        ValueError: no row has a usable label, or numbers are to be predicted and no label is a
            number.
    """
    if config.task == "auto" and not config.horizon and all(is_missing(value) for value in values):
        raise ValueError(
            f"the first {len(values)} rows have no value of {config.target!r} and do not tell "
            "whether it is a class or a number: say --task classification or --task regression"
        )
    if (
        config.task == "regression"
        or config.horizon
        or (config.task == "auto" and not is_classes(values))
    ):
        _check_numbers(config, values)
        return 0
    return config.classes or min(class_room(values), MOST["classes"])


def _check_numbers(config: StreamConfig, values: list[Any]) -> None:
    """Check that some target is a number, unless all are missing."""
    present = [value for value in values if not is_missing(value)]
    if present and all(as_number(value) is None for value in present):
        written = number_format([as_label(value) for value in present])
        how = "" if written is None else f" (numbers with {written.how})"
        raise ValueError(
            f"the first {len(values)} rows have no number in {config.target!r}, but texts such as "
            f"{as_label(present[0])[:40]!r}{how}; write numbers as 1234.5, or say --task "
            "classification and leave out --horizon"
        )


def build(config: StreamConfig, plan: Plan, own: Own = ()) -> Intake:
    """Return the intake, which turns rows into learning steps.

    Args:
        config: configuration of the run.
        plan: decisions from the first rows.
        own: the user's experts.

    Raises:
        ValueError: the user's experts differ from those of the run; or the inputs, or the waiting
            rows, would need too much memory.
    """
    _check_sizes(config, plan)
    if (names := tuple(name for name, _ in own)) != plan.own:
        raise ValueError(
            f"the run began with the experts {list(plan.own)} of its user's own, and is given "
            f"{list(names)}: give their classes to ft.stream.run, as experts={{'mine': Mine}}"
        )
    stops = config.outliers == "stop"
    options: dict[str, Any] = {"categories": config.categories, "hashed": config.words}
    without = [name for name, kind in config.kinds.items() if kind is None]
    encoder = Encoder(
        plan.columns,
        width=room(plan.columns, **options) + plan.spare,
        adopt=plan.spare > 0,
        ignore=[*without, config.target],
        stops=stops,
        unlagged=config.unlagged,
        **options,
    )
    target = _target(config, plan)
    members = None if not config.has_members else 1 if config.member is None else config.members
    shape = shape_of(
        encoder,
        target,
        previous=config.previous,
        delay=config.delay + config.horizon,
        waiting=config.waiting,
        members=members,
        ahead=config.horizon > 0,
        masks=config.outliers == "mask",
        sentinels=config.outliers == "auto",
        coverage=config.coverage,
        alarms=tuple(config.alarms.values()) if plan.classes else (),
        at_least=config.at_least,
        outside=config.expert_column,
    )
    streams = Streams(
        encoder,
        target,
        SlotTable(shape.slots),
        delay=config.delay,
        horizon=config.horizon,
        gaps=plan.gaps,
        outside=config.expert_column,
    )
    model = resolve(config.model, shape)
    return Intake(
        streams,
        *model,
        member=config.member,
        reset=config.reset,
        stops=stops,
        chunk=config.chunk,
        own=own,
    )


def _check_sizes(config: StreamConfig, plan: Plan) -> None:
    """Check the sizes of host buffers before allocating them."""
    for name, kinds in (("categories", ("categorical", "undecided")), ("words", ("text",))):
        size, count = getattr(config, name), sum(one.kind in kinds for one in plan.columns)
        if size * count > MAX_INPUTS[name]:
            raise ValueError(
                f"{name}={size} for each of {count} columns are more than {MAX_INPUTS[name]} "
                f"inputs; choose fewer --{name}, or --ignore columns"
            )


def _target(config: StreamConfig, plan: Plan) -> Target:
    if plan.classes:
        if config.at_least is not None:
            raise ValueError(
                f"at_least={config.at_least} bounds numbers, and the target is a class; leave it "
                "out, or say --task regression if it is a number"
            )
        if config.expert_column:
            raise ValueError(
                f"expert_column={config.expert_column} holds predicted numbers, and the target is "
                "a class; leave it out, or say --task regression if it is a number"
            )
        look_ahead = LOOK_AHEAD if config.task == "auto" else None
        grows, alarms = config.classes is None, config.alarms
        return ClassTarget(plan.classes, grows=grows, look_ahead=look_ahead, alarms=alarms)
    return NumberTarget(max(config.horizon, 1), at_least=config.at_least)
