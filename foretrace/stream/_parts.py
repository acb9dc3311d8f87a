"""Where the time of a row goes, part by part."""

import time


class Parts:
    """Seconds in each part since the last report: one reading of the clock a part.

    >>> parts = Parts()
    >>> parts.end("reading")
    >>> list(parts.microseconds(rows=1)), parts.microseconds(rows=1)
    (['reading'], {})
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, part: str) -> None:
        """Count the time since the last part ended for this one."""
        now = time.perf_counter()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._last
        self._last = now

    def microseconds(self, rows: int) -> dict[str, float]:
        """Return the microseconds a row of each part since the last call, and begin again."""
        found = {
            part: round(1e6 * value / max(rows, 1), 1) for part, value in self._seconds.items()
        }
        self._seconds = {}
        return found
