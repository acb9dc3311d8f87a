"""Your own sequences from one .npz or parquet file: classes or numbers, by step or sequence."""

import dataclasses
import functools
import math
import zipfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
import tyro

from foretrace import losses as _loss
from foretrace._types import Array, Float
from foretrace.tasks import Batch, Labels, Loss
from foretrace.tasks._files import DataError, sha256
from foretrace.tasks._formats import import_extra
from foretrace.tasks._stored import AbstractStoredTask, Rows, Split, SplitName, shuffled

MOST_CLASSES = 2**16
"""Maximum number of classes, because each class is an output of the network."""

MOST_NUMBER = 1e18
"""Largest absolute value of an input or a target, so that its square is finite in float32."""

SMALL, EXPANSION = 2**26, 200
"""Memory in bytes that any file may take, and memory of a larger file, relative to its size."""

_NAMES = tuple(f"{name}{end}" for name in ("xs", "ys", "lengths") for end in ("", "_test"))

_PADDED = "xs of shape (sequences, steps, features), and lengths if they are padded"


@dataclasses.dataclass(frozen=True)
class OwnSequences(AbstractStoredTask):
    """Your own sequences, read from a file.

        xs        (N, T, F) numbers; (N, T) for one feature
        ys        (N,) or (N, T) classes as integers from 0, or numbers (N,), (N, K), (N, T) or
                  (N, T, K); -1 or NaN at steps without a target
        lengths   (N,) number of steps of each sequence, if some are padded

    In parquet, `xs` and `ys` are columns with one sequence of any length in each row. One tenth of
    the sequences is used for validation and one tenth for the test. If a file .npz has separate
    test sequences (`xs_test`, `ys_test`, `lengths_test`), these are the test instead. The class
    of a sequence is the target at every step, and it is predicted by the mean of the logits. The
    number of a sequence is the target at its last step.

    Args:
        data: path of the file, .npz or .parquet.
        digest: SHA-256 that the file must have. `foretrace train` records it, so that a resumed run
            uses the same data. Default: any.
        standardise: whether the features, and targets that are numbers, are scaled to mean 0 and
            variance 1 over the training sequences.
        each_step: whether `ys` have a target for each step. Default: true if there are T on their
            second axis.

    >>> import tempfile, os, numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "my.npz")
    >>> np.savez(path, xs=np.ones((10, 5, 2)), ys=np.arange(10) % 3)
    >>> task = OwnSequences(path)
    >>> task.input_size, task.output_size, task.length, task.sizes
    (2, 3, 5, {'training': 8, 'validation': 1, 'test': 1})
    """

    data: Annotated[str | None, tyro.conf.arg(aliases=("--data",))] = None
    digest: str | None = None
    standardise: bool = True
    each_step: Annotated[bool | None, tyro.conf.arg(aliases=("--each-step",))] = None

    @property
    def input_size(self) -> int:
        """Number of features."""
        return self._stored.xs.shape[-1]

    @property
    def output_size(self) -> int:
        """Number of classes, or number of target values at each step."""
        return self._stored.outputs

    @property
    def length(self) -> int:
        """Number of steps of the longest sequence."""
        return self._stored.xs.shape[1]

    @property
    def labels(self) -> Labels:
        """Whether the class of a whole sequence is predicted, or single steps."""
        return "sequence" if self._stored.is_class and not self._stored.each_step else "step"

    @property
    def loss(self) -> Loss:
        """Cross-entropy for classes, half the squared error for numbers."""
        return _loss.softmax_cross_entropy if self._stored.is_class else _loss.squared_error

    @property
    def provenance(self) -> str:
        """Number of training sequences, and name of the file."""
        return f"{self.sizes['training']} sequences of {Path(str(self.data)).name}"

    @property
    def score_name(self) -> str:
        """Name of the score in tables."""
        return "classified rightly" if self._stored.is_class else "variance explained"

    def score(self, output: Float[Array, "O"], y: Array) -> Float[Array, ""]:
        """Return the accuracy, or the explained fraction of the targets' variance."""
        if self._stored.is_class:
            return _loss.accuracy(output, y.astype(int))
        return (
            1 - 2 * _loss.squared_error(output, y) / self._stored.scale(self.standardise).variance
        )

    def scaled(self, x: Float[Array, "F"]) -> Float[Array, "F"]:
        """Return the features of a step as the network gets them."""
        scale = self._stored.scale(self.standardise)
        return (x - scale.xs_mean) / scale.xs_deviation

    def unscaled(self, output: Float[Array, "O"]) -> Float[Array, "O"]:
        """Return an output of the network in the units of the targets."""
        scale = self._stored.scale(self.standardise)
        return output * scale.ys_deviation + scale.ys_mean

    def pinned(self) -> Self:
        """Return the task with the full path of its file, and with the file's digest.

        Raises:
            DataError: the file is missing or has a wrong content.
        """
        self._stored  # noqa: B018 - reports faults of the file
        path = Path(str(self.data)).expanduser().resolve()
        return dataclasses.replace(self, data=str(path), digest=self.digest or sha256(path))

    def split(self, name: SplitName) -> Split:
        """Return a split.

        Raises:
            DataError: the file is missing or has a wrong content.
        """
        stored = self._stored
        return Split(stored.xs, stored.ys, stored.members[name], lengths=stored.lengths)

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return the features, scaled if `standardise` is true."""
        scale = self._stored.scale(self.standardise)
        xs = (jnp.asarray(rows.symbols) - scale.xs_mean[None, None]) / scale.xs_deviation[
            None, None
        ]
        steps = jnp.arange(self.length, dtype=jnp.int32)[None]
        return jnp.where((steps < jnp.asarray(rows.lengths)[:, None])[..., None], xs, 0.0)

    def expand(self, rows: Rows) -> Batch:
        """Return inputs, targets and mask of rows; called in a traced function."""
        stored = self._stored
        if self.labels == "sequence":
            return super().expand(rows)
        xs, ys = self.inputs(rows), jnp.asarray(rows.labels)
        lengths = jnp.asarray(rows.lengths)[:, None]
        steps = jnp.arange(self.length, dtype=jnp.int32)[None]
        there = (steps < lengths) if stored.each_step else (steps == lengths - 1)
        if not stored.each_step:
            ys = jnp.broadcast_to(ys[:, None], (*xs.shape[:2], *ys.shape[1:]))
        known = ys >= 0 if stored.is_class else ~jnp.isnan(ys)
        asked = there & known.reshape(*known.shape[:2], -1).all(-1)
        if not stored.is_class:
            scale = stored.scale(self.standardise)
            ys = (ys - scale.ys_mean[None, None]) / scale.ys_deviation[None, None]
        ys = jnp.where(asked.reshape(*asked.shape, *[1] * (ys.ndim - 2)), ys, jnp.zeros_like(ys))
        share = asked.astype(jnp.float32) / jnp.maximum(asked.sum(1, keepdims=True), 1).astype(
            jnp.float32
        )
        return Batch(xs, ys, share * jnp.asarray(rows.counts)[:, None])

    @property
    def _stored(self) -> "_Stored":
        if self.data is None:
            raise DataError("sequences of your own are in a file: name it with --data FILE.npz")
        path = Path(self.data).expanduser()
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from error
        file = path.resolve(), status.st_mtime_ns, status.st_size
        return _read(*file, self.digest, self.each_step)


class _Scale(NamedTuple):
    """Means and deviations for the scaling, and the variance of the scaled targets."""

    xs_mean: np.ndarray
    xs_deviation: np.ndarray
    ys_mean: np.ndarray
    ys_deviation: np.ndarray
    variance: float


@dataclasses.dataclass(frozen=True, eq=False)
class _Stored:
    """Content of a file."""

    xs: np.ndarray
    ys: np.ndarray
    lengths: np.ndarray
    members: dict[SplitName, np.ndarray]
    outputs: int
    each_step: bool
    is_class: bool

    @functools.lru_cache(maxsize=2)  # noqa: B019 - a file is read once and kept
    def scale(self, standardise: bool) -> _Scale:
        """Return the statistics of the training sequences."""
        chosen = self.members["training"]
        there = np.arange(self.xs.shape[1])[None] < self.lengths[chosen][:, None]
        if self.is_class:
            ys_mean, ys_deviation = np.zeros(1, np.float32), np.ones(1, np.float32)
        else:
            ys = self.ys[chosen][there] if self.each_step else self.ys[chosen]
            ys_mean, ys_deviation = _moments(ys)
        if standardise:
            return _Scale(*_moments(self.xs[chosen][there]), ys_mean, ys_deviation, 1.0)
        variance = float(np.mean(ys_deviation.astype(np.float64) ** 2))
        zeros, ones = (
            np.zeros(self.xs.shape[-1], np.float32),
            np.ones(self.xs.shape[-1], np.float32),
        )
        return _Scale(zeros, ones, np.zeros_like(ys_mean), np.ones_like(ys_mean), variance)


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = rows.astype(np.float64)
    deviation = np.nanstd(wide, axis=0).astype(np.float32)
    return np.nanmean(wide, axis=0).astype(np.float32), np.where(
        deviation > 0, deviation, np.float32(1)
    )


@functools.lru_cache(maxsize=4)
def _read(path: Path, modified: int, size: int, digest: str | None, asked: bool | None) -> _Stored:
    if digest is not None and sha256(path) != digest:
        raise DataError(
            f"{path} has changed since the run began, or is another file: its SHA-256 is not the "
            "recorded one; give the run its file back, or begin a new run"
        )
    arrays = _npz(path) if path.suffix == ".npz" else _parquet(path)
    xs, ys, lengths, each_step = _checked(path, arrays, "", asked)
    count = len(xs)
    if test := {
        name: arrays[f"{name}_test"] for name in ("xs", "ys", "lengths") if f"{name}_test" in arrays
    }:
        more_xs, more_ys, more_lengths, also = _checked(path, test, "_test", asked)
        if more_xs.shape[1:] != xs.shape[1:] or also != each_step or more_ys.dtype != ys.dtype:
            raise DataError(
                f"{path}: xs_test and ys_test must have the steps, features and kind of targets of "
                "xs and ys"
            )
        xs, ys = np.concatenate([xs, more_xs]), np.concatenate([ys, more_ys])
        lengths = np.concatenate([lengths, more_lengths])
    if count < 3:
        raise DataError(f"{path} holds {count} sequences; at least 3 are needed, to hold some out")
    order, tenth = shuffled(count), max(1, count // 10)
    held = tenth if test else 2 * tenth
    own: np.ndarray = order[count - tenth :]
    members: dict[SplitName, np.ndarray] = {
        "training": order[: count - held],
        "validation": order[count - held : count - held + tenth],
        "test": np.arange(count, len(xs), dtype=np.int32) if test else own,
    }
    is_class = np.issubdtype(ys.dtype, np.integer)
    _check_targets(path, ys[members["training"]], is_class)
    each = int(np.prod(ys.shape[2:] if each_step else ys.shape[1:], dtype=int))
    classes = int(ys.max(initial=0)) + 1 if is_class else 0
    if is_class and classes < 2:
        raise DataError(f"{path}: every label is {classes - 1}; at least two classes are needed")
    return _Stored(
        xs, ys, lengths, members, each * max(classes, 2) if is_class else each, each_step, is_class
    )


def _check_targets(path: Path, ys: np.ndarray, is_class: bool) -> None:
    """Check that each output has targets in the training sequences.

    Raises:
        DataError: an output has no target in any training sequence.
    """
    known = ys >= 0 if is_class else ~np.isnan(ys)
    outputs = known if is_class else known.reshape(-1, ys.shape[-1])
    if not (outputs.any() if is_class else outputs.any(axis=0).all()):
        missing = "-1" if is_class else "NaN"
        raise DataError(
            f"{path}: the targets of all training sequences are {missing}, so that nothing is asked"
        )


def _checked(
    path: Path, arrays: dict[str, Any], end: str, asked: bool | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    for name in ("xs", "ys"):
        if name not in arrays:
            raise DataError(
                f"{path} has no array {name}{end}, only {', '.join(sorted(arrays))}; expected "
                f"{_PADDED}, and ys"
            )
    xs, ys = np.asarray(arrays["xs"]), np.asarray(arrays["ys"])
    if (
        not (np.issubdtype(xs.dtype, np.number) or xs.dtype == bool)
        or np.iscomplexobj(xs)
        or xs.ndim not in (2, 3)
    ):
        raise DataError(f"{path}: xs{end} is {xs.dtype}{list(xs.shape)}, expected {_PADDED}")
    with np.errstate(over="ignore"):  # values that become infinite are refused below
        xs = (xs[..., None] if xs.ndim == 2 else xs).astype(np.float32)
    count, length = xs.shape[:2]
    lengths = np.asarray(arrays.get("lengths", np.full(count, length)))
    if lengths.shape != (count,) or not np.issubdtype(lengths.dtype, np.integer):
        raise DataError(
            f"{path}: lengths{end} is {lengths.dtype}{list(lengths.shape)}, expected {count} whole "
            "numbers"
        )
    if count and (lengths.min() < 1 or lengths.max() > length):
        raise DataError(
            f"{path}: lengths{end} reach from {lengths.min()} to {lengths.max()}, expected 1 to "
            f"{length}"
        )
    wrong = ~(np.abs(xs) <= MOST_NUMBER).all(-1) & (np.arange(length)[None] < lengths[:, None])
    if wrong.any():
        raise DataError(
            f"{path}: xs{end} holds NaN, infinity or a number beyond {MOST_NUMBER:g} in sequence "
            f"{np.argwhere(wrong)[0][0]}; clean it first"
        )
    ys, each_step = _targets(path, ys, end, count, length, asked)
    return xs, ys, lengths.astype(np.int32), each_step


def _targets(
    path: Path, ys: np.ndarray, end: str, count: int, length: int, asked: bool | None
) -> tuple[np.ndarray, bool]:
    has_steps = ys.ndim >= 2 and ys.shape[1] == length and length > 1
    each_step = has_steps if asked is None else asked
    ys = ys.astype(np.int32) if ys.dtype == bool else ys
    is_class = np.issubdtype(ys.dtype, np.integer)
    if (
        not (is_class or np.issubdtype(ys.dtype, np.floating))
        or ys.ndim not in (1, 2, 3)
        or len(ys) != count
    ):
        raise DataError(
            f"{path}: ys{end} is {ys.dtype}{list(ys.shape)}, expected {count} targets, or {count} "
            f"x {length} targets"
        )
    if (ys.ndim == 3 or each_step) and not has_steps:
        raise DataError(
            f"{path}: ys{end} has shape {list(ys.shape)}, expected {length} steps on its second "
            "axis"
        )
    if is_class and int(ys.min(initial=0)) < -each_step:
        raise DataError(f"{path}: ys{end} holds the label {ys.min()}; classes are counted from 0")
    if is_class and int(ys.max(initial=0)) >= MOST_CLASSES:
        raise DataError(
            f"{path}: ys{end} holds the label {ys.max()}, but at most {MOST_CLASSES} classes are "
            "learned, counted from 0; number the classes one after another, or give real numbers "
            "to predict a number"
        )
    if is_class and not each_step:
        if ys.ndim == 2 and ys.shape[1] > 1:
            raise DataError(
                f"{path}: ys{end} has shape {list(ys.shape)}: one class for each sequence is "
                "expected"
            )
        return ys.reshape(count).astype(np.int32), False
    if is_class:
        return ys.astype(np.int32), True
    if (np.abs(ys) > MOST_NUMBER).any():
        raise DataError(
            f"{path}: ys{end} holds infinity or a number beyond {MOST_NUMBER:g} in sequence "
            f"{np.argwhere(np.abs(ys) > MOST_NUMBER)[0][0]}; clean it first, with NaN where "
            "nothing is known"
        )
    # A number needs an axis of outputs.
    return (ys if ys.ndim == 2 + each_step else ys[..., None]).astype(np.float32), each_step


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            _check_expansion(
                path,
                sum(_bytes_of(file.zip, f"{name}.npy") for name in _NAMES if name in file.files),
            )
            # For other arrays, only the names are given.
            return {name: file[name] if name in _NAMES else np.empty(0) for name in file.files}
    except DataError:
        raise
    except Exception as error:  # any error of NumPy for a damaged file, or for a file with objects
        raise DataError(
            f"cannot read {path}: {error}; write it with numpy.savez(path, xs=…, ys=…)"
        ) from error


def _bytes_of(archive: zipfile.ZipFile, name: str) -> int:
    """Return the size of an array in an archive, from its header."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, dtype = read[version](file)
    # Inputs become float32, targets int32 or float32.
    return math.prod(shape) * max(dtype.itemsize, 4)


