"""Tasks that classify stored sequences: splits, epochs, and expansion on the device.

A batch is made in two parts. First, its *rows* are read on the host, as bytes in the stored form.
Second, the rows are *expanded* to inputs, targets and mask in a traced function, so that long
sequences of one-hot vectors are neither transferred to the device nor stored on the host. `batch`
does both. If it is traced, a callback reads the rows on the host.
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from foretrace._types import Array, Float, Int
from foretrace.tasks import Batch, EvaluationSplit, Labels, Task
from foretrace.tasks._files import DataError, Source, data_root

SplitName = Literal["training", "validation", "test"]

Index = int | np.integer | Int[Array, ""] | Int[np.ndarray, ""]
"""An integer, which may be traced."""

# RandomState, because NumPy promises that its numbers never change. These purposes distinguish the
# random orders.
_HOLD_OUT, _ORDER = 0x5EED, 1


class Rows(NamedTuple):
    """Sequences in the stored form: NumPy arrays on the host, JAX arrays in a traced function.

    Args:
        symbols: bytes or numbers, zero after the end of a sequence.
        lengths: number of steps of each sequence.
        labels: class of each sequence, or its targets.
        counts: 1 for a sequence, 0 for a row that only fills a batch.
    """

    symbols: UInt8[Array | np.ndarray, "B ..."] | Float[Array | np.ndarray, "B ..."]
    lengths: Int[Array | np.ndarray, "B"]
    labels: Int[Array | np.ndarray, "B ..."] | Float[Array | np.ndarray, "B ..."]
    counts: Float[Array | np.ndarray, "B"]


class Split(NamedTuple):
    """A part of the stored sequences, in order.

    Args:
        symbols: one row for each stored sequence. If there are offsets, all sequences are
            concatenated.
        labels: class of each stored sequence.
        members: indices of the stored sequences in this split.
        offsets: start of each stored sequence, and end of the last one.
        lengths: number of steps of each stored sequence, if they are padded.
    """

    symbols: np.ndarray
    labels: np.ndarray
    members: np.ndarray
    offsets: np.ndarray | None = None
    lengths: np.ndarray | None = None

    def rows(self, chosen: np.ndarray, size: int, length: int) -> Rows:
        """Return the chosen sequences, truncated to a length and padded with masked rows."""
        stored = self.members[chosen]
        fill = size - len(stored)
        if self.offsets is None:
            symbols = np.asarray(self.symbols[stored])
            lengths = (
                np.full(len(stored), length, np.int32)
                if self.lengths is None
                else self.lengths[stored]
            )
        else:
            symbols, lengths = self._ragged(stored, length)
        padded = [
            np.pad(a, [(0, fill)] + [(0, 0)] * (a.ndim - 1))
            for a in (symbols, lengths, self.labels[stored])
        ]
        counts = np.pad(np.ones(len(stored), np.float32), (0, fill))
        return Rows(padded[0], padded[1], padded[2].astype(self.label_type), counts)

    @property
    def label_type(self) -> np.dtype:
        """Data type of the labels of a row."""
        return np.dtype(np.int32 if np.issubdtype(self.labels.dtype, np.integer) else np.float32)

    def row_shape(self, length: int) -> tuple[int, ...]:
        """Return the shape of the symbols of one row."""
        return (length,) if self.offsets is not None else self.symbols.shape[1:]

    def _ragged(self, stored: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        assert self.offsets is not None
        begins = self.offsets[stored]
        lengths = np.minimum(self.offsets[stored + 1] - begins, length).astype(np.int32)
        symbols = np.zeros((len(stored), length), self.symbols.dtype)
        for row, begin, steps in zip(symbols, begins, lengths, strict=True):
            row[:steps] = self.symbols[begin : begin + steps]
        return symbols, lengths


class AbstractStoredTask(Task, abc.ABC):
    """Classification of stored sequences, with the class as the target at every valid step.

    Each valid step has the weight 1 / (number of valid steps), so the loss of a sequence is the
    mean over its valid steps. The predicted class has the largest mean of the logits over the valid
    steps.
    """

    recalled: ClassVar[None] = None

    def with_data_dir(self, data_dir: str) -> Self:
        """Return the task with its data in another directory, if it has the field `data_dir`."""
        fields = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return dataclasses.replace(self, data_dir=data_dir) if "data_dir" in fields else self  # type: ignore[type-var]

    @abc.abstractmethod
    def split(self, name: SplitName) -> Split:
        """Return a split. Its data are read in the first call."""

    @abc.abstractmethod
    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return the inputs of rows; called in a traced function."""

    @property
    def labels(self) -> Labels:
        """The class of a whole sequence is predicted."""
        return "sequence"

    @property
    def sizes(self) -> dict[str, int]:
        """Number of sequences in each split."""
        return {name: len(self.split(name).members) for name in ("training", "validation", "test")}

    def evaluation_steps(self, split: SplitName, size: int) -> int:
        """Return the number of batches that contain every sequence of a split once."""
        _check_size(size)
        return -(-len(self.split(split).members) // size)

    def batch(self, seed: Index, step: Index, size: int) -> Batch:
        """Return the training sequences of a step. Each epoch has a separate random order.

        Args:
            seed: seed of the orders, may be traced.
            step: number of batches before this batch, may be traced.
            size: number of sequences.

        Raises:
            ValueError: the size is below one or above the number of training sequences.
            DataError: the data are missing or not the expected data.
        """
        return self.expand(self.rows("training", seed, step, size))

    def evaluation(self, split: EvaluationSplit, seed: Index, index: Index, size: int) -> Batch:
        """Return consecutive batch `index` of the validation or test split, equal for all seeds.

        The last batch is filled up with rows whose mask is zero. Later batches have only such rows.
        """
        return self.expand(self.rows(split, seed, index, size))

    def rows(self, name: SplitName, seed: Index, index: Index, size: int) -> Rows:
        """Return batch `index` of a split before expansion, on the host unless it is traced."""
        split = self.split(name)
        _check_size(size, most=len(split.members) if name == "training" else size)

        def on_host(seed: Index, index: Index) -> Rows:
            choose = _of_epoch if name == "training" else _consecutive
            return split.rows(
                choose(len(split.members), int(seed), int(index), size), size, self.length
            )

        if not isinstance(seed, jax.core.Tracer) and not isinstance(index, jax.core.Tracer):
            return on_host(seed, index)
        shape: Any = jax.ShapeDtypeStruct
        symbols = shape((size, *split.row_shape(self.length)), split.symbols.dtype)
        integers = shape((size,), np.int32)
        labels = shape((size, *split.labels.shape[1:]), split.label_type)
        expected = Rows(symbols, integers, labels, shape((size,), np.float32))
        return jax.pure_callback(on_host, expected, seed, index, vmap_method="sequential")

    def expand(self, rows: Rows) -> Batch:
        """Return inputs, targets and mask of rows; called in a traced function."""
        xs = self.inputs(rows)
        steps = jnp.arange(self.length, dtype=jnp.int32)[None]
        ys = jnp.broadcast_to(jnp.asarray(rows.labels)[:, None], xs.shape[:2])
        lengths = jnp.asarray(rows.lengths)[:, None]
        share = jnp.asarray(rows.counts)[:, None] / jnp.maximum(lengths, 1).astype(jnp.float32)
        return Batch(xs, ys, jnp.where(steps < lengths, share, jnp.zeros_like(share)))


def one_hot(rows: Rows, classes: int) -> Float[Array, "B T I"]:
    """Return symbols as one-hot vectors, and zero vectors after the end of a sequence."""
    symbols = jnp.asarray(rows.symbols).astype(jnp.int32)
    ended = (
        jnp.arange(symbols.shape[1], dtype=jnp.int32)[None] >= jnp.asarray(rows.lengths)[:, None]
    )
    return jax.nn.one_hot(jnp.where(ended, -1, symbols), classes, dtype=jnp.float32)


class AbstractPublicTask(AbstractStoredTask):
    """Classification of a public data set, whose training files `hold_out` divides."""

    source: ClassVar[Source]

    samples: int | None
    data_dir: str | None
    verify: bool

    @property
    def provenance(self) -> str:
        """Name of the data set."""
        return self.source.name

    def split(self, name: SplitName) -> Split:
        """Return a split. The first call reads it from the files.

        Raises:
            DataError: its files are missing or not the expected files, or a label is not one of the
                classes.
            ValueError: `samples` is larger than the number of sequences.
        """
        part = "test" if name == "test" else "train"
        arrays = self.source.load(part, data_root(self.data_dir), self.verify)
        count = len(arrays["labels"])
        largest = int(arrays["labels"].max(initial=0))
        if largest >= self.output_size:
            raise DataError(
                f"{self.source.name}: a label is {largest}, expected 0 to {self.output_size - 1}; "
                "are these other data?"
            )
        members = shuffled(count) if name == "test" else hold_out(count, self.samples)[name]
        return Split(arrays["symbols"], arrays["labels"], members, arrays.get("offsets"))


def hold_out(stored: int, samples: int | None = None) -> dict[SplitName, np.ndarray]:
    """Divide training sequences in a fixed random order; the last tenth is the validation split.

    Args:
        stored: number of sequences.
        samples: number of training sequences, counted from the first. Default: all.

    Raises:
        ValueError: `samples` is larger than the number of sequences.
    """
    order = shuffled(stored)
    count = stored - stored // 10
    if samples is not None and not 1 <= samples <= count:
        raise ValueError(
            f"samples={samples}: at least 1 and at most {count}, what validation leaves, are needed"
        )
    return {"training": order[: samples or count], "validation": order[count:]}


def shuffled(stored: int) -> np.ndarray:
    """Return a fixed random order, in which a few batches represent sorted data fairly."""
    return _permutation(stored, _HOLD_OUT)


def _of_epoch(members: int, seed: int, step: int, size: int) -> np.ndarray:
    epoch, position = divmod(step, members // size)
    return _permutation(members, seed, _ORDER, epoch)[position * size : (position + 1) * size]


def _consecutive(members: int, seed: int, index: int, size: int) -> np.ndarray:
    return np.arange(min(index * size, members), min((index + 1) * size, members))


@functools.lru_cache(maxsize=64)
def _permutation(count: int, *key: int) -> np.ndarray:
    order = np.random.RandomState(key).permutation(count).astype(np.int32)
    order.flags.writeable = False  # several callers share it
    return order


def _check_size(size: int, most: int | None = None) -> None:
    if size < 1 or (most is not None and size > most):
        limit = "" if most is None else f" and at most {most}"
        raise ValueError(f"a batch of {size} sequences: at least 1{limit} are needed")
