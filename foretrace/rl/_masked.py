"""Partial observability: an environment with hidden elements of the observation."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import Environment, TimeStep


@dataclasses.dataclass(frozen=True)
class Masked:
    """Hide some elements of the observations of an environment, such as velocities.

       observation <- elements of the observation whose positions are not in `hide`, in order

    The state and everything else, such as `value`, come from the wrapped environment.

    Args:
        environment: environment to wrap.
        hide: positions of the hidden elements, counted from 0.

    Raises:
        ValueError: a position is not an integer, is outside of the observation, or is given twice;
            or all elements are hidden.

    >>> from foretrace import rl
    >>> import jax
    >>> chain = rl.Masked(rl.MemoryChain(4), hide=(1,))
    >>> chain.observation_size, chain.reset(jax.random.key(0))[1].shape
    (1, (1,))
    """

    environment: Environment
    hide: tuple[int, ...]

    action_count: ClassVar[int | None]
    truncates: ClassVar[bool]

    def __post_init__(self) -> None:
        size, hide = self.environment.observation_size, self.hide
        integers = isinstance(hide, tuple) and all(type(i) is int for i in hide)
        if not integers or not {*hide} < {*range(size)} or len({*hide}) < len(hide):
            raise ValueError(
                f"Masked(hide={hide!r}) must be a tuple of different integers from 0 to "
                f"{size - 1}, such as (1, 3), and not all {size}: the observation has {size} "
                "elements"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "environment":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.environment, name)

    @property
    def observation_size(self) -> int:
        """Number of visible elements."""
        return self.environment.observation_size - len(self.hide)

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode."""
        state, observation = self.environment.reset(key)
        return state, self._left(observation)

    def step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Take an action."""
        state, step = self.environment.step(state, action, key)
        return state, step._replace(observation=self._left(step.observation))

    def _left(self, observation: Float[Array, "J"]) -> Float[Array, "I"]:
        return jnp.delete(observation, np.array(self.hide, int))
