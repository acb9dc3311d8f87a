"""The queue of requests to a service, and checks whether they contain valid rows and labels.

Many threads send requests, and one thread processes them in order. The number of requests is
bounded, so a client is told to try again later instead of waiting without end.
"""

import contextlib
import dataclasses
import json
import math
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

from foretrace.stream.model.intake import Intake
from foretrace.stream.read.formats import read_date
from foretrace.stream.read.lines import BadRow, check_flat, check_width
from foretrace.stream.read.values import (
    MAX_ABS_VALUE,
    as_flag,
    as_number,
    as_time,
    is_absent,
    is_missing,
    member_text,
)
from foretrace.stream.runs.config import StreamConfig

QUEUE = 4096
"""Maximum number of requests in the queue."""

LONGEST_ID = 256
"""Maximum number of characters of an id."""


class Refusal(Exception):
    """A request is refused, and changes nothing.

    Args:
        code: HTTP status code.
        reason: what is wrong, and what to do.
    """

    def __init__(self, code: int, reason: str):
        super().__init__(reason)
        self.code, self.reason = code, reason


@dataclasses.dataclass(eq=False)
class Request:
    """A request of a client.

    Args:
        line: columns of a row, or the id and the target of a label. It becomes a line of the
            journal.
        id: id of the row. None if the label of the row cannot arrive later.
        is_label: whether this is a label.
        look: function of the service that changes nothing. It replaces the line.
        answer: future answer.
    """

    line: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    id: str | None = None
    is_label: bool = False
    look: Callable[[Any], Any] | None = None
    answer: Future = dataclasses.field(default_factory=Future)

    def refuse(self, code: int, reason: str) -> None:
        """Answer that the request is refused."""
        with contextlib.suppress(InvalidStateError):  # already answered, or the client has left
            self.answer.set_exception(Refusal(code, reason))

    def done(self, found: Any) -> None:
        """Answer the request."""
        with contextlib.suppress(InvalidStateError):
            self.answer.set_result(found)


class Desk:
    """The queue of requests."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Request] = queue.Queue(QUEUE)
        self.is_open = True

    def ask(self, request: Request) -> Future:
        """Append a request to the queue, and return its future answer.

        Raises:
            Refusal: the queue is full, or the service is stopping.
        """
        if not self.is_open:
            raise Refusal(503, "the service stops; ask again when it is back")
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            raise Refusal(503, f"{QUEUE} requests wait; ask again in a second") from None
        if not self.is_open:  # closed meanwhile, so nobody may read it
            self.close()
        return request.answer

    def wait(self, seconds: float) -> list[Request]:
        """Return all requests that have arrived; wait some seconds for the first one."""
        try:
            found = [self._queue.get(timeout=seconds)]
        except queue.Empty:
            return []
        while len(found) < QUEUE:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return found

    def close(self) -> None:
        """Refuse the requests in the queue, and all later requests."""
        self.is_open = False
        for request in self.wait(0.001):
            request.refuse(503, "the service stops; ask again when it is back")


def parsed(body: bytes) -> dict[str, Any]:
    """Return a parsed JSON object.

    Raises:
        Refusal: the text is not an object, or has numbers that JSON does not have.
    """

    def unknown(text: str) -> Any:
        raise ValueError(f"{text} is no JSON; leave a missing value out")

    try:
        found = json.loads(body, parse_constant=unknown)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, f"not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise Refusal(422, f"a JSON {type(found).__name__}, expected an object")
    return found


def checked_id(value: Any) -> str:
    """Return the id of a row as text.

    Raises:
        Refusal: the id is neither a text nor a whole number, is empty, or is too long.
    """
    is_right = isinstance(value, int | str) and not isinstance(value, bool)
    if not is_right or not 0 < len(str(value).strip()) <= LONGEST_ID:
        raise Refusal(
            422, f"id={str(value)[:80]!r}, expected a text of 1 to {LONGEST_ID} characters"
        )
    return member_text(value)


class Checks:
    """Checks of rows and labels before they are written to the journal.

    Args:
        config: configuration of the run.
        intake: converter from rows to numbers.
    """

    def __init__(self, config: StreamConfig, intake: Intake):
        self.config, self.intake = config, intake

    def line(self, values: dict[str, Any]) -> Request:
        """Return the request for a line: a row with or without a label, or a label with an id.

        Raises:
            Refusal: the line has a wrong value.
        """
        config = self.config
        id = values.get(config.id) if config.id else None
        if config.waiting and set(values) - {config.member} == {config.id, config.target}:
            return self.label(id, values[str(config.target)])
        return self.row(values, id, labelled=True)

    def row(self, values: Any, id: Any = None, *, labelled: bool = False) -> Request:
        """Return the request for a row.

        Args:
            values: columns of the row.
            id: id of the row. Default: none.
            labelled: whether the row may contain its target.

        Raises:
            Refusal: the row has a wrong value.
        """
        config = self.config
        if not isinstance(values, dict):
            raise Refusal(422, f"row={str(values)[:80]!r}, expected an object of columns")
        try:
            check_width("the row", values)
            check_flat("the row", values)
        except BadRow as error:
            raise Refusal(422, str(error)) from None
        if id is not None:
            id = checked_id(id)
        if not labelled and config.target in values:
            raise Refusal(422, f"the row has its target {config.target!r}; send it as a label")
        if config.member is not None and is_absent(values.get(config.member)):
            raise Refusal(422, f"the row has no {config.member!r}, which says whose row it is")
        if config.reset is not None and as_flag(values.get(config.reset)) is None:
            raise Refusal(422, f"column {config.reset!r} must be true or false")
        for name, value in values.items():
            if name == config.target:
                self._check_label(value)
            elif name in self.intake.encoder.columns:
                self._check_value(name, value)
        if not any(name in self.intake.encoder.columns for name in values):
            names = ", ".join(map(str, self.intake.encoder.columns))[:200]
            raise Refusal(422, f"the row has none of the columns {names}")
        named = {} if config.id is None or id is None else {config.id: id}
        return Request(named | {k: v for k, v in values.items() if k != config.id}, id)

    def label(self, id: Any, value: Any) -> Request:
        """Return the request for a label.

        Raises:
            Refusal: the value is not a label, or the run takes no labels by id.
        """
        config = self.config
        if not config.waiting or config.id is None or config.target is None:
            raise Refusal(404, "this run takes no labels by ids: it was made without --waiting")
        id = checked_id(id)
        self._check_label(value)
        if self.intake.target.lacks(value):
            raise Refusal(422, "y is missing; a row whose label never comes needs no label")
        return Request({config.id: id, config.target: value}, id, is_label=True)

    def _check_label(self, value: Any) -> None:
        if isinstance(value, dict | list):
            raise Refusal(422, f"y={str(value)[:80]!r}, expected a single value")
        number = as_number(value)
        is_wrong = number is None or not abs(number) < MAX_ABS_VALUE
        if not self.intake.shape.classes and not is_missing(value) and is_wrong:
            raise Refusal(422, f"y={str(value)[:80]!r}, expected a number")

    def _check_value(self, name: Any, value: Any) -> None:
        kind = self.intake.encoder.columns[name][0]
        if kind not in ("numeric", "time") or is_missing(value):
            return
        if kind == "numeric":
            number = as_number(value)
            is_right, what = number is not None and math.isfinite(number), "a number"
        else:
            form = self.config.time_formats.get(name)
            date = as_time(value) if form is None else read_date(value, form)
            is_right, what = date is not None, f"a date{'' if form is None else f' as {form}'}"
        if not is_right:
            raise Refusal(422, f"column {name!r} holds {str(value)[:80]!r}, expected {what}")
