"""The first rows of a stream, which decide its columns, and the notice meanwhile."""

import time
from itertools import islice

from foretrace._rows.source import Position, Row, Source
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Interrupted, Stop
from foretrace.stream._plan import Rows

PATIENCE = 2.0
"""Seconds of waiting for the first rows of a pipe after which a run says what it waits for."""


def first_rows(
    count: int, source: Source, stream: Rows, stop: Stop, show: ProgressBar
) -> list[tuple[Row, Position]]:
    """Return the first rows of a stream, fewer at its end.

    Args:
        count: number of rows.
        source: source of the rows; if it is a pipe that is slow, this is said once.
        stream: its rows.
        stop: requests to stop, which also end the waiting.
        show: where it is said.

    Raises:
        KeyboardInterrupt: a stop was asked for.
        SourceError: the source cannot be read.
    """
    found: list[tuple[Row, Position]] = []
    if source.pipe is not None:
        source.pipe.meanwhile = _Notice(count, found, source.name, show)
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


class _Notice:
    """One line about the awaited rows; a call returns the seconds until it is due, or None."""

    def __init__(self, count: int, found: list[tuple[Row, Position]], name: str, show: ProgressBar):
        self._count, self._found, self._name, self._show = count, found, name, show
        self._due: float | None = time.monotonic() + PATIENCE

    def __call__(self) -> float | None:
        if self._due is None:
            return None
        left = self._due - time.monotonic()
        if left > 0:
            return left
        self._due = None
        self._show.say(
            f"waiting for the first {self._count} rows of {self._name}, of which "
            f"{len(self._found)} have come; they decide the kinds of the columns and of the "
            "target, and are then learned like all later rows; a smaller --look-ahead begins "
            "earlier"
        )
        return None
