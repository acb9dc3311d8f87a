"""Scalars for TensorBoard (extra `track`), beside `metrics.jsonl`."""

import os
import time
from typing import Any


class Board:
    """Write scalars into a folder that `tensorboard --logdir` shows.

    Args:
        path: the folder.

    Raises:
        ValueError: tensorboard is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]):
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ValueError(
                "--tensorboard needs tensorboard; pip install 'foretrace[track]'"
            ) from error
        self._file = EventFileWriter(str(path))

    def write(self, step: int, values: dict[str, Any], place: str = "") -> None:
        """Write the numbers among the values; numbers in dictionaries under their names."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for name, value in values.items():
            if isinstance(value, dict):
                self.write(step, value, f"{place}{name}/")
            elif isinstance(value, int | float):
                summary = Summary(value=[Summary.Value(tag=f"{place}{name}", simple_value=value)])
                self._file.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Finish writing."""
        self._file.close()
