"""Tasks: where sequences come from. A batch is a function of seed and step, so a run resumes from one integer."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from foretrace._types import Array, Float, Int

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
    """What an experiment asks of a task; a frozen dataclass, so that its settings are its identity.

    `batch` and `validation` are pure and can be traced with a traced `step` or `index`.
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
        """Loss of one step."""

    def batch(self, seed: int, step: int | Int[Array, ""], size: int) -> Batch:
        """Return the training sequences of a step."""

    def validation(self, seed: int, index: int | Int[Array, ""], size: int) -> Batch:
        """Return sequences that are never trained on."""