def _check_expansion(path: Path, needed: int) -> None:
    """Refuse a file that would fill the memory, because few bytes can expand without limit.

    Raises:
        DataError: the file needs too much memory for its size.
    """
    size = path.stat().st_size
    if needed > max(SMALL, EXPANSION * size):
        raise DataError(
            f"{path} has {size:,} bytes and would take {needed:,} in memory, more than {EXPANSION} "
            "times as many; if that is right, write it without compression, with numpy.savez"
        )


def _parquet(path: Path) -> dict[str, np.ndarray]:
    if path.suffix != ".parquet":
        raise DataError(
            f"{path} is neither .npz nor .parquet; for rows of a table, use foretrace stream"
        )
    try:
        parquet = import_extra("pyarrow.parquet")
        about = parquet.read_metadata(path)
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        _check_expansion(
            path, 8 * sum(g.column(j).num_values for g in groups for j in range(g.num_columns))
        )
        table = parquet.read_table(path).to_pydict()
    except DataError:
        raise
    except Exception as error:  # any error of Arrow for a damaged file
        raise DataError(f"cannot read {path}: {error}") from error
    if not {"xs", "ys"} <= set(table):
        return table  # the checks report missing parts
    if others := table.keys() & {*_NAMES} - {"xs", "ys"}:
        raise DataError(
            f"{path} has the column {min(others)!r}; in parquet, each row of xs is as long as its "
            "sequence, and a separate test needs a file .npz: leave the column out"
        )
    try:
        rows = [np.asarray(x, np.float32) for x in table["xs"]]
        lengths = np.array([len(row) for row in rows], np.int32)
        longest = int(lengths.max(initial=0))
        xs = np.stack(
            [np.pad(row, [(0, longest - len(row))] + [(0, 0)] * (row.ndim - 1)) for row in rows]
        )
        ys = table["ys"]
        if isinstance(ys[0], list) and [len(y) for y in ys] == lengths.tolist():
            targets = [np.asarray(y) for y in ys]
            fill = -1 if np.issubdtype(targets[0].dtype, np.integer) else np.nan
            wide = [(0, 0)] * (targets[0].ndim - 1)
            padded = [
                np.pad(y, [(0, longest - len(y)), *wide], constant_values=fill) for y in targets
            ]
            return {"xs": xs, "ys": np.stack(padded), "lengths": lengths}
        return {"xs": xs, "ys": np.asarray(ys), "lengths": lengths}
    except (ValueError, TypeError, IndexError) as error:
        raise DataError(
            f"{path}: xs and ys cannot be made arrays ({error}); each row holds one sequence"
        ) from error
