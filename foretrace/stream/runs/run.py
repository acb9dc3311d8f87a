"""A run of `foretrace stream`: it reads rows, writes scores and checkpoints, can be resumed."""

import dataclasses
import math
import os
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from foretrace._runs.checkpoint import restoring
from foretrace._runs.config_json import to_json
from foretrace._runs.directory import Run
from foretrace._runs.follow import Program, Result, Session
from foretrace._runs.follow import follow as follow_program
from foretrace._runs.machine import resident_mib
from foretrace._runs.signals import Interrupted
from foretrace.stream.experts.by_name import own_experts
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.model.intake import State
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.state import Mixed, MixtureState, Report, Scored
from foretrace.stream.read.lines import Position, Row
from foretrace.stream.read.pipe import NOT_AGAIN, Pipe
from foretrace.stream.read.scores import means, not_better, of_classes
from foretrace.stream.read.source import Source, check_row_count
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.read.values import as_text
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.first_look import describe
from foretrace.stream.runs.ignored import ignored
from foretrace.stream.runs.monitors import Monitors
from foretrace.stream.runs.opening import describe_model, open_rows
from foretrace.stream.runs.part import Part
from foretrace.stream.runs.plan import OtherColumnsError, Plan, Rows, open_source
from foretrace.stream.runs.predictions import OnPrediction, Outlet, forecast
from foretrace.stream.runs.saved import KIND, StreamSaved, check_not_lost, load_state


class StreamResult(NamedTuple):
    """Result of a run on a stream.

    Args:
        run: run directory.
        position: position after the last row.
        scores: mean scores of the run and of the baselines, over all rows that have a label.
        stopped: whether a stop request ended the run before the end of its rows.
        experts: score of each expert over the same rows: the accuracy, or the mean absolute error.
        weights: present weight of each expert.
        forecast: predicted next values after the last row of each member, as rows of a table. Empty
            without a horizon.
        classes: labels, predictions, recall and precision of the rarest classes and of each alarm,
            as rows of a table. Empty if the target is a number.
    """

    run: Run
    position: Position
    scores: dict[str, float]
    stopped: bool
    experts: dict[str, float]
    weights: dict[str, float]
    forecast: list[dict[str, Any]]
    classes: Sequence[dict[str, Any]] = ()

    @property
    def run_dir(self) -> Path:
        """Run directory, with the configuration, the record and the checkpoint."""
        return self.run.path

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return self.position.row


def follow(
    config: StreamConfig,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    show_progress: bool = True,
    **options: Any,
) -> StreamResult:
    """Learn from a stream to its end, or until Ctrl-C or SIGTERM. `resume` continues a run.

    A resumed run on a file ends with the same state and record, bit for bit, as a run that was not
    stopped. Only times and memory in the record differ. On standard input, a resumed run continues
    with the next row that arrives, and rows that were read ahead are lost.

    Args:
        config: configuration of the stream and of its model.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        resume: whether to continue the run in the directory.
        show_progress: whether to show rows, scores and speed on standard error.
        **options: options of `Learning`.

    If an error occurs during the run, in the data or in learning, the state is saved before the
    error is raised.

    Raises:
        ValueError: the source cannot be read (`SourceError`), settings do not fit it, or the
            directory cannot be used (`RunError`) or is in use (`LockedError`).
        CheckpointError: the checkpoint is damaged.
        DivergenceError: loss or gradient was NaN or infinite in many consecutive steps.
        OSError: a file could not be written during the run.
    """
    learning = partial(Learning, **options)
    return follow_program(
        KIND, config, run_dir, learning, resume=resume, show_progress=show_progress
    )


