"""A run that serves requests with rows and labels: one thread writes, learns and answers.

   requests -> checked -> written to the journal, one `fdatasync` for all that have arrived
             -> learned -> answered

The journal is the source of the run. When a service is started again, it reads the lines after its
checkpoint, like any run on a file. A run that reads only the journal has the same state, bit for
bit.
"""

import contextlib
import dataclasses
import gc
import json
import math
import os
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foretrace._runs.checkpoint import read_extra
from foretrace._runs.directory import RunError
from foretrace._runs.files import write_atomically
from foretrace._runs.follow import Session
from foretrace._runs.metrics import read_metrics
from foretrace.stream.model.state import Mixed, Scored
from foretrace.stream.read.journal import Journal
from foretrace.stream.read.lines import Position, Row, SourceError
from foretrace.stream.read.source import Source
from foretrace.stream.runs.opening import open_rows
from foretrace.stream.runs.plan import Plan, Rows, open_source
from foretrace.stream.runs.predictions import Table, forecast
from foretrace.stream.runs.run import Learning
from foretrace.stream.runs.saved import StreamSaved, copy_state
from foretrace.stream.serve.desk import Checks, Desk, Request

JOURNAL = "events.jsonl"
"""The journal of a service, a file in its run directory."""

_PAUSE = 0.2
"""Seconds between checks whether to stop or to save, while no request arrives."""

_KEPT = 200
"""Number of lines of the record that are kept for the page."""


