"""Tasks, which provide sequences for training and evaluation.

A batch is a function of seed and step, so a run needs only one integer to resume.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, Self

from foretrace._types import Array, Float, Int
from foretrace.losses import softmax_cross_entropy

EvaluationSplit = Literal["validation", "test"]
"""Splits that are never used for training: one to select by, one to report."""

Labels = Literal["step", "sequence"]
"""Whether single steps are predicted, or one class for a sequence by the mean of its logits."""

Loss = Callable[[Array, Array], Float[Array, ""]]
"""Loss of one step, `loss(output, y)`."""


class Batch(NamedTuple):
    """Several sequences of equal length.

    Args:
        xs: inputs.
        ys: targets. Each step has as many classes or values as the task has outputs.
        mask: weight of each step in the loss; zero for steps without a target.
    """

    xs: Float[Array, "B T I"]
    ys: Int[Array, "B T ..."]
    mask: Float[Array, "B T"]


class Task(Protocol):
    """Interface of a task. A task is a frozen dataclass; equal settings are the same task.

    `batch` and `evaluation` are pure functions, in which `seed`, `step` and `index` may be traced.
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
        """Name of the values recalled at single steps, such as "bits"; None in classification."""

    @property
    def provenance(self) -> str:
        """Origin of the training sequences, for tables."""

    def with_data_dir(self, data_dir: str) -> Self:
        """Return the task with its data in another directory; unchanged if it reads no data."""

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Batch:
        """Return the training sequences of a step."""

    def evaluation(
        self,
        split: EvaluationSplit,
        seed: int | Int[Array, ""],
        index: int | Int[Array, ""],
        size: int,
    ) -> Batch:
        """Return batch `index` of a split. Rows without valid steps are padding."""

    def evaluation_steps(self, split: EvaluationSplit, size: int) -> int | None:
        """Return the number of batches in a split; None if the split is unlimited."""
