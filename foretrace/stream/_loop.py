"""The loop over the rows of a stream: learn, score, and do the due work of each row."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from foretrace._experts.mixture import Mixed, Mixture, Report
from foretrace._experts.network import PROBE
from foretrace._rows.scores import means, not_better
from foretrace._rows.source import SYMBOL, Position, Row, Source
from foretrace._runs.directory import Run
from foretrace._runs.loop import check_refused
from foretrace._runs.machine import resident_mib
from foretrace._runs.session import Session
from foretrace._runs.signals import Interrupted
from foretrace._runs.tensorboard import Board
from foretrace.stream._config import StreamConfig
from foretrace.stream._intake import Intake, State
from foretrace.stream._monitors import Monitors
from foretrace.stream._plan import OtherColumnsError, Plan, Rows
from foretrace.stream._predictions import Outlet, forecast
from foretrace.stream._saved import StreamSaved, first_state, load_state


class StreamResult(NamedTuple):
    """How a run on a stream ended.

    Args:
        run: run directory.
        position: position behind the last row.
        scores: mean scores over all rows that have a label, the baselines' scores among them.
        stopped: whether it was asked to stop before the end of its rows.
        experts: score of each expert over the same rows: accuracy, or mean absolute error.
        weights: present weight of each expert.
        forecast: next values behind the last row of each member, a row of a table each; empty
            without a horizon.
    """

    run: Run
    position: Position
    scores: dict[str, float]
    stopped: bool
    experts: dict[str, float]
    weights: dict[str, float]
    forecast: list[dict[str, Any]]

    @property
    def run_dir(self) -> Path:
        """Run directory, with the configuration, the record and the checkpoint."""
        return self.run.path

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return self.position.row


class StreamLoop:
    """The loop over the rows, and the due work of each row."""

    def __init__(
        self,
        run: Session[StreamConfig],
        plan: Plan,
        intake: Intake,
        source: Source,
        saved: StreamSaved,
        board: Board | None,
        outlet: Outlet,
    ):
        config = run.config
        self.session = run
        self.config = config
        self.plan = plan
        self.intake = intake
        self.parts = intake.parts
        self.pipe = source.pipe
        self.board = board
        self.stop = run.stop
        self.show = run.show
        self.outlet = outlet
        self.target = SYMBOL if config.target is None else config.target
        self.size = intake.chunk
        self.scores = self.mixture.scores
        self.monitors = Monitors(config.coverage)
        self.position = Position()
        # Names, flags and a full table are refused before anything changes, but for a later row of
        # the same step. Each of these errors is a ValueError.
        self.may_refuse = config.outliers == "stop" or (
            config.when_full == "stop" and self.size > 1
        )
        self.behind_checkpoint = False
        self.is_resumed = saved.step >= 0
        if self.is_resumed:
            self.state: State = self._restore(saved)
        else:
            self.state = first_state(self.mixture)
        self.rows_at_last_log = self.saved_row = self.position.row
        self.time_of_last_log = self.saved_at = time.monotonic()
        self.failed: Exception | None = None

    @property
    def mixture(self) -> Mixture:
        """What predicts and learns; another one once room for classes has grown."""
        return self.intake.mixture

    def follow(self, stream: Rows, rows: int | None) -> StreamResult:
        """Learn from a stream's rows, or the first `rows`; an error saves the state first."""
        if not self.is_resumed or self.pipe is not None:
            # The first rows of a pipe would be lost with a process that is killed. From here on,
            # the checkpoint of a resumed run does not know of all bytes that were taken out of its
            # pipe.
            self._save()
        if self.pipe is not None:
            self.pipe.meanwhile = self._save_while_waiting
        try:
            return self._follow(stream, rows)
        except OtherColumnsError:
            raise  # bytes of another pipe must not be handed on
        except Exception:
            self._save_after_error()
            raise

    def _follow(self, stream: Rows, rows: int | None) -> StreamResult:
        chunk: list[tuple[Row, Position]] = []
        while rows is None or self.position.row + len(chunk) < rows:
            item = self._next(stream)
            self.parts.end("reading")
            if item is None:
                break
            # Nothing changes before a chunk is full: a checkpoint always lies between two chunks.
            chunk.append(item)
            if item[1].is_torn:
                break  # the file may grow meanwhile: the next bytes are the rest of this line
            if len(chunk) == self.size:
                self._learn(chunk)
                chunk = []
        self._save(end=True)
        self.behind_checkpoint = True
        if chunk and not self.stop.asked:
            # After the checkpoint, so that a file that has grown continues as if its end had never
            # been there: neither the short chunk nor a last line that was not complete.
            self._learn(chunk, last=True)
        report = self._checked_report()
        self.monitors.look(report.block)
        if not self.stop.asked and not self._has_result():
            worse = not_better(self.scores, report.total)
            self._write("result", report, means(self.scores, report.total), not_better_than=worse)
        return StreamResult(
            self.session.run,
            self.position,
            means(self.scores, report.total),
            self.stop.asked,
            **self._of_experts(report),
            forecast=forecast(self.config, self.intake, self.state),
        )

    def _has_result(self) -> bool:
        """Return whether the record ends with this row's result, of a finished run."""
        last = self.session.log.last
        return last is not None and last["kind"] == "result" and last["step"] == self.position.row

    def _next(self, stream: Rows) -> tuple[Row, Position] | None:
        try:
            self.stop.waiting = True
            return None if self.stop.asked else next(stream, None)
        except Interrupted:
            if self.failed is not None:
                raise self.failed from None
            return None
        finally:
            self.stop.waiting = False

    def _save_while_waiting(self) -> float | None:
        """Save rows that are in no checkpoint, if it is time; return the seconds until it is.

        Without such rows, None is returned.

        Raises:
            Interrupted: a stop was asked for meanwhile, or it failed.
        """
        if self.position.row == self.saved_row:
            return None
        if (left := self._seconds_to_checkpoint()) > 0:
            return left
        self.stop.waiting = False  # a signal waits until the file is written
        try:
            self._save()
        except Exception as error:  # not an error of the source, which is being read
            self.failed = error
        finally:
            self.stop.waiting = True
        if self.failed is not None or self.stop.asked:
            raise Interrupted
        return None

    def _seconds_to_checkpoint(self) -> float:
        return self.config.checkpoint_seconds - (time.monotonic() - self.saved_at)

    def _learn(self, chunk: list[tuple[Row, Position]], *, last: bool = False) -> None:
        before = self.position.row
        self.show.compiling()
        rows = [(row, row.get(self.target)) for row, _ in chunk]
        self.state, mixed = self._learn_or_undo(rows)
        self.position = chunk[-1][1]
        if self.outlet:
            self._put(chunk, mixed)
        for line in self.intake.pop_news():
            self.show.say(f"warning: row {self.position.row}: {line}")
        if self.pipe is not None:
            self.pipe.release(self.position.offset)
        self.parts.end("mixture")
        if not last:
            self._do_what_is_due(before)
            self.parts.end("records")

    def _put(self, chunk: list[tuple[Row, Position]], mixed: Mixed) -> None:
        """Write the predictions for rows; after an error, the last checkpoint stays.

        Each of its rows has a prediction.
        """
        outputs, told = np.asarray(mixed.newest), np.asarray(mixed.told)  # waits for the mixture
        self.parts.end("mixture")
        try:
            for (row, position), output, one in zip(chunk, outputs, told, strict=False):
                self.outlet(position.row, row, output, one)
        except BaseException:
            self.behind_checkpoint = True
            raise
        self.parts.end("predictions")

    def _learn_or_undo(self, rows: list[tuple[Row, Any]]) -> tuple[State, Mixed]:
        """Learn from rows; a refused row leaves everything as before them, to be saved."""
        before = json.dumps(self.intake.to_json()) if self.may_refuse else None
        try:
            return self.intake.learn(self.state, rows)
        except Exception as error:
            if before is not None:
                self.intake.restore(json.loads(before))
            elif not isinstance(error, ValueError):
                # Nobody knows how far it came: the last checkpoint is better than a state between
                # two rows.
                self.behind_checkpoint = True
            raise

    def _checked_report(self) -> Report:
        """Return the report of the state; this waits for the mixture.

        Raises:
            DivergenceError: too many of the network's steps in a row were refused.
        """
        report = self.mixture.report(self.state)
        self.parts.end("mixture")
        if report.health is not None:
            model = self.config.model
            advice = (
                f"try a smaller --learning-rate (now {model.learning_rate}) or a smaller --clip "
                f"(now {model.clip})"
            )
            place = f"row {self.position.row}"
            check_refused(int(report.health.longest), place, advice)
        return report

    def _do_what_is_due(self, before: int) -> None:
        row = self.position.row
        if row // self.config.log_every > before // self.config.log_every:
            self._report()
        every = self.config.checkpoint_every
        if row // every > before // every or self._seconds_to_checkpoint() <= 0:
            self._save()

    def _report(self) -> None:
        """Write a line of metrics: new scores, the network's health, speed and memory."""
        report = self._checked_report()
        ends = self.monitors.look(report.block)
        self.state = self.mixture.ended(self.state, block=ends)
        scores = means(self.scores, report.line)
        now = time.monotonic()
        speed = (self.position.row - self.rows_at_last_log) / max(now - self.time_of_last_log, 1e-9)
        parts = self.parts.microseconds(self.position.row - self.rows_at_last_log)
        self.rows_at_last_log = self.position.row
        self.time_of_last_log = now
        memory = resident_mib()
        values: dict[str, Any] = {
            "rows_per_second": round(speed, 1),
            "resident_mib": memory,
            "microseconds": parts,
        }
        health: dict[str, float] = {}
        steps: dict[str, float] = {}
        config, mixture = self.intake.config, self.mixture
        if report.health is not None:
            state = mixture.packing.unpack(self.state)
            if count := report.line["accepted"]:
                names = ("loss", "gradient_norm", "update_norm")
                steps = {name: report.line[name] / count for name in names}
            seen = report.total["accepted"] + report.total["refused"]
            health = self.monitors.measure(
                *mixture.network_of(state, self.intake.newest_slot),
                steps.get("update_norm"),
                np.asarray(report.health.inputs) if seen >= PROBE else None,
            )
            chosen = {"rule": config.rule, "train_encoder": config.train_encoder}
            values |= chosen | steps | health
        warnings = self.intake.changed_scales(report.scales)
        warnings += self.monitors.warnings(health | self.monitors.recent_coverage())
        for line in warnings:
            self.show.say(f"warning: row {self.position.row}: {line}")
        if warnings:
            values["warnings"] = warnings
        total = means(self.scores, report.total)
        self._write("stream", report, scores, total=total, **values)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self.show.tick(f"row {self.position.row}: {shown}; {speed:.0f} rows/s, {memory:.0f} MiB")

    def _write(self, kind: str, report: Report, scores: dict[str, float], **more: Any) -> None:
        columns, labels = report.outliers.astype(int).tolist()
        counts = {
            **self.intake.encoder.counts,
            **self.intake.target.counts,
            "outliers": columns,
            "outlier targets": labels,
            "bad rows": self.position.bad,
        }
        counts = {name: count for name, count in counts.items() if count}
        values = {
            **scores,
            **more,
            "scored": int(report.total["rows"]),
            "refused": int(report.total["refused"]),
            "counts": counts,
        }
        values |= self.intake.counts() | self._of_experts(report) | self.monitors.recent_coverage()
        if report.of_members is not None:
            values |= self.intake.worst_held(report.of_members)
        if self.mixture.reach or self.mixture.network is None:
            values["reach"] = self.mixture.reach
        self.session.log.write(
            kind, self.position.row, **values, seconds=self.session.clock.seconds
        )
        if self.board is not None:
            self.board.write(self.position.row, values)

    def _of_experts(self, report: Report) -> dict[str, Any]:
        """Return the scores of the experts over all rows, and their present weights."""
        rows, names = report.total["rows"], self.mixture.names
        errors = {name: report.total[name] / rows for name in names if rows}
        found = {name: 1 - one if self.plan.classes else one for name, one in errors.items()}
        return {
            "experts": found,
            "weights": dict(zip(names, report.weights.tolist(), strict=True)),
        }

    def _save(self, *, end: bool = False) -> None:
        predictions, position = self.outlet.mark(), self.position
        beside = {
            "plan": self.plan.to_json(),
            "position": position,
            "pipe": None if self.pipe is None else self.pipe.to_json(position.offset, end=end),
            "intake": self.intake.to_json(),
            "monitors": self.monitors.to_json(),
            "predictions": predictions,
        }
        self.session.save(self.mixture.packing.unpack(self.state), beside, position.row)
        self.saved_row, self.saved_at = position.row, time.monotonic()

    def _save_after_error(self) -> None:
        """Save before an error is raised, so that only rows of the last chunk are read again."""
        if self.behind_checkpoint:
            return
        try:
            self._save(end=True)
        except Exception as error:  # the first error is the one to tell
            self.show.say(f"the state could not be saved: {error}")
        else:
            self.show.say(
                f"the state after row {self.position.row} is saved; `resume` continues from there"
            )

    def _restore(self, saved: StreamSaved) -> State:
        self.position = saved.position
        if self.pipe is not None:
            self.position = self.position._replace(offset=0)  # every process counts its own bytes
        self.intake.restore(saved.intake)
        self.monitors.restore(saved.monitors)
        return load_state(self.session.run.checkpoint, self.mixture)
