"""Progress of a long run on standard error: a bar, a line every few seconds, or nothing."""

import logging
import sys
import time
from typing import Any, Self, TextIO

from tqdm import tqdm

_LOGGER = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES, _WARNING = 5.0, "warning: "


class _Bar(tqdm):
    monitor_interval = 0  # no thread that watches the bar


class _Lines:
    """File that writes each state of a progress bar as a line, instead of redrawing the bar."""

    def __init__(self, file: TextIO):
        self._file, self._last = file, ""

    def write(self, text: str) -> None:
        """Write a line, unless it is empty or repeats the last one."""
        if (line := text.strip()) and line != self._last:
            self._last = line
            print(line, file=self._file, flush=True)

    def flush(self) -> None:
        """Do nothing, because every line is flushed when it is written."""


class ProgressBar:
    """Progress of a run.

    Args:
        show: whether progress is shown.
        total: number of steps of the run; None for a stream without a known end.
        warns: whether warnings are logged if progress is not shown.
    """

    def __init__(self, show: bool, total: int | None = None, *, warns: bool = True):
        self._warns = warns
        terminal = sys.stderr.isatty()
        file: Any = sys.stderr if terminal else _Lines(sys.stderr)
        known = "step {n_fmt}/{total_fmt}" + (" |{bar}|" if terminal else "") + ", {desc}"
        self._bar = _Bar(
            total=total,
            disable=not show,
            file=file,
            bar_format="{desc}"
            if total is None
            else known + ", {rate_noinv_fmt}, {remaining} left",
            unit=" steps",
            mininterval=0.1 if terminal else _SECONDS_BETWEEN_LINES,
            miniters=1,
            dynamic_ncols=terminal,
            delay=1e-9,  # show nothing before the first step
        )
        self._first, self._compiling = True, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def reach(self, step: int, text: str) -> None:
        """Report the newest step, with a text."""
        self._bar.set_description_str(text, refresh=False)
        if self._first:
            # The rate is measured from here, because the first step is mostly compilation.
            self._first = False
            self._bar.initial = self._bar.n = self._bar.last_print_n = step
            self._bar.start_t = self._bar.last_print_t = time.time()
            self._bar.refresh()
        else:
            self._bar.update(step - self._bar.n)

    def compiling(self) -> None:
        """Report once that the next step is being compiled."""
        if not self._compiling:
            self._compiling = True
            self.say("compiling …")

    def say(self, text: str) -> None:
        """Print a line above the bar. A warning is logged if nothing is shown."""
        if not self._bar.disable:
            self._bar.write(text, file=sys.stderr)
        elif self._warns and text.startswith(_WARNING):
            _LOGGER.warning(text.removeprefix(_WARNING))
