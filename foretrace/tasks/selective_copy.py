"""Selective copying: remember symbols scattered among blanks, and recall them in order."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from foretrace._types import PRNGKeyArray
from foretrace.tasks import Batch
from foretrace.tasks._drawn import AbstractDrawnTask


@dataclasses.dataclass(frozen=True)
class SelectiveCopy(AbstractDrawnTask):
    """Recall random symbols that were shown at random positions, in the order of the positions.

       steps   inputs
        span    `count` symbols at random positions: one of the first `symbols` inputs is 1;
                blanks at the other positions: the last but one input is 1
        count   the mark: the last input is 1, and the targets are the symbols

    The position of a symbol does not determine when it is recalled. A layer with fixed time
    constants therefore cannot delay it by the right number of steps: which symbols are kept, and
    for how long, has to depend on the input. Each recalled step has the weight 1 / count, so the
    loss of a sequence is the mean cross-entropy of its symbols. Without any knowledge of them, it
    is ln `symbols`.

    Args:
        span: number of steps among which the symbols are scattered.
        count: number of symbols to remember.
        symbols: number of different symbols.
        samples: number of sequences in a data set that is drawn once and used in every epoch.
            Default: new sequences at every step.

    Raises:
        ValueError: a number is below one, there are fewer than two symbols, or the span has fewer
            positions than there are symbols to remember.

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
        """Number of inputs: the symbols, the blank and the mark."""
        return self.symbols + 2

    @property
    def output_size(self) -> int:
        """Number of outputs: one class for each symbol."""
        return self.symbols

    @property
    def length(self) -> int:
        """Number of steps of a sequence."""
        return self.span + self.count

    def draw(self, key: PRNGKeyArray, size: int) -> Batch:
        """Return sequences with random symbols at random positions."""
        which, where = jax.random.split(key)
        targets = jax.random.randint(which, (size, self.count), 0, self.symbols, jnp.int32)
        # Random positions in order: the places of the `count` smallest of `span` random numbers.
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
