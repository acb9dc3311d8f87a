"""Partial observability: an environment of which the agent sees less, later, or with noise."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import Environment, TimeStep, check_sizes


@dataclasses.dataclass(frozen=True)
class AbstractPartial:
    """Another environment, of which the agent sees something else.

    Args:
        environment: environment that is wrapped.
    """

    environment: Environment

    @property
    def observation_size(self) -> int:
        """Number of elements that the agent sees."""
        return self.environment.observation_size

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
        found = getattr(self.environment, "value", None)
        return found and (lambda state, discount: found(self._inner(state), discount))

    @property
    def spread(self) -> Callable[[float], float] | None:
        """Variance of the value as the wrapped environment says it; None where it does not."""
        return getattr(self.environment, "spread", None)

    def _inner(self, state: Any) -> Any:
        """Return the state of the wrapped environment."""
        return state


@dataclasses.dataclass(frozen=True)
class Masked(AbstractPartial):
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

    hide: tuple[int, ...] = ()

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


@dataclasses.dataclass(frozen=True)
class Noisy(AbstractPartial):
    """Add Gaussian noise to every element of the observations.

        observation <- observation + deviation * n,   n ~ N(0, 1) for each element and step

    The state is the wrapped environment's.

    Args:
        environment: environment that is wrapped.
        deviation: standard deviation of the noise, in the unit of the observations.

    Raises:
        ValueError: a deviation that is negative or not finite.
    """

    deviation: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.deviation < float("inf"):
            raise ValueError(
                f"Noisy(deviation={self.deviation}) must be a finite number of at least 0"
            )

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode."""
        reset_key, noise_key = jax.random.split(key)
        state, observation = self.environment.reset(reset_key)
        return state, self._heard(observation, noise_key)

    def step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Act."""
        step_key, noise_key = jax.random.split(key)
        state, step = self.environment.step(state, action, step_key)
        return state, step._replace(observation=self._heard(step.observation, noise_key))

    def _heard(self, observation: Float[Array, "I"], key: PRNGKeyArray) -> Float[Array, "I"]:
        return observation + self.deviation * jax.random.normal(
            key, observation.shape, observation.dtype
        )


class DelayedState(NamedTuple):
    """State of the wrapped environment, and the delayed observations, oldest first."""

    inner: Any
    underway: Float[Array, "K I"]


@dataclasses.dataclass(frozen=True)
class Delayed(AbstractPartial):
    """Let every observation arrive some steps late; rewards and ends of episodes come at once.

        observation at t <- observation at t - steps, or zeros before the first one has arrived

    The last observations of an episode never arrive.

    Args:
        environment: environment that is wrapped.
        steps: number of steps by which observations are late.

    Raises:
        ValueError: a number of steps below one.

    >>> from foretrace import rl
    >>> import jax
    >>> chain = rl.Delayed(rl.MemoryChain(4), steps=1)
    >>> state, first = chain.reset(jax.random.key(0))
    >>> _, step = chain.step(state, 0, jax.random.key(1))
    >>> [float(x) for x in first], abs(float(step.observation[0]))
    ([0.0, 0.0], 1.0)
    """

    steps: int = 1

    def __post_init__(self) -> None:
        check_sizes(self, steps=1)

    def reset(self, key: PRNGKeyArray) -> tuple[DelayedState, Float[Array, "I"]]:
        """Begin an episode; nothing has arrived."""
        inner, first = self.environment.reset(key)
        nothing = jnp.zeros_like(first)
        underway = jnp.stack([nothing] * (self.steps - 1) + [first])
        return DelayedState(inner, underway), nothing

    def step(
        self, state: DelayedState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[DelayedState, TimeStep]:
        """Act; what arrives is the oldest observation underway."""
        inner, step = self.environment.step(state.inner, action, key)
        underway = jnp.concatenate([state.underway[1:], step.observation[None]])
        return DelayedState(inner, underway), step._replace(observation=state.underway[0])

    def _inner(self, state: DelayedState) -> Any:
        return state.inner
