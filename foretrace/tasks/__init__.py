"""Tasks: where sequences come from.

A batch is a function of seed and step, so that a run resumes from one integer.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, Self

from foretrace._types import Array, Float, Int
from foretrace.losses import softmax_cross_entropy

EvaluationSplit = Literal["validation", "test"]
"""Sequences that are never trained on: those to select by, and those to report."""

Labels = Literal["step", "sequence"]
"""Whether single steps are predicted, or one class for a sequence by the mean of its logits."""

Loss = Callable[[Array, Array], Float[Array, ""]]
"""Loss of one step, `loss(output, y)`."""


class Batch(NamedTuple):
    """Sequences side by side.

    Args:
        xs: inputs.
        ys: targets, with as many classes or values for each step as the task has outputs.
        mask: how much each step counts in the loss; zero where nothing is asked.
    """

    xs: Float[Array, "B T I"]
    ys: Int[Array, "B T ..."]
    mask: Float[Array, "B T"]


class Task(Protocol):
    """Interface of a task to an experiment: a frozen dataclass, identified by its settings.

    `batch` and `evaluation` are pure and can be traced with a traced `seed`, `step` or `index`.
    """

    @property
    def input_size(self) -> int:
        """Number of inputs at each step."""

    @property
    def output_size(self) -> int:
        """Number of outputs of the network at each step."""

    @property
    def length(self) -> int:
        """Number of steps of a sequence."""

    @property
    def loss(self) -> Loss:
        """Loss of one step. Default: cross-entropy."""
        return softmax_cross_entropy

    @property
    def labels(self) -> Labels:
        """Kind of the labels."""

    @property
    def recalled(self) -> str | None:
        """Name of the values recalled at single steps, such as "bits". None for classification."""

    @property
    def provenance(self) -> str:
        """Origin of the training sequences, for tables."""

    def with_data_dir(self, data_dir: str) -> Self:
        """Return the task with its data in another directory; the same task if it reads none."""

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Batch:
        """Return the training sequences of a step."""

    def evaluation(
        self,
        split: EvaluationSplit,
        seed: int | Int[Array, ""],
        index: int | Int[Array, ""],
        size: int,
    ) -> Batch:
        """Return batch `index` of a split; rows without valid steps are padding."""

    def evaluation_steps(self, split: EvaluationSplit, size: int) -> int | None:
        """Return the number of batches of a split; None if it has no end."""
