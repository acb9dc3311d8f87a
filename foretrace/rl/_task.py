"""Properties of an environment that the command line and the report use, with defaults."""

from typing import ClassVar

import numpy as np

from foretrace.rl._checks import check_ranges
from foretrace.rl._environment import Environment


class Task(Environment):
    """An `Environment` of the command line: a frozen dataclass whose fields are its options.

    An environment replaces the defaults that are wrong for it.
    """

    truncates: ClassVar[bool] = False
    """Whether episodes can be cut."""

    predicts: ClassVar[bool] = False
    """Whether there are no actions, only a value to predict."""

    in_python: ClassVar[bool] = False
    """Whether steps run in Python, one environment after another, instead of in the program."""

    best_return: ClassVar[float | None] = None
    """Return of the best policy; None if it is not known."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Smallest and largest value of each element of a continuous action; None if discrete."""
        return None

    @property
    def title(self) -> str:
        """Name of the environment in a report."""
        return type(self).__name__

    @property
    def references(self) -> dict[str, float]:
        """Reference scores, by description."""
        if self.predicts:
            return {"the best constant prediction": 1.0}
        return {} if self.best_return is None else {"the best possible": self.best_return}
