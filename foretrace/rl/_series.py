"""A file of numbers as a stream whose discounted future is predicted."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import jax.numpy as jnp
import numpy as np

from foretrace._rows.lines import SourceError
from foretrace._rows.source import Source
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep, check_sizes
from foretrace.rl._task import Task
from foretrace.tasks._files import sha256

NEGLIGIBLE = 0.01
"""Weight of the future beyond the end of the file up to which a value counts as known."""

MOST_NUMBERS = 2**26
"""Largest number of numbers of a file: they are held in memory."""


class Table(NamedTuple):
    """Numbers of a file, a row each, and the names of their columns."""

    rows: Float[np.ndarray, "T I"]
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Series(Task):
    r"""Predict the discounted future of a column of a file; there is nothing to choose.

        observation = the numbers of a row
        reward      = (column of the next row - centre) / scale, the cumulant that is predicted

    centre and scale are mean and standard deviation of the column over the first `scaling_rows`
    rows. Columns that are no numbers in the first row, such as dates, are left out. An episode is
    one pass over the file, and its end is a truncation.

    Args:
        path: file with one row for each step: CSV, TSV, JSON lines or parquet, gzip or not.
        column: name of the column whose future is predicted.
        scaling_rows: number of rows at the beginning of the file that the cumulant is scaled by.
        digest: SHA-256 that the file must have. `foretrace rl` records it, so that a run goes on
            with the same rows.
            Default: any.

    Raises:
        ValueError: a scaling_rows below two. Faults of the file or its column are reported where it
            is read.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "load.csv"
    >>> _ = path.write_text("hour,load,heat\nnoon,1,5\nevening,3,4\nnight,2,3\n")
    >>> series = Series(str(path), "load", scaling_rows=2)
    >>> series.observation_size, series.row_count
    (2, 3)
    """

    path: str = ""
    column: str = ""
    scaling_rows: int = 1000
    digest: str | None = None

    action_count: ClassVar[int] = 1
    truncates: ClassVar[bool] = True
    predicts: ClassVar[bool] = True
    most_environments: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_sizes(self, scaling_rows=2)

    @property
    def observation_size(self) -> int:
        """Number of columns with numbers."""
        return len(self.table.columns)

    @property
    def row_count(self) -> int:
        """Number of rows of the file; a pass has one step less."""
        return len(self.table.rows)

    @property
    def stream_length(self) -> int:
        """Number of steps of one pass over the file, each row predicted before it is learned."""
        return self.row_count - 1

    @property
    def table(self) -> Table:
        """Numbers of the file.

        Raises:
            ValueError: no file or column is named; the file cannot be read, does not fit `digest`
                or lacks the column; a column of numbers holds text or gaps; there are fewer than
                three rows or too many numbers.
        """
        if not self.path or not self.column:
            raise ValueError(
                f"Series(path={self.path!r}, column={self.column!r}) must name a file and one of "
                "its columns: --environment.path FILE --environment.column NAME"
            )
        path = Path(self.path).expanduser()
        try:
            status = path.stat()
        except OSError as error:
            raise ValueError(
                f"Series(path={self.path!r}) cannot be read: {error.strerror}"
            ) from error
        table = _read(str(path), status.st_mtime_ns, status.st_size, self.digest)
        if self.column not in table.columns:
            raise ValueError(
                f"Series(column={self.column!r}) is not a column of numbers of {path.name}; choose "
                f"one of {', '.join(table.columns)}"
            )
        return table

    def pinned(self) -> Self:
        """Return the environment with the file's full path and its present or given digest.

        Raises:
            ValueError: as `table`.
        """
        self.table  # noqa: B018 - reports faults of the file
        path = Path(self.path).expanduser().resolve()
        return dataclasses.replace(self, path=str(path), digest=self.digest or sha256(path))

    def cumulants(self) -> Float[np.ndarray, "T"]:
        """Return the scaled column; row t is the reward of the step to row t."""
        rows, columns = self.table
        column = rows[:, columns.index(self.column)]
        first = column[: self.scaling_rows]
        return (column - first.mean()) / (first.std() or 1.0)

    def values(self, discount: float) -> tuple[Float[np.ndarray, "T"], Bool[np.ndarray, "T"]]:
        """Return the discounted sum of the rows after each row, and whether it is known.

            V_t = cumulant_{t+1} + discount * V_{t+1}

        A value is known where what follows the file would have a weight of less than a hundredth.
        """
        cumulants = self.cumulants()
        values = np.zeros(len(cumulants))
        for t in range(len(values) - 2, -1, -1):
            values[t] = cumulants[t + 1] + discount * values[t + 1]
        left = np.arange(len(values))[::-1]
        return values, discount**left < NEGLIGIBLE

    def reset(self, key: PRNGKeyArray) -> tuple[Int[Array, ""], Float[Array, "I"]]:
        """Begin at the first row; the state is the number of the row."""
        row = jnp.zeros((), jnp.int32)
        return row, self._seen(row)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], TimeStep]:
        """Go on to the next row; the action does nothing."""
        row = state + 1
        observation = self._seen(row)
        reward = jnp.asarray(self.cumulants(), observation.dtype)[row]
        one, last = jnp.ones((), observation.dtype), row == self.row_count - 1
        return row, TimeStep(observation, reward, jnp.array(False), last, one)

    def value(
        self, state: Int[Array, ""], discount: float
    ) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """Return the discounted sum of what follows a row, and whether it is known."""
        values, known = self.values(discount)
        return jnp.asarray(values, jnp.result_type(float))[state], jnp.asarray(known)[state]

    def spread(self, discount: float) -> float:
        """Return the variance of the known values, the error of the best constant."""
        values, known = self.values(discount)
        return float(values[known].var()) if known.any() else math.nan

    def references(self, discount: float, first: int, last: int) -> dict[str, float]:
        """Return errors of simple predictions as shares of `spread`, rows `first` to before `last`.

        The last value, as if it went on, predicts cumulant_t / (1 - discount).
        """
        found = {"the best constant for the whole file": 1.0}
        values, known = self.values(discount)
        chosen = np.arange(first, last)[known[first:last]]
        if not len(chosen):
            return found
        errors = {
            "the best constant for these rows": values[chosen].var(),
            "the last value, as if it went on": np.mean(
                (self.cumulants() / (1 - discount) - values)[chosen] ** 2
            ),
        }
        return found | {
            name: float(error / self.spread(discount)) for name, error in errors.items()
        }

    def _seen(self, row: Int[Array, ""]) -> Float[Array, "I"]:
        return jnp.asarray(self.table.rows, jnp.result_type(float))[row]


@functools.lru_cache(maxsize=4)
def _read(path: str, modified: int, size: int, digest: str | None) -> Table:
    """Return the numbers of a file; it is read once, and again if it has changed."""
    if digest is not None and sha256(Path(path)) != digest:
        raise ValueError(
            f"{path} has changed since the run began; give the run its file back, or begin a new "
            "run"
        )
    columns: tuple[str, ...] = ()
    rows: list[list[float]] = []
    for row, position in _source(path).rows():
        if not columns:
            columns = tuple(name for name, value in row.items() if _is_number(value))
            if not columns:
                raise ValueError(f"{path} has no column of numbers in its first row")
        for name in columns:
            if not _is_number(row.get(name)):
                raise ValueError(
                    f"{path}: line {position.line}: {name}={row.get(name)!r} is no finite number, "
                    "unlike the first row; fill gaps, or leave the column out"
                )
        rows.append([float(row[name]) for name in columns])
        if len(rows) * len(columns) > MOST_NUMBERS:
            raise ValueError(
                f"{path} has more than {MOST_NUMBERS:,} numbers, which are held in memory; take a "
                "part of it"
            )
    if len(rows) < 3:
        raise ValueError(f"{path} has {len(rows)} rows, expected at least 3")
    return Table(np.array(rows), columns)


def _source(path: str) -> Source:
    try:
        return Source(path)
    except SourceError as error:
        raise ValueError(
            f"Series(path={path!r}): the name must end with .csv, .tsv, .jsonl or .parquet, also "
            "with .gz after it"
        ) from error


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
