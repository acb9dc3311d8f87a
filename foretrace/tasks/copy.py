"""The copy task: keep a pattern of bits in memory, and recall it after a token."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from foretrace._types import PRNGKeyArray
from foretrace.tasks import Batch
from foretrace.tasks._drawn import AbstractDrawnTask


@dataclasses.dataclass(frozen=True)
class Copy(AbstractDrawnTask):
    """Show a random pattern, wait for some silent steps, and recall the pattern after a token.

       steps                  inputs
        pattern_length         the pattern (0 or 1) on the first `bits` inputs
        padding                silent steps: all inputs are zero
        1                      the token: the last input is 1
        pattern_length         silent steps, at which the targets are the pattern

    Each recalled step has the weight 1 / pattern_length, so the loss of a sequence is the mean
    cross-entropy of its bits. Without any knowledge of the pattern, it is ln 2.

    Args:
        pattern_length: number of steps of the pattern.
        padding: number of silent steps between the pattern and the token.
        bits: number of bits at each step of the pattern.
        samples: number of sequences in a data set that is drawn once and used in every epoch.
            Default: new sequences at every step.

    Raises:
        ValueError: a length is below one, or the padding is negative.

    Source: Graves et al., Neural Turing machines, 2014; the setting is the paper's (section 4.2).

    >>> task = Copy()
    >>> task.input_size, task.output_size, task.length
    (8, 14, 48)
    >>> xs, ys, mask = task.batch(seed=0, step=0, size=3)
    >>> xs.shape, ys.shape, mask.shape
    ((3, 48, 8), (3, 48, 7), (3, 48))
    """

    pattern_length: int = 20
    padding: int = 7
    bits: int = 7
    samples: int | None = None

    recalled: ClassVar[str] = "bits"

    def __post_init__(self) -> None:
        self._check(pattern_length=1, padding=0, bits=1)

    @property
    def input_size(self) -> int:
        """Number of inputs: the bits and the token."""
        return self.bits + 1

    @property
    def output_size(self) -> int:
        """Number of outputs: two classes for each bit."""
        return 2 * self.bits

    @property
    def length(self) -> int:
        """Number of steps of a sequence."""
        return 2 * self.pattern_length + self.padding + 1

    def draw(self, key: PRNGKeyArray, size: int) -> Batch:
        """Return sequences with random patterns."""
        patterns, length = (
            jax.random.bernoulli(key, 0.5, (size, self.pattern_length, self.bits)),
            self.pattern_length,
        )
        xs = jnp.zeros((size, self.length, self.input_size))
        xs = xs.at[:, :length, : self.bits].set(patterns.astype(xs.dtype))
        xs = xs.at[:, length + self.padding, self.bits].set(1.0)
        ys = jnp.zeros((size, self.length, self.bits), jnp.int32)
        ys = ys.at[:, -length:].set(patterns.astype(ys.dtype))
        mask = jnp.zeros((size, self.length)).at[:, -length:].set(1 / length)
        return Batch(xs, ys, mask)
