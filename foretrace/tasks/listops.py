"""ListOps: the value of a nested expression of minima, maxima, medians and sums of digits."""

import dataclasses
import functools
import hashlib
import logging
from pathlib import Path

import numpy as np

from foretrace._types import Array, Float
from foretrace.tasks import _lra
from foretrace.tasks._cache import cached
from foretrace.tasks._files import CACHE_HINT, Arrays, DataDir, DataError, Source, data_root
from foretrace.tasks._listops import Grammar, generate
from foretrace.tasks._stored import AbstractStoredTask, Rows, Split, SplitName, one_hot

_VERSION = "1"  # changes with what `generate` returns
_log = logging.getLogger(__name__)


class AbstractListOps(AbstractStoredTask):
    """Ten classes; 20 inputs as in the paper's network, of which the 15 symbols use the first."""

    @property
    def input_size(self) -> int:
        """Symbols, and room for the special tokens of others; those inputs stay zero."""
        return 20

    @property
    def output_size(self) -> int:
        """The digits."""
        return 10

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return symbols as unit vectors."""
        return one_hot(rows, self.input_size)


@dataclasses.dataclass(frozen=True)
class ListOps(AbstractListOps):
    """ListOps, generated as the Long Range Arena specifies: the same law, not the released rows.

    Rows are drawn once and kept in the cache. The held-out rows come first, so that they are the
    same for any number of training samples.

    Args:
        samples: number of training sequences.
        held_out: number of sequences of the validation split, and of the test split.
        data_seed: seed of the sequences, in `[0, 2^32)`; independent of the seed of a run.
        min_length: number of tokens that every sequence exceeds.
        max_length: number of tokens that no sequence reaches.

    Raises:
        ValueError: lengths that leave nothing, or sizes below one.

    Source: Nangia and Bowman, ListOps, 2018; Tay et al., Long Range Arena, 2021. The paper's
        section 4.4.

    >>> task = ListOps()
    >>> task.input_size, task.output_size, task.length
    (20, 10, 1999)
    """

    samples: int = 96_000
    held_out: int = 2_000
    data_seed: int = 0
    min_length: int = 500
    max_length: int = 2_000

    def __post_init__(self) -> None:
        if self.samples < 1 or self.held_out < 1:
            raise ValueError(
                f"samples={self.samples} and held_out={self.held_out} must be at least 1"
            )
        if not 0 <= self.data_seed < 2**32:
            raise ValueError(f"data_seed={self.data_seed} must lie in [0, 2^32)")
        self.grammar  # noqa: B018 - checks the lengths

    @property
    def grammar(self) -> Grammar:
        """Which trees there are."""
        return Grammar(self.min_length, self.max_length)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return self.max_length - 1

    @property
    def provenance(self) -> str:
        """The rows are not the released ones."""
        return "ListOps, regenerated with the LRA specification"

    def split(self, name: SplitName) -> Split:
        """Return a split; generated when it is first asked for.

        Raises:
            DataError: the cache cannot be written.
        """
        arrays = _generated(self.grammar, self.samples + 2 * self.held_out, self.data_seed)
        count = self.held_out
        bounds = {
            "validation": (0, count),
            "test": (count, 2 * count),
            "training": (2 * count, 2 * count + self.samples),
        }
        return Split(
            arrays["symbols"], arrays["labels"], np.arange(*bounds[name]), arrays["offsets"]
        )

    def export(self, folder: Path) -> list[Path]:
        """Write the splits as `basic_{train,val,test}.tsv`, in the released format."""
        paths = []
        for name, stored in _RELEASED.items():
            split = self.split(name)
            assert split.offsets is not None
            bounds = [split.offsets[split.members + end] for end in (0, 1)]
            sequences = (split.symbols[begin:end] for begin, end in zip(*bounds, strict=True))
            paths.append(folder / f"basic_{stored}.tsv")
            _lra.write(paths[-1], sequences, split.labels[split.members])
        return paths


@dataclasses.dataclass(frozen=True)
class ReleasedListOps(AbstractListOps):
    """ListOps as the Long Range Arena released it: `basic_{train,val,test}.tsv`.

    Args:
        samples: number of training sequences, from the first on; default: all.
        data_dir: directory that contains the folder `listops` with these files; default: the one
            that `FORETRACE_DATA` names.

    Source: Tay et al., Long Range Arena, 2021.
    """

    samples: int | None = None
    data_dir: DataDir = None

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return 1999

    @property
    def provenance(self) -> str:
        """The rows are the files' rows."""
        return _SOURCE.name

    def split(self, name: SplitName) -> Split:
        """Return a split; read from the files when it is first asked for.

        Raises:
            DataError: they are missing, or in another format.
            ValueError: more samples than there are.
        """
        # There is no checksum to verify: the archive is not among the data that were at hand.
        arrays = _SOURCE.load(_RELEASED[name], data_root(self.data_dir), False)
        if (longest := np.diff(arrays["offsets"]).max()) > self.length:
            raise DataError(
                f"{_SOURCE.name}: a sequence of {longest} tokens, at most {self.length} are "
                "expected"
            )
        count = len(arrays["labels"])
        if name == "training" and self.samples is not None:
            if not 1 <= self.samples <= count:
                raise ValueError(
                    f"samples={self.samples}: at least 1 and at most {count} are needed"
                )
            count = self.samples
        return Split(arrays["symbols"], arrays["labels"], np.arange(count), arrays["offsets"])


@functools.lru_cache(maxsize=4)
def _generated(grammar: Grammar, rows: int, seed: int) -> Arrays:
    key = hashlib.sha256(f"{_VERSION} {grammar} {rows} {seed}".encode()).hexdigest()[:16]

    def make() -> Arrays:
        _log.info("generating %d rows of ListOps (once; kept in the cache)", rows)
        return generate(grammar, rows, seed)

    try:
        return cached(f"listops-{key}", make)
    except OSError as error:
        raise DataError(
            f"the generated ListOps data could not be cached: {error}; {CACHE_HINT}"
        ) from error


_RELEASED: dict[SplitName, str] = {"training": "train", "validation": "val", "test": "test"}


def _find(folder: Path, split: str) -> list[Path]:
    path = folder / f"basic_{split}.tsv"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    return [path]


_SOURCE = Source(
    name="ListOps, as released by LRA",
    folder="listops",
    origin="basic_train.tsv, basic_val.tsv and basic_test.tsv (listops-1000) of the Long Range "
    "Arena release",
    find=_find,
    decode=lambda paths: _lra.read(paths[0]),
    files={},
    contents={},
)
