"""Environments of gymnax as pure functions."""

import dataclasses
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp

from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._live import SpacedTask, Spaces, imported, spaces_of


@dataclasses.dataclass(frozen=True)
class Gymnax(SpacedTask):
    """An environment of gymnax, with its default parameters.

    Actions are discrete, or continuous and clipped to their bounds. Observations are flattened.
    This class needs gymnax: `pip install '.[rl]'`.

    Args:
        name: name of the environment, such as CartPole-v1.

    Raises:
        ValueError: the name is unknown, or gymnax is not installed.
    """

    name: str = "CartPole-v1"

    truncates: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """Name of the environment in a report."""
        return self.name

    @cached_property
    def _made(self) -> tuple[Any, Any]:
        gymnax = imported("gymnax")
        if self.name not in gymnax.registered_envs:
            raise ValueError(
                f"Gymnax(name={self.name!r}) is unknown; choose one of "
                f"{', '.join(gymnax.registered_envs)}"
            )
        return gymnax.make(self.name)

    @cached_property
    def _spaces(self) -> Spaces:
        environment, params = self._made
        return spaces_of(environment.observation_space(params), environment.action_space(params))

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode."""
        environment, params = self._made
        observation, state = environment.reset_env(key, params)
        return state, self._flat(observation)

    def step(self, state: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Take an action."""
        environment, params = self._made
        if self.bounds is not None:
            space = environment.action_space(params)
            action = jnp.clip(action.reshape(space.shape), space.low, space.high)
        observation, state, reward, terminated, _ = environment.step_env(key, state, action, params)
        truncated = jnp.asarray(environment.is_truncated(state, params), bool) & ~terminated
        return state, TimeStep.of(self._flat(observation), reward, terminated, truncated)

    def _flat(self, observation: Array) -> Float[Array, "I"]:
        return jnp.ravel(observation).astype(jnp.result_type(float))
