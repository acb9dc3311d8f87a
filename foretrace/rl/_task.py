"""What the command line and the report need to know of an environment, with default values."""

from typing import ClassVar

import numpy as np

from foretrace.rl._checks import check_ranges
from foretrace.rl._environment import Environment


class Task(Environment):
    """An `Environment` of the command line: a frozen dataclass whose fields are its options.

    An environment replaces the defaults that do not hold for it.
    """

    truncates: ClassVar[bool] = False
    """Whether an episode can be cut."""

    predicts: ClassVar[bool] = False
    """Whether there is nothing to choose, only a value to predict."""

    in_python: ClassVar[bool] = False
    """Whether steps run in Python, one environment after another, not in the program."""

    best_return: ClassVar[float | None] = None
    """Return of the best policy; None where it is not known."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Least and largest continuous action, element by element; None for discrete actions."""
        return None

    @property
    def title(self) -> str:
        """Name in a report."""
        return type(self).__name__

    @property
    def references(self) -> dict[str, float]:
        """Reference scores by description."""
        if self.predicts:
            return {"the best constant prediction": 1.0}
        return {} if self.best_return is None else {"the best possible": self.best_return}
