"""Tasks whose sequences are drawn at random, either for every step or once for all epochs."""

import abc
from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from foretrace._types import Array, Int, PRNGKeyArray
from foretrace.tasks import Batch, EvaluationSplit, Labels, Task
from foretrace.tasks._order import shuffled_at

# Purposes of random keys. If two were equal, validation data would appear in the training data.
_FRESH, _VALIDATION, _SAMPLES, _ORDER, _TEST = range(5)


class AbstractDrawnTask(Task, abc.ABC):
    """Base class of tasks that draw sequences at random. A task has the field `samples`."""

    samples: int | None

    recalled: ClassVar[str]
    """Name of the values that are recalled at single steps."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, size: int) -> Batch:
        """Return sequences that depend only on the key."""

    @property
    def labels(self) -> Labels:
        """Single steps are predicted."""
        return "step"

    @property
    def provenance(self) -> str:
        """Whether sequences are drawn for every step or once."""
        return "fresh sequences" if self.samples is None else f"{self.samples} sequences drawn once"

    def with_data_dir(self, data_dir: str) -> Self:
        """Return the task itself, because it reads no data."""
        return self

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Batch:
        """Return the training sequences of a step.

        Args:
            seed: seed of the data, may be traced. Another seed gives other sequences.
            step: number of batches before this batch, may be traced.
            size: number of sequences.

        Raises:
            ValueError: the size is below one or above `samples`.
        """
        most = size if self.samples is None else self.samples
        if not 1 <= size <= most:
            raise ValueError(
                f"a batch of {size} sequences: at least 1 and at most samples={self.samples} are "
                "needed"
            )
        if self.samples is None:
            return self.draw(jax.random.fold_in(_key(seed, _FRESH), step), size)
        epoch, position = jnp.divmod(jnp.asarray(step), self.samples // size)
        places = position * size + jnp.arange(size, dtype=position.dtype)
        chosen = shuffled_at(jax.random.fold_in(_key(seed, _ORDER), epoch), places, self.samples)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(_key(seed, _SAMPLES), chosen)
        return jax.tree.map(lambda leaf: leaf[:, 0], jax.vmap(lambda key: self.draw(key, 1))(keys))

    def evaluation(
        self,
        split: EvaluationSplit,
        seed: int | Int[Array, ""],
        index: int | Int[Array, ""],
        size: int,
    ) -> Batch:
        """Return batch `index` of sequences that no training batch and no other split contains.

        Raises:
            ValueError: the size is below one.
        """
        if size < 1:
            raise ValueError(f"a batch of {size} sequences: at least 1 is needed")
        purpose = _VALIDATION if split == "validation" else _TEST
        return self.draw(jax.random.fold_in(_key(seed, purpose), index), size)

    def evaluation_steps(self, split: EvaluationSplit, size: int) -> None:
        """Return None, because the split is unlimited."""
        return None

    def _check(self, **least: int) -> None:
        """Raise a ValueError if a field is below its minimum, or there are no samples."""
        name = type(self).__name__
        for field, value in least.items():
            if getattr(self, field) < value:
                raise ValueError(f"{name}({field}={getattr(self, field)}) must be at least {value}")
        if self.samples is not None and self.samples < 1:
            raise ValueError(
                f"{name}(samples={self.samples}) must be at least 1, or None for fresh sequences"
            )


def _key(seed: int | Int[Array, ""], purpose: int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), purpose)
