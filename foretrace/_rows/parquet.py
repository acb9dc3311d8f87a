"""Rows of a parquet file, a batch at a time; pyarrow (extra `data`) reads it."""

from collections.abc import Iterator
from typing import Any

from foretrace._rows.lines import SourceError

_BATCH = 1024


def parquet_rows(path: str, after: int, max_columns: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows behind the first `after`, each with its number.

    Raises:
        SourceError: pyarrow is missing, or the file cannot be read, is wider than `max_columns`, or is nested.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SourceError(f"{path}: parquet files need pyarrow; pip install 'foretrace[data]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            _check(path, file.schema_arrow, max_columns)
            groups, row = _behind(file.metadata, after)
            for batch in file.iter_batches(batch_size=_BATCH, row_groups=groups):
                if row + batch.num_rows <= after:
                    row += batch.num_rows
                    continue
                for values in batch.to_pylist():
                    row += 1
                    if row > after:
                        yield row, values
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as parquet: {error}") from error


def _behind(metadata: Any, after: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows behind `after`, and the number of rows before them."""
    row, group = 0, 0
    while group < metadata.num_row_groups and row + metadata.row_group(group).num_rows <= after:
        row += metadata.row_group(group).num_rows
        group += 1
    return list(range(group, metadata.num_row_groups)), row


def _check(path: str, schema: Any, max_columns: int) -> None:
    from pyarrow import types

    if len(schema) > max_columns:
        raise SourceError(f"{path}: {len(schema)} columns, but at most {max_columns} are read; leave some out")
    if len(set(schema.names)) < len(schema):
        raise SourceError(f"{path}: two columns of the same name; rename one")
    for field in schema:
        if types.is_nested(field.type):
            raise SourceError(f"{path}: column {field.name!r} is {field.type}; flatten it into columns")
