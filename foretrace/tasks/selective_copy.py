"""Selective copying: remember symbols scattered among blanks, recall them in order."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from foretrace._types import PRNGKeyArray
from foretrace.tasks import Batch
from foretrace.tasks._drawn import AbstractDrawnTask


@dataclasses.dataclass(frozen=True)
class SelectiveCopy(AbstractDrawnTask):
    """Copy random symbols that stand at random places, in the order of their places.

        steps   inputs
        span    `count` symbols at random places, one of the first `symbols` inputs is 1;
                blanks between them: the last but one input is 1
        count   the mark: the last input is 1, and the targets are the symbols

    The position of a symbol does not determine when it is recalled, so that a layer with fixed time
    constants cannot delay it by the right number of steps. Which symbols to keep, and for how long,
    has to depend on the input. Each recalled step counts 1 / count, so that the loss of a sequence
    is the mean cross-entropy of its symbols: ln `symbols` for a network that knows nothing.

    Args:
        span: number of steps among which the symbols are scattered.
        count: number of symbols to remember.
        symbols: number of different symbols.
        samples: number of sequences of a data set that is drawn once and used for every epoch.
            Default: fresh sequences at every step.

    Raises:
        ValueError: a number is below one, there are fewer than two symbols, or the span has fewer
            places than symbols to remember.

    Source: Gu and Dao, Mamba: linear-time sequence modeling with selective state spaces, 2023
        (section 3.1; their setting: 16 tokens to remember, drawn from 16 symbols, spread over 4,096
        steps). Earlier, the denoise task of Jing et al., Gated orthogonal recurrent units, 2019.

    >>> task = SelectiveCopy(span=6, count=2, symbols=4)
    >>> task.input_size, task.output_size, task.length
    (6, 4, 8)
    >>> xs, ys, mask = task.batch(seed=0, step=0, size=3)
    >>> xs.shape, ys.shape, mask.shape
    ((3, 8, 6), (3, 8), (3, 8))
    >>> mask[0].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5]
    """

    span: int = 48
    count: int = 8
    symbols: int = 8
    samples: int | None = None

    recalled: ClassVar[str] = "symbols"

    def __post_init__(self) -> None:
        self._check(span=1, count=1, symbols=2)
        if self.count > self.span:
            raise ValueError(
                f"SelectiveCopy(count={self.count}, span={self.span}): there are more symbols to "
                "remember than places for them; choose count at most span"
            )

    @property
    def input_size(self) -> int:
        """Symbols, the blank and the mark."""
        return self.symbols + 2

    @property
    def output_size(self) -> int:
        """One class for each symbol."""
        return self.symbols

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.span + self.count

    def draw(self, key: PRNGKeyArray, size: int) -> Batch:
        """Return sequences with random symbols at random places."""
        which, where = jax.random.split(key)
        targets = jax.random.randint(which, (size, self.count), 0, self.symbols, jnp.int32)
        # The places of a random choice, in order: the `count` smallest of as many numbers as
        # places.
        numbers = jax.random.uniform(where, (size, self.span))
        places = jnp.sort(jnp.argsort(numbers, axis=1)[:, : self.count], axis=1)
        read = (
            jnp.full((size, self.length), self.symbols, jnp.int32)
            .at[:, self.span :]
            .set(self.symbols + 1)
        )
        read = jax.vmap(lambda row, at, symbols: row.at[at].set(symbols))(read, places, targets)
        ys = jnp.zeros((size, self.length), jnp.int32).at[:, self.span :].set(targets)
        mask = jnp.zeros((size, self.length)).at[:, self.span :].set(1 / self.count)
        return Batch(jax.nn.one_hot(read, self.input_size), ys, mask)
