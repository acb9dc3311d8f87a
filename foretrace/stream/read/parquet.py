"""Rows of a parquet file, read in batches by pyarrow (extra `data`)."""

from collections.abc import Iterator
from typing import Any

from foretrace.stream.read.lines import MAX_LINE, SourceError, check_width

_BATCH = 1024
_SLICE = 16

MAX_TEXTS = 2**26
"""Maximum size of the texts of a column in a group of rows, in bytes before compression."""


def parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file.

    Raises:
        SourceError: pyarrow is not installed, or the file cannot be read, has too many or nested
            columns, or has texts that would fill the memory.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SourceError(
            f"{path}: parquet files need pyarrow; pip install 'foretrace[data]'"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            texts = _check(path, file.schema_arrow)
            _check_texts(path, file.metadata)
        # A repeated text is stored once, and it stays so in a dictionary. A short file may contain
        # very many repetitions.
        with parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                _check_lengths(path, batch)
                for start in range(0, batch.num_rows, _SLICE):
                    yield from batch.slice(start, _SLICE).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as parquet: {error}") from error


def _check(path: str, schema: Any) -> list[str]:
    """Return the names of the columns that contain texts."""
    from pyarrow import types

    check_width(path, schema)
    if len(set(schema.names)) < len(schema):
        raise SourceError(f"{path}: two columns of the same name; rename one")
    for field in schema:
        if types.is_nested(field.type):
            raise SourceError(
                f"{path}: column {field.name!r} is {field.type}; flatten it into columns"
            )
    return [field.name for field in schema if _is_text(field.type)]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kinds = types.is_string, types.is_binary, types.is_large_string, types.is_large_binary
    return any(is_kind(kind) for is_kind in kinds)


def _check_texts(path: str, metadata: Any) -> None:
    """Refuse texts that would fill the memory, because whole pages are decompressed."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            size = column.total_uncompressed_size
            if column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") and size > MAX_TEXTS:
                raise SourceError(
                    f"{path}: column {column.path_in_schema[:80]!r} has {size} bytes of texts in "
                    f"one group of rows, but at most {MAX_TEXTS} are read; leave it out, or write "
                    "the file with smaller row groups"
                )


def _check_lengths(path: str, batch: Any) -> None:
    import pyarrow.compute as pc

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = getattr(column, "dictionary", column)
        if not _is_text(values.type):
            continue
        longest = pc.max(pc.binary_length(values)).as_py()
        if longest is not None and longest > MAX_LINE:
            raise SourceError(
                f"{path}: column {name[:80]!r} holds a text of {longest} bytes, but at most "
                f"{MAX_LINE} are read; leave the column out"
            )
