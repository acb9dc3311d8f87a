"""Ctrl-C and SIGTERM as a stop request, so that a program can save first."""

import signal
import threading
from types import FrameType
from typing import Any, Self

STOPPED = 130
"""Exit code of a run that Ctrl-C or SIGTERM stopped, as that of any program on Ctrl-C."""


class Interrupted(Exception):
    """A stop request came while the program waited for data."""


class Stop:
    """Turn Ctrl-C and SIGTERM into a flag; the second signal ends the program as usual.

    While `waiting` is true, the first signal also raises `Interrupted`, because the data may never come. An instance
    passes its request on to the instance around it.
    """

    def __init__(self) -> None:
        self.asked = self.waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Signals belong to the main thread; elsewhere a run cannot be stopped this way.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        around = getattr(self._before.get(number), "__self__", None)
        self._restore()
        if isinstance(around, Stop):
            around._ask(number, frame)
        if self.waiting:
            raise Interrupted

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
