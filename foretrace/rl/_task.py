"""Interface of an environment to command line and report, with usual answers."""

from typing import ClassVar, Self

from foretrace.rl._environment import Environment


class Task(Environment):
    """An `Environment` of the command line: a frozen dataclass whose fields are its options.

    An environment replaces the answers that do not hold for it.
    """

    truncates: ClassVar[bool] = False
    """Whether an episode can be cut."""

    predicts: ClassVar[bool] = False
    """Whether there is nothing to choose, only a value to predict."""

    in_python: ClassVar[bool] = False
    """Whether steps run in Python, one environment after another, not in the program."""

    best_return: ClassVar[float | None] = None
    """Return of the best policy; None where it is not known."""

    most_environments: ClassVar[int | None] = None
    """Largest number of environments that differ from each other; None for any number."""

    @property
    def title(self) -> str:
        """Name in a report."""
        return type(self).__name__

    @property
    def stream_length(self) -> int | None:
        """Largest number of steps of a run; None for any number."""
        return None

    def pinned(self) -> Self:
        """Return the environment as a run records it, such as with the digest of its file."""
        return self

    def references(self, discount: float, first: int, last: int) -> dict[str, float]:
        """Return reference scores by description, for the steps from `first` to before `last`."""
        if self.predicts:
            return {"the best constant prediction": 1.0}
        return {} if self.best_return is None else {"the best possible": self.best_return}
