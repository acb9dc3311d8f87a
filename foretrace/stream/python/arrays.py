"""Rows and targets from arrays, frames and lists."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[Any, Any]


def array_rows(X: Any) -> list[dict[Any, Any]]:
    """Return the rows of an array. Features are named by the numbers of their columns.

    Raises:
        ValueError: the argument is not an array of rows and columns.
        TypeError: the argument is a sparse matrix.
    """
    _check_dense("X", X)
    if np.ndim(X) != 2:
        raise ValueError(
            f"X has the shape {np.shape(X)}, expected rows and columns; one column is X[:, None]"
        )
    return [dict(enumerate(row)) for row in _elements(X)]


def frame_rows(X: Any) -> list[dict[Any, Any]]:
    """Return the rows of a frame, with features named by its columns, or the rows of an array.

    Raises:
        ValueError: the argument is neither a frame nor an array of rows and columns.
    """
    return X.to_dict("records") if hasattr(X, "to_dict") and np.ndim(X) == 2 else array_rows(X)


def labels_array(labels: Sequence[Any]) -> np.ndarray:
    """Return labels as an array, in which each label stays what it is.

    >>> labels_array([1, 0]).dtype, labels_array([1, "a"]).tolist(), labels_array([(1, 2)]).shape
    (dtype('int64'), [1, 'a'], (1,))
    """
    found = None
    with contextlib.suppress(ValueError):  # of tuples of several lengths
        found = np.asarray(labels)
    if found is not None and found.ndim == 1 and found.tolist() == list(labels):
        return found
    found = np.empty(len(labels), object)
    for at, one in enumerate(labels):
        found[at] = one
    return found


def targets_of(y: Any) -> list[Any]:
    """Return the targets in a list, an array, a series or a single column, as a list.

    Raises:
        ValueError: there is more than one column.
        TypeError: the argument is a sparse matrix.
    """
    _check_dense("y", y)
    if isinstance(y, str) or not hasattr(y, "__iter__"):
        raise ValueError(f"y is {str(y)[:80]!r}, expected one target for each row")
    if not hasattr(y, "ndim"):
        y = list(y)
        if not any(isinstance(value, list) for value in y):
            return y
        y = np.array(y, object)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.iloc[:, 0] if hasattr(y, "iloc") else y[:, 0]
    if y.ndim != 1:
        raise ValueError(
            f"y has the shape {tuple(y.shape)}, expected one column: one target for each row"
        )
    if hasattr(y, "iloc"):
        return y.tolist()
    return _elements(y)


def _check_dense(name: str, values: Any) -> None:
    """Raise an error for a sparse matrix, which NumPy reads as one object."""
    if hasattr(values, "toarray"):
        raise TypeError(
            f"{name} is a sparse {type(values).__name__} of shape {values.shape}, expected a dense "
            f"array; give {name}.toarray(), or fewer columns if it does not fit into memory"
        )


def _elements(values: Any) -> list[Any]:
    """Return the elements of an array as Python's own types; masked elements are None."""
    array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    # Dates in nanoseconds would become whole numbers.
    return list(array) if array.dtype.kind in "mM" else array.tolist()


def check_lengths(rows: Sequence[Any], targets: Sequence[Any]) -> None:
    """Raise an error if the numbers of rows and targets differ.

    Raises:
        ValueError: the numbers differ.
    """
    if len(rows) != len(targets):
        raise ValueError(
            f"X has {len(rows)} rows and y {len(targets)}; give one row of X for each value of y"
        )
