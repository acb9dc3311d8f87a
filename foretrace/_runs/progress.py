"""What a running experiment shows: a live line on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from types import TracebackType
from typing import Any, Self

_SECONDS_BETWEEN_LINES = 5.0


class Silent:
    """Show nothing; also the interface of the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, step: int, loss: float, accuracy: float, label: str = "") -> None:
        """Report the newest step."""

    def tick(self, text: str) -> None:
        """Report how a stream without a known end goes on."""

    def say(self, text: str) -> None:
        """Report anything else."""


class Plain(Silent):
    """Lines for a file or a pipe, at most one every few seconds."""

    def __init__(self, start: int, steps: int):
        self._start, self._steps = start, steps
        self._began = self._last = time.monotonic()

    def update(self, step: int, loss: float, accuracy: float, label: str = "") -> None:
        """Print a line if it is time, and for the first and the last step."""
        now = time.monotonic()
        first = step == self._start + 1
        if first:
            self._began = now  # without compilation
        elif step < self._steps and now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        rate = (step - self._start - 1) / max(now - self._began, 1e-9)
        left = f", {(self._steps - step) / rate:.0f} s left" if rate else ""
        speed = f", {rate:.1f} steps/s" if rate else ""
        head = f"{label}; " if label else ""
        self.say(f"{head}step {step}/{self._steps}: loss {loss:.4f}, accuracy {accuracy:.2%}{speed}{left}")

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)


class Live(Silent):
    """A bar that is redrawn in place."""

    def __init__(self, start: int, steps: int, console: Any):
        from rich import progress

        columns = (
            progress.TextColumn("{task.fields[label]}step {task.completed}/{task.total}"),
            progress.BarColumn(bar_width=None),
            progress.TextColumn("loss {task.fields[loss]}"),
            progress.TextColumn("accuracy {task.fields[accuracy]}"),
            progress.TextColumn("{task.fields[rate]} steps/s"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("left"),
        )
        self._bar = progress.Progress(*columns, console=console, refresh_per_second=4)
        self._task = self._bar.add_task("", total=steps, completed=start, label="", loss="…", accuracy="…", rate="…")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()

    def update(self, step: int, loss: float, accuracy: float, label: str = "") -> None:
        """Move the bar."""
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task,
            completed=step,
            label=f"{label}; " if label else "",
            loss=f"{loss:.4f}",
            accuracy=f"{accuracy:.2%}",
            rate=f"{speed:.1f}" if speed else "…",
        )

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)


class PlainTicks(Silent):
    """Lines for a stream without a known end, at most one every few seconds."""

    def __init__(self) -> None:
        self._last = -_SECONDS_BETWEEN_LINES

    def tick(self, text: str) -> None:
        """Print a line if it is time."""
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)


class LiveTicks(Silent):
    """One line that is redrawn in place."""

    def __init__(self, console: Any):
        self._console, self._status = console, console.status("waiting for rows")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._status.stop()

    def tick(self, text: str) -> None:
        """Redraw the line."""
        self._status.update(text)

    def say(self, text: str) -> None:
        """Print a line above it."""
        self._console.print(text, highlight=False, markup=False)


def ticks(show: bool) -> Silent:
    """Return what suits standard error for a stream without a known end."""
    if not show:
        return Silent()
    from rich.console import Console

    console = Console(stderr=True)
    return LiveTicks(console) if console.is_terminal else PlainTicks()


def progress(show: bool, start: int, steps: int) -> Silent:
    """Return what suits standard error."""
    if not show:
        return Silent()
    from rich.console import Console

    console = Console(stderr=True)
    return Live(start, steps, console) if console.is_terminal else Plain(start, steps)