class Learning(Program[State]):
    """A run on a stream, in which a block reads and learns a chunk of rows.

    Args:
        session: the open run.
        rows: total number of rows after which to stop, including rows before the resumption.
        tensorboard: whether the metrics are also written for TensorBoard.
        on_prediction: function that is called with the prediction of each row.
        frame: pandas frame whose rows are read. Default: the configuration's source.
        experts: the user's experts, by name.
    """

    saved = StreamSaved
    unit = "row"
    save_seconds = 60.0

    def __init__(
        self,
        session: Session,
        *,
        rows: int | None = None,
        tensorboard: bool = False,
        on_prediction: OnPrediction | None = None,
        frame: Any = None,
        experts: Mapping[str, type[AbstractExpert]] | None = None,
    ):
        check_row_count(rows)
        super().__init__(session)
        self.config = config = session.config
        self.rows, self.tensorboard = rows, tensorboard
        self.on_prediction, self.frame = on_prediction, frame
        self.own = own_experts(experts)
        self.monitors = Monitors(config.coverage, config.unusual)
        self.chunk: list[tuple[Row, Position]] = []  # read, but not learned yet
        self.at_end = self.warned = False

    def opened(self) -> Source:
        """Return the source of the rows."""
        return open_source(self.config, self.frame)

    def restore(self, saved: StreamSaved) -> None:
        """Open the source at its position, and build the intake."""
        run, config = self.session, self.config
        self.is_resumed = saved.step >= 0
        if run.resumed:
            check_not_lost(run.run)
        self.source = self.opened()
        self.pipe = self.source.pipe
        self.plan, self.stream, self.warnings = self.rows_from(saved)
        if not (self.is_resumed or run.resumed):
            names = tuple(name for name, _ in self.own)
            self.plan = dataclasses.replace(self.plan, own=names)
        self.part = Part(config, self.plan, self.own)
        self.intake = self.part.intake
        also, mark = self.on_prediction, saved.predictions
        self.outlet = Outlet(config, self.intake.target, also, run.run, mark)
        if self.is_resumed:
            with restoring(run.run.checkpoint):
                self.part.restore(saved)
                self.monitors.restore(saved.monitors)
        _ = self.mixture  # reports wrong settings before anything is written

    def rows_from(self, saved: StreamSaved) -> tuple[Plan, Rows, list[str]]:
        """Return the plan, the rows after a checkpoint, and warnings."""
        return open_rows(self.session, self.source, saved)

    @property
    def mixture(self) -> Mixture:
        """The mixture that predicts and learns. It is replaced when the number of classes grows."""
        return self.intake.mixture

    def init(self) -> MixtureState:
        """Return the state before the first row."""
        return self.mixture.init()

    def load(self) -> MixtureState:
        """Return the state of the checkpoint, for an intake that is restored."""
        return load_state(self.session.run.checkpoint, self.intake)

    def recorded(self) -> dict[str, Any]:
        """Return the plan, which is recorded before the first checkpoint."""
        return {"plan": to_json(self.plan)}

    def begun(self) -> None:
        """Report columns and target, and open the file of predictions."""
        for line in (*describe(self.config, self.plan), *describe_model(self.intake)):
            self.session.show.say(line)
        kinds, is_class = {column.kind for column in self.plan.columns}, bool(self.plan.classes)
        without = ignored(self.config, classes=is_class, format=self.source.format, kinds=kinds)
        for line in (*without, *self.warnings):
            self.session.show.say(f"warning: {line}")
        self.session.stack.enter_context(closing(self.outlet))
        self.outlet.open()
        self.part.begin(self.state)
        del self.state  # the part has its own copy
        self.rows_at_last_log, self.time_of_last_log = self.step, time.monotonic()
        if not self.is_resumed:
            self.save()
        if self.pipe is not None:
            if isinstance(self.pipe, Pipe):
                self.session.show.say(NOT_AGAIN)
            self.pipe.meanwhile = self._while_waiting

    @property
    def ended(self) -> bool:
        """Whether all rows are read."""
        return self.at_end or (self.rows is not None and self.step + len(self.chunk) >= self.rows)

    def block(self) -> None:
        """Read and learn a chunk of rows, or those that are left."""
        self.intake.parts.end("records")
        torn: list[tuple[Row, Position]] = []
        every, saved = self.config.log_every, self.config.checkpoint_every
        size = min(self.intake.chunk, *(one - self.step % one for one in (every, saved)))
        while not self.ended and len(self.chunk) < size:
            try:
                item = self._next()
            except Exception:
                if self.is_whole and self.chunk:
                    self._learn()  # the rows before the one that cannot be read
                raise
            self.intake.parts.end("reading")
            if item is None or item[1].is_torn:
                self.at_end = True  # the next bytes may be the rest of this line
                torn = [] if item is None else [item]
            else:
                self.chunk.append(item)
        before = self.step
        if self.chunk:
            self._learn()
        self.chunk = torn
        if self.step // every > before // every:
            self._report()

    def kept(self) -> tuple[State, dict[str, Any]]:
        """Return a copy of the state after the last learned row, and the additional values."""
        return self.part.to_save(), self.beside()

    def beside(self) -> dict[str, Any]:
        """Return the values of a checkpoint in addition to the state."""
        return self.part.to_json() | {
            "plan": to_json(self.plan),
            "monitors": self.monitors.to_json(),
            "predictions": self.outlet.mark(),
        }

    def result(self) -> dict[str, Any]:
        """Return the scores over all rows.

        If a file has grown, a resumed run continues as if the file had not ended. Two things are
        therefore not in the checkpoint: an incomplete last line, and last rows whose next rows are
        not all known.

        Raises:
            ValueError: no label was learned, because members lost all labels that were due.
        """
        end = None if self.rows is None else self.rows - self.step
        rest = list(islice(chain(self.chunk, self.stream if self.config.known else ()), end))
        for start in range(0, len(rest), self.intake.chunk):
            self.chunk = rest[start : start + self.intake.chunk]
            self._learn()
        report = self._checked_report()
        if not report.total["rows"]:
            self._check_not_dropped()
        self.monitors.look(report.block)
        self.intake.changed_units(report.units, self.step)
        worse = not_better(self.mixture.pure.scores, report.total)
        scores = means(self.mixture.pure.scores, report.total)
        return self._values(report, scores, not_better_than=worse, changes=self.intake.changes)

    def _check_not_dropped(self) -> None:
        """Raise a ValueError if no label was learned because members lost most of them."""
        counts = self.intake.streams.table.counts
        if 2 * counts["labels dropped"] > self.step:  # or most labels are missing or not due
            wait = self.intake.streams.total_delay
            raise ValueError(
                f"nothing was learned from {self.step} rows: a label comes {wait} rows of its "
                f"member later, and all were dropped, as members lost their slot "
                f"({counts['evictions']} times) or started anew ({counts['resets']} times) before; "
                f"raise --members (now {self.config.members}) to the number of members in turn, or "
                "choose a smaller --horizon or --delay than a member has rows"
            )

    def outcome(self, result: Result) -> StreamResult:
        """Return the result of the run as a `StreamResult`."""
        report = self.mixture.report(self.part.state)
        return StreamResult(
            run=result.run,
            position=self.part.position,
            scores=means(self.mixture.pure.scores, report.total),
            stopped=result.scores is None,
            **self._of_experts(report),
            forecast=forecast(self.config, self.intake, self.part.state),
        )

    def _next(self) -> tuple[Row, Position] | None:
        """Return the next row; None at the end and after a stop request."""
        stop = self.session.stop
        try:
            stop.waiting = True
            return None if stop.asked else next(self.stream, None)
        except Interrupted as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            return None
        except OtherColumnsError:
            self.is_whole = False  # the run is not changed
            raise
        finally:
            stop.waiting = False

    def _while_waiting(self) -> float | None:
        """Save if a checkpoint is due; return the seconds until the next one, None if all is saved.

        Raises:
            Interrupted: a stop was requested, or saving failed.
        """
        stop = self.session.stop
        stop.waiting = False  # a signal waits until the file is written
        try:
            left = self.save_if_due()
        except Exception as error:  # not an error of the source that is being read
            raise Interrupted from error
        finally:
            stop.waiting = True
        if stop.asked:
            raise Interrupted
        return left

    def _learn(self) -> Mixed | Scored:
        """Learn the chunk, and return the results."""
        self.session.show.compiling()
        if self.config.id is not None and not (self.config.waiting or self.warned):
            self._look_for_labels()
        names: list[Hashable] = []
        if self.config.unusual is not None:
            names = [self.intake.member_of(row, self.config.id) for row, _ in self.chunk]
        try:
            found = self.part.take(self.chunk)
        except Exception as error:
            # The last checkpoint is better than a state between two rows.
            self.is_whole = isinstance(error, ValueError)
            raise
        self.newest, self.step = self.chunk[-1][0], self.part.position.row
        if names and found.surprise is not None:  # otherwise nothing waits for the mixture
            rows = (position.row for _, position in self.chunk)
            labels = zip(rows, names, np.ravel(found.surprise).tolist(), strict=False)
            for line in self.monitors.alarms(labels):
                self.session.show.say(line)
        if self.outlet and isinstance(found, Mixed):
            self._put(found)
        for at, line in self.intake.pop_news():
            self.session.show.say(f"warning: row {self.chunk[at][1].row}: {line}")
        self.chunk = []
        self.intake.parts.end("mixture")
        return found

    def _look_for_labels(self) -> None:
        """Report once that a line with only an id and a target counts as a row without inputs."""
        for row, position in self.chunk:
            target, encoder = self.intake.target, self.intake.encoder
            has_label = not target.lacks(row.get(self.part.target))
            if has_label and encoder.columns and not encoder.has_values(row):
                self.warned = True
                self.session.show.say(
                    f"warning: row {position.row} has an id and a target alone, and is learned as "
                    "a row without inputs; if it is the label of an earlier row, give --waiting, "
                    "the number of rows that may wait for theirs"
                )

    def _put(self, mixed: Mixed) -> None:
        """Write the predictions for the chunk."""
        outputs, told = np.asarray(mixed.newest), np.asarray(mixed.told)  # waits for the mixture
        self.intake.parts.end("mixture")
        self.is_whole = False  # each row in a checkpoint must have its prediction
        surprise = [math.nan] if mixed.surprise is None else np.ravel(mixed.surprise).tolist()
        parts = self.chunk, outputs, told, surprise
        for (row, position), *found in zip(*parts, strict=False):
            self.outlet(position.row, row, *found)
        self.is_whole = True
        self.intake.parts.end("predictions")

    def _checked_report(self) -> Report:
        """Return the report of the state, after waiting for the mixture.

        Raises:
            DivergenceError: too many consecutive steps of the network were refused.
        """
        report = self.mixture.report(self.part.state)
        self.intake.parts.end("mixture")
        if report.refusals is not None:
            rate = self.config.model.learning_rate
            advice = f"try a smaller --learning-rate (now {rate})"
            self.check_refused(int(report.refusals.longest), self.step, advice)
        return report

    def _report(self) -> None:
        """Write a line of metrics: new scores, speed and memory."""
        report, row, show = self._checked_report(), self.step, self.session.show
        ends = self.monitors.look(report.block)
        self.part.state = self.mixture.ended(self.part.state, block=ends)
        scores = means(self.mixture.pure.scores, report.line)
        now, rows = time.monotonic(), row - self.rows_at_last_log
        speed = rows / max(now - self.time_of_last_log, 1e-9)
        self.rows_at_last_log, self.time_of_last_log = row, now
        memory = resident_mib()
        values: dict[str, Any] = {
            "rows_per_second": round(speed, 1),
            "resident_mib": memory,
            "microseconds": self.intake.parts.microseconds(rows),
        }
        if (name := self.part.time_column) is not None:
            values["date"] = as_text(self.newest.get(name))  # the horizontal axis of the figure
        warnings = self.intake.changed_units(report.units, row) + self.monitors.warnings()
        for line in warnings:
            show.say(f"warning: row {row}: {line}")
        if warnings:
            values["warnings"] = warnings
        total = means(self.mixture.pure.scores, report.total)
        self.record("stream", **self._values(report, scores, total=total, **values))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        show.reach(row, f"row {row}: {shown}; {speed:.0f} rows/s, {memory:.0f} MiB")

    def _values(self, report: Report, scores: dict[str, float], **more: Any) -> dict[str, Any]:
        """Return the values of a line of the record."""
        columns, labels, sentinels = report.outliers.astype(int).tolist()
        counts = {
            **self.intake.encoder.counts,
            **self.intake.target.counts,
            **self.intake.room.counts,
            "outliers": columns,
            "outlier targets": labels,
            "sentinel targets": sentinels,
            "bad rows": self.part.position.bad,
        }
        values = {
            **scores,
            **more,
            "scored": int(report.total["rows"]),
            "refused": 0 if report.refusals is None else int(report.refusals.total),
            "counts": {name: count for name, count in counts.items() if count},
        }
        if self.config.unusual is not None:
            values["unusual"] = self.monitors.num_unusual
        values |= self.intake.counts() | self._of_experts(report) | self.monitors.recent
        if report.of_members is not None:
            values |= self.intake.worst_held(report.of_members)
        if self.mixture.reach or self.mixture.network is None:
            values["reach"] = self.mixture.reach
        return values

    def _of_experts(self, report: Report) -> dict[str, Any]:
        """Return scores of experts and classes over all rows, and the experts' present weights."""
        rows, names = report.total["rows"], self.mixture.pure.names
        errors = {name: report.total[name] / rows for name in names if rows}
        found = {name: 1 - one if self.plan.classes else one for name, one in errors.items()}
        weights = dict(zip(names, report.weights.tolist(), strict=True))
        parts: dict[str, Any] = {"experts": found, "weights": weights}
        if isinstance(self.intake.target, ClassTarget):
            counts = self.config.alarms, report.tallies
            parts["classes"] = of_classes(self.intake.target.classes, *counts)
        return parts
