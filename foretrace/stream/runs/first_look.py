"""The first rows of a stream: notice of waiting, kinds of columns, likely mistakes."""

import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np

from foretrace._runs.escape import for_terminal
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Interrupted, Stop
from foretrace.stream.model.model_config import MOST
from foretrace.stream.read.formats import date_formats, number_format
from foretrace.stream.read.lines import Position, Row
from foretrace.stream.read.schema import Column, listed
from foretrace.stream.read.source import SYMBOL, Source
from foretrace.stream.read.values import as_label, as_number, as_words, is_absent, is_missing
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Plan, Rows, time_advice

PATIENCE = 2.0
"""Seconds without the first rows of a pipe after which a run reports that it is waiting."""

MIN_ROWS = 20
"""Minimum number of rows to report that most classes differ."""

KINDS = {
    "numeric": "numbers",
    "categorical": "categories",
    "time": "times",
    "text": "texts",
    "undecided": "without a value so far",
}
"""Words for the kinds of columns."""


def first_rows(
    count: int, source: Source, stream: Rows, stop: Stop, show: ProgressBar
) -> list[tuple[Row, Position]]:
    """Return the first rows of a stream; fewer if the stream ends.

    Args:
        count: number of rows.
        source: source of the rows. If it is a slow pipe, this is reported once.
        stream: rows of the source.
        stop: requests to stop, which also end the waiting.
        show: progress bar, which prints the report.

    Raises:
        KeyboardInterrupt: a stop was requested.
        SourceError: the source cannot be read.
    """
    found: list[tuple[Row, Position]] = []
    if source.pipe is not None:
        source.pipe.meanwhile = _notice(count, found, source.name, show)
    try:
        stop.waiting = True
        for item in islice(stream, count):
            found.append(item)
    except Interrupted:
        raise KeyboardInterrupt from None
    finally:
        stop.waiting = False
        if source.pipe is not None:
            source.pipe.meanwhile = lambda: None
    return found


def _notice(
    count: int, found: list[tuple[Row, Position]], name: str, show: ProgressBar
) -> Callable[[], float | None]:
    """Return a function that reports once how many rows are awaited.

    The other arguments are the same as in `first_rows`.
    """

    def notices() -> Iterator[float | None]:
        due = time.monotonic() + PATIENCE
        while (left := due - time.monotonic()) > 0:
            yield left
        show.say(
            f"waiting for the first {count} rows of {name}, of which {len(found)} have come; they "
            "decide the kinds of the columns and of the target, and are then learned like all "
            "later rows"
        )
        yield from repeat(None)

    return notices().__next__


def describe(config: StreamConfig, plan: Plan) -> list[str]:
    """Return a line for each kind of input, and one for the target."""
    if plan.names == [SYMBOL] and not plan.columns:
        return [f"input: the last character; target: the next one, of at most {plan.classes}"]
    lines = []
    for kind, title in KINDS.items():
        names = [str(column.name) for column in plan.columns if column.kind == kind]
        if names:
            lines.append(f"inputs, {title}: {listed(names)}")
    if config.previous:
        lines.append(f"input: the last known {config.target}")
    if plan.classes:
        more = ", or more as they come" if config.classes is None else ""
        what = f"a class, one of at most {plan.classes}{more}"
    elif config.horizon:
        what = f"a number, in each of the next {config.horizon} rows"
    else:
        what = "a number"
    lines.append(f"target: {config.target}, {what}")
    return [for_terminal(line) for line in lines]


