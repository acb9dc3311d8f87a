"""Partial observability: an environment of which the agent sees less."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import Environment, TimeStep


@dataclasses.dataclass(frozen=True)
class Masked:
    """Hide some elements of the observations, such as velocities.

        observation <- its elements whose positions are not in `hide`, in their order

    The state is the wrapped environment's.

    Args:
        environment: environment that is wrapped.
        hide: positions of the hidden elements, from 0.

    Raises:
        ValueError: a position that is no integer, that the observation does not have, or that comes
            twice; or all elements are hidden.

    >>> from foretrace import rl
    >>> import jax
    >>> chain = rl.Masked(rl.MemoryChain(4), hide=(1,))
    >>> chain.observation_size, chain.reset(jax.random.key(0))[1].shape
    (1, (1,))
    """

    environment: Environment
    hide: tuple[int, ...]

    def __post_init__(self) -> None:
        size, hide = self.environment.observation_size, self.hide
        if not isinstance(hide, tuple) or any(
            isinstance(i, bool) or not isinstance(i, int) for i in hide
        ):
            raise ValueError(f"Masked(hide={hide!r}) must be a tuple of integers, such as (1, 3)")
        if any(not 0 <= i < size for i in hide) or len(set(hide)) < len(hide):
            raise ValueError(
                f"Masked(hide={hide}) must be different positions from 0 to {size - 1}: the "
                f"observation has {size} elements"
            )
        if len(hide) == size:
            raise ValueError(
                f"Masked(hide={hide}) hides all {size} elements; leave at least one to be seen"
            )

    @property
    def observation_size(self) -> int:
        """Number of elements that are left."""
        return self.environment.observation_size - len(self.hide)

    @property
    def action_count(self) -> int | None:
        """Number of actions; None for continuous ones."""
        return self.environment.action_count

    @property
    def truncates(self) -> bool:
        """Whether an episode can be cut."""
        return self.environment.truncates

    @property
    def in_python(self) -> bool:
        """Whether steps run in Python."""
        return getattr(self.environment, "in_python", False)

    @property
    def value(self) -> Callable[[Any, float], Any] | None:
        """Value of a state as the wrapped environment says it; None where it does not."""
        return getattr(self.environment, "value", None)

    @property
    def spread(self) -> Callable[[float], float] | None:
        """Variance of the value as the wrapped environment says it; None where it does not."""
        return getattr(self.environment, "spread", None)

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode."""
        state, observation = self.environment.reset(key)
        return state, self._left(observation)

    def step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Act."""
        state, step = self.environment.step(state, action, key)
        return state, step._replace(observation=self._left(step.observation))

    def _left(self, observation: Float[Array, "J"]) -> Float[Array, "I"]:
        left = [i for i in range(self.environment.observation_size) if i not in self.hide]
        return observation[jnp.array(left)]
