"""Ctrl-C, SIGTERM and SIGHUP as a request to save and stop, and work without interruption."""

import signal
import threading
from types import FrameType
from typing import Any, ClassVar, Self

STOPPED = 130
"""Exit code of a run that Ctrl-C, SIGTERM or SIGHUP stopped: the code of any program on Ctrl-C."""

_STOPPING, _RAISING = (
    [getattr(signal, name) for name in names.split() if hasattr(signal, name)]
    for names in ("SIGINT SIGTERM SIGHUP", "SIGINT SIGTERM SIGALRM")
)
"""Signals that ask a run to stop, and those whose handlers in Python raise exceptions anywhere."""


class Interrupted(Exception):
    """A stop request arrived while the program waited for data."""


class _Handlers:
    """Temporary signal handlers, only in the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._is_main = threading.current_thread() is threading.main_thread()

    def _restore(self) -> None:
        try:
            for number, handler in reversed([*self._before.items()]):
                signal.signal(number, handler)
                self._before.pop(number, None)  # a signal may have brought it back meanwhile
        except BaseException:  # a handler that is back already may raise between two others
            self._restore()
            raise


class Stop(_Handlers):
    """Turn Ctrl-C, SIGTERM and SIGHUP into a flag; the second signal ends the program as usual.

    A SIGHUP that is ignored, as under nohup, stays ignored.

    While `waiting` is true, the first signal also raises `Interrupted`, because the data may never
    come. Instances inside one another share a request, also a request that came before the inner
    instance.
    """

    _active: ClassVar[list["Stop"]] = []

    asked = waiting = False

    def __enter__(self) -> Self:
        if self._is_main:
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


class Uninterrupted(_Handlers):
    """Delay Ctrl-C and other signals until the end of the block.

    Several changes are then made as a whole: a state that is donated to a program is replaced by
    the new one. Outside the main thread nothing is put off, because no signal is handled there.
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
