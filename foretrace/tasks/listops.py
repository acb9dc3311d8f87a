"""ListOps: the value of a nested expression of minima, maxima, medians and sums of digits."""

import dataclasses
import functools
import hashlib
import logging
from typing import ClassVar

import numpy as np

from foretrace._cells.parts import check_sizes
from foretrace._types import Array, Float
from foretrace.tasks._cache import cached
from foretrace.tasks._files import CACHE_HINT, Arrays, DataError
from foretrace.tasks._listops import Grammar, generate
from foretrace.tasks._stored import AbstractStoredTask, Rows, Split, SplitName, one_hot

_VERSION = "1"  # changes with what `generate` returns
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ListOps(AbstractStoredTask):
    """ListOps, generated as the Long Range Arena specifies: the same law, not the released rows.

    Ten classes, and 20 inputs as in the paper's network, of which the 15 symbols use the first.
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

    input_size: ClassVar[int] = 20  # symbols, and room for the special tokens of others
    output_size: ClassVar[int] = 10  # digits
    provenance: ClassVar[str] = "ListOps, regenerated with the LRA specification"

    def __post_init__(self) -> None:
        check_sizes("ListOps", samples=self.samples, held_out=self.held_out)
        if not 0 <= self.data_seed < 2**32:
            raise ValueError(f"data_seed={self.data_seed} must lie in [0, 2^32)")
        self.grammar  # noqa: B018 - checks the lengths

    @property
    def grammar(self) -> Grammar:
        """Parameters of the random trees."""
        return Grammar(self.min_length, self.max_length)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return self.max_length - 1

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return symbols as unit vectors."""
        return one_hot(rows, self.input_size)

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