class Serving(Learning):
    """The run of a service.

    Args:
        session: the open run.
        checkpoints: number of checkpoints that are kept.
        freeze: whether rows are only predicted, and nothing is learned.
    """

    def __init__(self, session: Session, *, checkpoints: int = 1, freeze: bool = False):
        super().__init__(session, on_prediction=self._predicted)
        self.checkpoints, self.freeze = checkpoints, freeze
        self.desk = Desk()
        self.pending: deque[list[Request]] = deque()
        self.records: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.found: dict[str, Any] = {}
        self.saved_at = time.monotonic()  # the time of day may jump
        self._saving: threading.Thread | None = None
        self._goes_on = False
        self._ids: dict[str, list[Request]] = {}
        self._labels: dict[str, list[Request]] = {}

    def restore(self, saved: StreamSaved) -> None:
        """Restore the run, with chunks of one row, because each row is answered at once.

        A run that reads the journal in longer chunks has the same state up to rounding.
        """
        super().restore(saved)
        self.intake.chunk = 1

    def opened(self) -> Source:
        """Return the journal in the run directory, which may be a copy."""
        config = dataclasses.replace(self.config, source=str(self.session.run.path / JOURNAL))
        return open_source(config, feed=self._next_lines)

    def rows_from(self, saved: StreamSaved) -> tuple[Plan, Rows, list[str]]:
        """Return the plan, and the rows of the journal, which `Checks` has seen."""
        return open_rows(self.session, self.source, saved, checked=True)

    def begun(self) -> None:
        """Open the desk for requests."""
        super().begun()
        self.checks = Checks(self.config, self.intake)
        self.table = Table(self.config, self.intake.target)
        before = read_metrics(self.session.run.metrics)[-_KEPT:]
        self.records.extend({"row": one.get("step"), **one} for one in before)
        assert isinstance(self.pipe, Journal)
        self.pipe.goes_on = self._not_written
        self.session.stack.callback(self._closed)
        self.session.show.compiling()
        self.intake.warm(copy_state(self.part.state))
        # Existing objects are never searched for garbage: a search of the compiler's objects takes
        # .1 s.
        gc.collect()
        gc.freeze()

    @property
    def stopped(self) -> bool:
        """Whether to stop, after all lines in the journal are learned and answered."""
        return self.session.stop.asked and not self.pending

    def _next(self) -> tuple[Row, Position] | None:
        self.session.stop.waiting = False  # the feed ends when a stop is requested
        try:
            return next(self.stream, None)
        except SourceError:  # an empty journal
            if self.session.stop.asked and not self.step:
                return None
            raise

    def _closed(self) -> None:
        self.desk.close()
        self._refuse_pending(503, "the service stopped; ask again when it is back")

    def _refuse_pending(self, code: int, reason: str) -> None:
        while self.pending:
            for one in self.pending.popleft():
                one.refuse(code, reason)

    # Incoming requests

    def _next_lines(self, journal: Journal) -> bytes:
        """Wait for requests; return journal lines for those that change something."""
        while not self.session.stop.asked:
            batch = self.desk.wait(_PAUSE)
            if not batch:
                self.save_if_due()
            lines = [line for one in batch if (line := self._accepted(one))]
            self._ids, self._labels = {}, {}
            if lines:
                return b"".join(lines)
        return b""

    def _accepted(self, request: Request) -> bytes:
        """Return the line of a request; nothing if it is answered, or shares another's line."""
        try:
            if request.look is not None:
                request.done(request.look(self))
            elif self.freeze:
                self._frozen(request)
            elif request.is_label:
                return self._label(request)
            else:
                return self._row(request)
        except Exception as error:  # of one request; the others continue
            request.refuse(500, f"{type(error).__name__}: {error}"[:200])
        return b""

    def _row(self, request: Request) -> bytes:
        id, room = request.id, self.intake.room
        if id is not None and self.config.waiting:
            y = request.line.get(str(self.config.target))
            is_taken = id in self._ids or id in room or id in room.told
            if is_taken and not self.intake.target.lacks(y):
                # This is the label of a row that arrived before.
                request.line = {str(self.config.id): id, str(self.config.target): y}
                request.is_label = True
                return self._label(request)
            if id in self._ids:
                self._ids[id].append(request)
                return b""
            if id in room:
                request.done(self._shown(request.line, self.intake.answer(self.part.state, id)))
                return b""
            if id in room.told:
                request.refuse(409, f"the row of id={id!r} has its label already")
                return b""
            self._ids[id] = [request]
            return self._line(request, self._ids[id])
        return self._line(request, [request])

    def _label(self, request: Request) -> bytes:
        id, room = str(request.id), self.intake.room
        value = request.line[str(self.config.target)]
        before = self._labels.get(id)
        if before is not None:
            if before[0].line == request.line:
                before.append(request)
            else:
                request.refuse(409, f"the row of id={id!r} was given another label")
            return b""
        if id not in self._ids:
            try:
                if room.find(id, self.intake.target.plain(value)) is None:
                    request.done({"id": id})
                    return b""
            except ValueError as error:
                request.refuse(409, str(error))
                return b""
            except KeyError as error:
                gone = id in room.gone
                request.refuse(410 if gone else 404, str(error.args[0]))
                return b""
        self._labels[id] = [request]
        return self._line(request, self._labels[id])

    def _line(self, request: Request, same: list[Request]) -> bytes:
        self.pending.append(same)
        return json.dumps(request.line, separators=(",", ":")).encode() + b"\n"

    def _frozen(self, request: Request) -> None:
        if request.is_label:
            request.refuse(403, "the service was started with --freeze, and learns nothing")
            return
        mixed = self.intake.predict(self.part.state, dict(request.line))
        request.done(self._shown(request.line, mixed))

    # Outgoing answers

    def _learn(self) -> Mixed | Scored:
        self.found = {}
        result = super()._learn()
        if not self.pending:  # an earlier line of the journal
            return result
        requests = self.pending.popleft()
        found: Any = self.found
        if requests[0].is_label:
            found = {"id": requests[0].id} | _surprise(result)
            self._check_told(requests)
        for one in requests:
            one.done(found)
        return result

    def _check_told(self, labels: list[Request]) -> None:
        """Refuse a label that an earlier event in the same batch has made impossible."""
        room, value = self.intake.room, labels[0].line[str(self.config.target)]
        for one in labels:
            try:
                room.find(one.id, self.intake.target.plain(value))
            except KeyError:
                one.refuse(410, f"the row of id={one.id!r} was dropped: too many rows wait")
            except ValueError as error:
                one.refuse(409, str(error))

    def _predicted(self, found: dict[str, Any]) -> None:
        self.found = answered(found, self.config.target, self.config.id)

    def _shown(self, row: Any, mixed: Mixed) -> dict[str, Any]:
        """Return the answer for a prediction that was made before."""
        output, told = np.asarray(mixed.newest), np.asarray(mixed.told)
        found = self.table.row(self.step, row, output, told)
        return answered(found, self.config.target, self.config.id)

    def _not_written(self, error: OSError) -> bool:
        """Refuse requests that could not be written, because nothing of them is learned."""
        reason = f"the journal cannot be written ({error.strerror}); free its disk"
        self._refuse_pending(507, reason)
        return True

    # Record and checkpoints

    def record(self, kind: str, **values: Any) -> None:
        """Append a line to the record, if the disk has room."""
        self.records.append({"kind": kind, "row": self.step, "time": time.time(), **values})
        with self._told("the record"):
            super().record(kind, **values)

    def save_if_due(self) -> float | None:
        """Write a checkpoint if one is due, while requests are answered (see `save`)."""
        if self._saving is not None and self._saving.is_alive():
            return None
        self._goes_on = True
        try:
            return super().save_if_due()
        finally:
            self._goes_on = False

    def save(self) -> None:
        """Write a checkpoint. Only the last one, at the end of the run, is waited for."""
        if self._saving is not None:
            self._saving.join()
        super().save()

    def sync_record(self) -> None:
        """Wait until the record is on the disk, if the disk has room."""
        with self._told("the record"):
            super().sync_record()

    def write(self, state: Any, extra: dict[str, Any]) -> None:
        """Write a checkpoint in another thread.

        If it cannot be written, this is reported. The journal contains all requests in any case.
        """
        self._saving = threading.Thread(target=self._write, args=(state, extra, self.step))
        self._saving.start()
        if not self._goes_on:
            self._saving.join()

    def _write(self, state: Any, extra: dict[str, Any], step: int) -> None:
        with self._told("a checkpoint"):
            super().write(state, extra)
            self.saved_at = time.monotonic()
            if self.checkpoints > 1:
                keep_older(self.session.run.checkpoint, step, self.checkpoints)

    @contextlib.contextmanager
    def _told(self, what: str) -> Any:
        try:
            yield
        except OSError as error:
            self.session.show.say(f"warning: {what} could not be written: {error}")

    def look(self) -> dict[str, Any]:
        """Return the values for the page and the metrics."""
        room, counts = self.intake.room, self.intake.room.counts
        return {
            "rows": self.step,
            "waiting": len(room),
            "counts": dict(counts),
            "checkpoint_age": time.monotonic() - self.saved_at,
            "records": list(self.records),
        }

    def forecasts(self) -> list[dict[str, Any]]:
        """Return the next values of each member."""
        return forecast(self.config, self.intake, self.part.state)


