"""Ctrl-C, SIGTERM and SIGHUP as a request to save and stop, and work without interruption."""

import signal
import threading
from types import FrameType
from typing import Any, ClassVar, Self

STOPPED = 130
"""Exit code of a run that Ctrl-C, SIGTERM or SIGHUP stopped, as that of any program on Ctrl-C."""

_STOPPING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Interrupted(Exception):
    """A stop request came while the program waited for data."""


class Stop:
    """Turn Ctrl-C, SIGTERM and SIGHUP into a flag; the second signal ends the program as usual.

    A SIGHUP that is ignored, as under nohup, stays ignored.

    While `waiting` is true, the first signal also raises `Interrupted`, because the data may never
    come. Instances inside one another share a request, also one that came before the inner one.
    """

    _active: ClassVar[list["Stop"]] = []

    def __init__(self) -> None:
        self.asked = self.waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Signals belong to the main thread; elsewhere a run cannot be stopped this way.
        if threading.current_thread() is threading.main_thread():
            # Before the handlers, which tell those that are active.
            self._active.append(self)
            if any(stop.asked for stop in self._active):
                self.asked = True
            for number in _STOPPING:
                if not self.asked and (
                    number in (signal.SIGINT, signal.SIGTERM)
                    or signal.getsignal(number) != signal.SIG_IGN
                ):
                    self._before[number] = signal.signal(number, self._ask)
            if self.asked:  # the second signal ends the program
                self._restore()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        if self in self._active:
            self._active.remove(self)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        for stop in reversed(self._active):
            stop.asked = True
            stop._restore()
        if self.waiting:
            raise Interrupted

    def _restore(self) -> None:
        for number, handler in list(self._before.items()):
            signal.signal(number, handler)
        self._before.clear()


_RAISING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)
]
"""Signals whose handlers in Python raise exceptions at any place: Ctrl-C, an end, a time limit."""


class Uninterrupted:
    """Put off Ctrl-C and other signals with a handler in Python until the end of the block.

    Several changes are then made as a whole: a state that is donated to a program is replaced by
    the new one. Outside the main thread nothing is put off, because no signal is handled there.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _RAISING:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._before[number] = handler
                        signal.signal(number, self._note)
            except BaseException:
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        for number in self._came:
            signal.raise_signal(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)

    def _restore(self) -> None:
        try:
            while self._before:
                number, handler = next(reversed(self._before.items()))
                signal.signal(number, handler)
                del self._before[number]
        except BaseException:  # a handler that is back already may raise between two others
            self._restore()
            raise
