"""The copy task: keep a pattern of bits in memory, recall it on a token."""

import dataclasses

import jax
import jax.numpy as jnp

from foretrace import _loss
from foretrace._types import Array, Bool, Int, PRNGKeyArray
from foretrace.tasks import Batch, EvaluationSplit, Labels, Loss
from foretrace.tasks._order import shuffled_at

# What a random key is for; equal numbers would make validation data out of training data.
_FRESH, _VALIDATION, _SAMPLES, _ORDER, _TEST = range(5)


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copy a random pattern: shown, kept over silent steps, recalled bit by bit on a token.

        steps                  inputs
        pattern_length         the pattern on the first `bits` inputs, 0 or 1
        padding                silent: all zero
        1                      the token: 1 on the last input
        pattern_length         silent, and the targets are the pattern

    Each recalled step counts 1 / pattern_length, so that the loss of a sequence is the mean cross-entropy of its
    bits: ln 2 for a network that knows nothing.

    Args:
        pattern_length: steps of the pattern.
        padding: silent steps between the pattern and the token.
        bits: bits of each step of the pattern.
        samples: size of a data set drawn once and gone through in epochs, each in an order of its own; patterns
            are drawn afresh for every step if None. An epoch leaves out what does not fill a batch.

    Raises:
        ValueError: a length below one, or negative padding.

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

    def __post_init__(self) -> None:
        for name, least in {"pattern_length": 1, "padding": 0, "bits": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"Copy({name}={getattr(self, name)}) must be at least {least}")
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"Copy(samples={self.samples}) must be at least 1, or None for fresh patterns")

    @property
    def input_size(self) -> int:
        """Bits and the token."""
        return self.bits + 1

    @property
    def output_size(self) -> int:
        """Two classes for each bit."""
        return 2 * self.bits

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return 2 * self.pattern_length + self.padding + 1

    @property
    def loss(self) -> Loss:
        """Cross-entropy of a step, mean over its bits."""
        return _loss.softmax_cross_entropy

    @property
    def labels(self) -> Labels:
        """Bits, at the last steps."""
        return "step"

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Batch:
        """Return the training sequences of a step.

        Args:
            seed: whose data; another seed has other patterns; may be traced.
            step: number of batches before this one; may be traced.
            size: number of sequences.

        Raises:
            ValueError: size below one or above `samples`.
        """
        self._check_size(size)
        if self.samples is None:
            return self._lay_out(self._patterns(jax.random.fold_in(_key(seed, _FRESH), step), size))
        epoch, position = jnp.divmod(jnp.asarray(step), self.samples // size)
        places = position * size + jnp.arange(size, dtype=position.dtype)
        chosen = shuffled_at(jax.random.fold_in(_key(seed, _ORDER), epoch), places, self.samples)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(_key(seed, _SAMPLES), chosen)
        return self._lay_out(jax.vmap(lambda key: self._patterns(key, 1)[0])(keys))

    def evaluation(
        self, split: EvaluationSplit, seed: int | Int[Array, ""], index: int | Int[Array, ""], size: int
    ) -> Batch:
        """Return batch `index` of sequences that `batch` does not draw, nor the other split; always fresh.

        Raises:
            ValueError: size below one.
        """
        if size < 1:
            raise ValueError(f"a batch of {size} sequences: at least 1 is needed")
        purpose = _VALIDATION if split == "validation" else _TEST
        return self._lay_out(self._patterns(jax.random.fold_in(_key(seed, purpose), index), size))

    def evaluation_steps(self, split: EvaluationSplit, size: int) -> None:
        """Return None: there is no end."""

    def _check_size(self, size: int) -> None:
        most = size if self.samples is None else self.samples
        if not 1 <= size <= most:
            raise ValueError(f"a batch of {size} sequences: at least 1 and at most samples={self.samples} are needed")

    def _patterns(self, key: PRNGKeyArray, size: int) -> Bool[Array, "B P bits"]:
        return jax.random.bernoulli(key, 0.5, (size, self.pattern_length, self.bits))

    def _lay_out(self, patterns: Bool[Array, "B P bits"]) -> Batch:
        size, length = patterns.shape[0], self.pattern_length
        xs = jnp.zeros((size, self.length, self.input_size))
        xs = xs.at[:, :length, : self.bits].set(patterns.astype(xs.dtype))
        xs = xs.at[:, length + self.padding, self.bits].set(1.0)
        ys = jnp.zeros((size, self.length, self.bits), jnp.int32)
        ys = ys.at[:, -length:].set(patterns.astype(ys.dtype))
        mask = jnp.zeros((size, self.length)).at[:, -length:].set(1 / length)
        return Batch(xs, ys, mask)


def _key(seed: int | Int[Array, ""], purpose: int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), purpose)
