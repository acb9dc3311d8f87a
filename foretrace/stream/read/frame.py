"""Rows of a pandas frame in memory, read like the rows of a parquet file."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.lines import Position, Row, SourceError, check_flat, check_width
from foretrace.stream.read.source import Source
from foretrace.stream.read.values import is_absent

if TYPE_CHECKING:
    import pandas as pd

FRAME = "a frame in memory"
"""Name of the source of a run that reads a frame."""


class FrameSource(Source):
    """A frame as rows. To resume, the frame must begin with the rows that were already read.

    Args:
        frame: frame with one row for each row of the stream. Its index is ignored.
        times, ahead: as in `Source`.

    Raises:
        SourceError: a column name is not a text or is used twice, or there are too many columns.

    >>> import pandas as pd
    >>> source = FrameSource(pd.DataFrame({"x": [1, 2]}))
    >>> [row for row, _ in source.rows()]
    [{'x': 1}, {'x': 2}]
    """

    def __init__(
        self,
        frame: "pd.DataFrame",
        times: Mapping[str, str] | None = None,
        ahead: Ahead | None = None,
    ):
        super().__init__(FRAME, "parquet", times=times, ahead=ahead)
        self.frame = frame
        names = list(frame.columns)
        if bad := [name for name in names if not isinstance(name, str)]:
            raise SourceError(
                f"column {bad[0]!r} of the frame is named by a {type(bad[0]).__name__}, expected "
                "a text; rename it: frame.columns = …"
            )
        if twice := [name for name in names if names.count(name) > 1]:
            raise SourceError(f"the frame has two columns {twice[0]!r}; rename one")
        check_width(FRAME, names)

    def _rows(self, after: Position) -> Iterator[tuple[Row, Position]]:
        return self._table(self._values(), after)

    def _compared(self, values: Row) -> Row:
        # When rows are appended, pandas may make floats of integers, and NaN of other gaps.
        return {
            name: None
            if is_absent(value)
            else int(value)
            if isinstance(value, float) and value.is_integer()
            else value
            for name, value in values.items()
        }

    def _values(self) -> Iterator[Row]:
        names = list(self.frame.columns)
        for number, values in enumerate(self.frame.itertuples(index=False, name=None), 1):
            row: dict[str, Any] = dict(zip(names, values, strict=True))
            check_flat(f"row {number} of the frame", row)
            yield row