def answered(found: dict[str, Any], target: Any, id: str | None) -> dict[str, Any]:
    """Return a row of the table of predictions with the names that an answer uses."""
    if target not in found:
        return found  # a forecast of several steps
    out = {"id": None if id is None else found.get(id), "row": found["row"], "y": found[target]}
    if f"{target}_low" in found:
        out |= {"low": found[f"{target}_low"], "high": found[f"{target}_high"]}
    more = ("probability", "probabilities") + ("surprise",) * (found.get("surprise") is not None)
    return out | {k: v for k, v in found.items() if k.startswith("alarm_") or k in more}


def keep_older(path: Path, step: int, most: int) -> None:
    """Store a checkpoint under the number of its row, and keep a number of older checkpoints."""
    folder = path.parent / "checkpoints"
    folder.mkdir(exist_ok=True)
    name = folder / f"{step}{path.suffix}"
    name.unlink(missing_ok=True)
    os.link(path, name)
    for old in sorted(folder.glob(f"*{path.suffix}"), key=lambda one: int(one.stem))[:-most]:
        old.unlink()


def go_back(run: Any, row: int) -> str:
    """Replace the present checkpoint by an older one, and remove later events from the journal.

    Returns:
        A sentence that says what was done.

    Raises:
        RunError: the checkpoint does not exist.
    """
    folder = run.checkpoint.parent / "checkpoints"
    kept = {int(one.stem): one for one in folder.glob(f"*{run.checkpoint.suffix}")}
    if row not in kept:
        names = ", ".join(map(str, sorted(kept))) or "none; keep some with --checkpoints"
        raise RunError(f"back-to={row}: {run.path} has checkpoints of the rows {names}")
    offset = Position(*read_extra(kept[row])["position"]).offset
    journal = run.path / JOURNAL
    later = run.path / f"events-after-{row}.jsonl"
    if later.exists():  # of an earlier return to this row
        later = later.with_stem(f"{later.stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    with journal.open("rb") as events:
        events.seek(offset)
        write_atomically(later, iter(partial(events.read, 2**20), b""))
    # After a crash between both steps, a journal shorter than the checkpoint would not fit it.
    write_atomically(run.checkpoint, kept[row].read_bytes())
    with journal.open("rb+") as events:
        events.truncate(offset)
        os.fsync(events.fileno())
    for old, one in kept.items():
        if old > row:
            one.unlink()
    return f"back at row {row}; the events after it are in {later}"


def replaced(run: Any) -> str:
    """Move an unreadable checkpoint into a new folder, so that the whole journal is learned again.

    Returns:
        A sentence that says what was done.
    """
    aside = run.path / f"before-{time.strftime('%Y%m%d-%H%M%S')}"
    aside.mkdir()
    for path in (run.checkpoint, run.metrics):
        if path.exists():
            path.rename(aside / path.name)
    return f"checkpoint and record are in {aside}; all events of {JOURNAL} are learned again"


def _surprise(label: Mixed | Scored) -> dict[str, float]:
    """Return the surprise of a label; nothing before enough are known."""
    found = math.nan if label.surprise is None else float(np.ravel(label.surprise)[0])
    return {} if math.isnan(found) else {"surprise": round(found, 4)}
