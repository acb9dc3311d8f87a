"""Scalars for TensorBoard (extra `track`), in addition to `metrics.jsonl`."""

import os
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
            from tensorboard.summary import Writer
        except ImportError as error:
            raise ValueError(
                "--tensorboard needs tensorboard; pip install 'foretrace[track]'"
            ) from error
        self._writer = Writer(str(path))

    def write(self, step: int, values: dict[str, Any], place: str = "") -> None:
        """Write the numeric values. Numbers in dictionaries get joined names."""
        for name, value in values.items():
            if isinstance(value, dict):
                self.write(step, value, f"{place}{name}/")
            elif isinstance(value, int | float):
                self._writer.add_scalar(f"{place}{name}", value, step)

    def close(self) -> None:
        """Finish writing."""
        self._writer.close()