def warnings(config: StreamConfig, plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each column of the first rows that looks like a mistake.

    Numbers and dates may have a format that cannot be read. Classes that hardly repeat cannot be
    learned. A class named "NA" may be a missing label.
    """
    lines = []
    for column in plan.columns:
        if column.name in config.unlagged:
            continue
        values = _present(rows, column.name)
        if (line := _unread(config, column, values)) is not None:
            lines.append(line)
        elif column.kind == "text" and not {"words", "network"} & {*config.model.expert_names()}:
            lines.append(
                f"column {column.name!r} holds texts, which only the experts words and network see"
            )
        elif column.kind == "text":
            count = len({word for value in values for word in as_words(value)})
            enough = min(2 ** (4 * count).bit_length(), MOST["words"])
            if 2 * count > config.words and enough > config.words:
                lines.append(
                    f"column {column.name!r} has {count} different words in its first "
                    f"{len(values)} texts, and many of them share one of {config.words} inputs; if "
                    f"rare words matter, begin a run with --words {enough}"
                )
    if config.target is None:
        return lines
    if config.delay and not plan.classes:
        lines += _shifted(config, [c.name for c in plan.columns if c.kind == "numeric"], rows)
    values = _present(rows, config.target, is_absent if plan.classes else is_missing)
    lines += [
        f"no label of the first {len(values)} rows is {name!r}, which has an alarm; no row is "
        "marked before one comes"
        for name in config.alarms
        if plan.classes and not {name, as_label(name)} & {*values}
    ]
    if unclear := [value for value in values if plan.classes and is_missing(value)]:
        lines.append(
            f"the target {config.target!r} is {unclear[0]!r} in {unclear.count(unclear[0])} of the "
            f"first {len(values)} rows, and this is a class of its own; leave the field empty "
            "where a label is missing"
        )
    written = number_format(values) if plan.classes and config.task == "auto" else None
    if written is not None:
        lines.append(
            f"the target {config.target!r} has numbers with {written.how}, such as "
            f"{written.example[:40]!r}, and they are taken for classes; write them "
            "as 1234.5, with --task regression; if they are classes, say --task classification"
        )
    elif len(set(values)) == 1 and not (plan.classes or config.horizon or config.task != "auto"):
        lines.append(
            f"the target {config.target!r} is {values[0][:40]!r} in all of the first {len(values)} "
            "rows, and is taken for a number; if it is a class, say --task classification"
        )
    elif len(values) >= MIN_ROWS and plan.classes and _is_mostly_unique(values):
        lines.append(
            f"the target {config.target!r} has {len(set(values))} classes in {len(values)} "
            f"rows, such as {values[0][:40]!r}; if they are numbers, write them as 1234.5 and "
            "choose --task regression"
        )
    return lines


def _unread(config: StreamConfig, column: Column, values: Sequence[str]) -> str | None:
    """Return a warning if a column has numbers or dates in an unreadable format, or None."""
    name, kind = column
    given = name in config.columns_of_given_kind
    if kind != ("numeric" if given else "categorical"):
        return None
    if not given and (forms := date_formats(values)):
        return (
            f"column {name!r} has dates that are not in ISO format, such as {values[0][:40]!r}, "
            f"and they are taken for categories; {time_advice(name, forms)}"
        )
    if (written := number_format(values)) is None:
        return None
    return (
        f"column {name!r} has numbers with {written.how}, such as {written.example[:40]!r}, and "
        f"they {'count as missing' if given else 'are taken for categories'}; write them as 1234.5"
    )


def _shifted(
    config: StreamConfig, names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a line if a column holds a late target when it is due or before; none otherwise.

    Only targets that differ from the one before count, so that no constant is taken for another.
    """
    columns, of_member = (str(config.target), *names), defaultdict[Any, list[list[float]]](list)
    for row in rows:
        values = [as_number(row.get(name)) for name in columns]
        found = [np.nan if value is None else value for value in values]
        of_member[None if config.member is None else row.get(config.member)].append(found)
    for k in range(1, min(config.delay, len(rows) - 1) + 1):
        same, there = np.zeros((2, len(names)))
        for table in map(np.array, of_member.values()):
            target, later = table[1:-k, :1], table[k + 1 :, 1:]
            target = np.where(target == table[: len(target), :1], np.nan, target)
            same += (target == later).sum(axis=0)
            there += (np.isfinite(target) & np.isfinite(later)).sum(axis=0)
        for name, count in zip(names, same - (same < 0.99 * there) * len(rows), strict=True):
            if count >= MIN_ROWS:
                command = f"--target {shlex.quote(name)} --horizon {k}"
                return [
                    f"column {name!r} has the target {config.target!r} {k} rows later: forecasts "
                    f"of that column by {command} --ignore {shlex.quote(columns[0])}, "
                    "without --delay, have smaller errors than predictions from late labels"
                ]
    return []


def _present(
    rows: Sequence[Mapping[str, Any]], name: str, lacks: Callable[[Any], bool] = is_missing
) -> list[str]:
    return [str(row[name]) for row in rows if not lacks(row.get(name))]


def _is_mostly_unique(values: Sequence[str]) -> bool:
    return 2 * len(set(values)) > len(values)
