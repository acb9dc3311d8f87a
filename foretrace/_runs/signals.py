"""Signals such as Ctrl-C as requests to save and stop, and blocks that signals do not interrupt."""

import signal
import threading
from types import FrameType
from typing import Any, ClassVar, Self

STOPPED = 130
"""Exit code of a run that a signal stopped: the usual code of a program after Ctrl-C."""

_STOPPING, _RAISING = (
    [getattr(signal, name) for name in names.split() if hasattr(signal, name)]
    for names in ("SIGINT SIGTERM SIGHUP", "SIGINT SIGTERM SIGALRM")
)
"""Signals that request a stop, and signals whose handlers may raise exceptions anywhere."""


class Interrupted(Exception):
    """A stop request arrived while the program waited for data."""


class _Handlers:
    """Signal handlers for the time of a block. They are set only in the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._is_main = threading.current_thread() is threading.main_thread()

    def _restore(self) -> None:
        try:
            for number, handler in reversed([*self._before.items()]):
                signal.signal(number, handler)
                self._before.pop(number, None)  # a signal may have restored it meanwhile
        except BaseException:  # a restored handler may raise between two others
            self._restore()
            raise


class Stop(_Handlers):
    """Turn Ctrl-C, SIGTERM and SIGHUP into a flag. The second signal ends the program as usual.

    If SIGHUP is ignored, as under nohup, it stays ignored.

    While `waiting` is true, the first signal also raises `Interrupted`, because the data may never
    arrive. Nested instances share a request, including a request that came before the inner
    instance was made.
    """

    _active: ClassVar[list["Stop"]] = []

    asked = waiting = False

    def __enter__(self) -> Self:
        if self._is_main:
            # Before the handlers are set, because they inform the active instances.
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


class Uninterrupted(_Handlers):
    """Delay Ctrl-C and other signals until the end of the block.

    Several changes in the block are then made together: for example, a state that is donated to a
    program is replaced by the new state. Outside the main thread, signals are not delayed, because
    Python handles them only in the main thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._came: list[int] = []

    def __enter__(self) -> Self:
        if self._is_main:
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
