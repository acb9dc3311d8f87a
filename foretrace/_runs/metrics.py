"""The record of a run: one JSON object in each line, readable while the run continues."""

import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from foretrace._runs.appended import AppendedFile, FileMark
from foretrace._runs.config_json import parse


class MetricsError(ValueError):
    """A record cannot be read."""


class MetricsLog:
    """Append to a `metrics.jsonl`. Each call of `write` appends a line and flushes it.

    Numbers that are not finite are written as NaN and Infinity, which Python's json can read.

    Args:
        path: the file.
        resume_at: step after which an existing file is continued. An incomplete last line and the
            lines of later steps are removed, because they will be written again. None begins a new
            file.
        mark: length and digest of the file at the checkpoint from which the run continues. If the
            file does not agree with them, `difference` says how.

    Raises:
        FileExistsError: a new file was requested, and the file exists.
        MetricsError: the file to continue is not such a record.
        OSError: the file cannot be written.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "metrics.jsonl")
    >>> with MetricsLog(path) as log:
    ...     log.write("train", 10, loss=0.5, norm=float("inf"))
    >>> read_metrics(path)
    [{'kind': 'train', 'step': 10, 'loss': 0.5, 'norm': inf}]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        resume_at: int | None = None,
        mark: FileMark | None = None,
    ):
        self.path = Path(path)
        self.difference: str | None = None
        kept: int | None = None
        if resume_at is not None:
            self.difference = None if mark is None else mark.difference(self.path)
            lines = _parse(self.path, self.path.read_bytes() if self.path.exists() else b"")
            kept = sum(len(line) for line, record in lines if record["step"] <= resume_at)
        self.file = AppendedFile(self.path, kept)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Append a line.

        Args:
            kind: kind of the report, such as "train" or "validation".
            step: number of finished training steps, not smaller than in the last line.
            values: numbers, arrays, strings, or dictionaries and lists of them.
        """
        line = {"kind": kind, "step": step, **values}
        self.file.write(json.dumps(line, default=_plain) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of a record, without a last line that is still being written.

    Raises:
        FileNotFoundError: there is no such file.
        MetricsError: a line was not written by `MetricsLog`. The message has the number of the
            line.
    """
    path = Path(path)
    return [record for _, record in _parse(path, path.read_bytes())]


def _parse(path: Path, whole: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    lines = whole.splitlines(keepends=True)
    found = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # only the last line can be incomplete
        try:
            record = parse(line)
            if type(record["step"]) is not int or not isinstance(record["kind"], str):
                raise TypeError("step or kind")
        except (ValueError, KeyError, TypeError) as error:
            raise MetricsError(
                f"{path}, line {number} is not a line of metrics ({error})"
            ) from error
        found.append((line, record))
    return found


def _plain(value: Any) -> Any:
    """Return an array as a number, or as nested lists of numbers."""
    if not hasattr(value, "dtype"):
        raise TypeError(f"a {type(value).__name__} cannot be recorded")
    return np.asarray(value).tolist()
