"""Environments of gymnax, as pure functions."""

import dataclasses
import math
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._live import imported
from foretrace.rl._task import Task


@dataclasses.dataclass(frozen=True)
class Gymnax(Task):
    """An environment of gymnax with discrete actions, with its default parameters.

    Observations are flattened. Needs gymnax: `pip install 'foretrace[rl]'`.

    Args:
        name: name of the environment, such as CartPole-v1.

    Raises:
        ValueError: an unknown name, or gymnax is not installed.
    """

    name: str = "CartPole-v1"

    truncates: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """Name in a report."""
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

    @property
    def observation_size(self) -> int:
        """Number of elements of a flattened observation."""
        environment, params = self._made
        return math.prod(environment.observation_space(params).shape)

    @property
    def action_count(self) -> int | None:
        """Number of actions; None for continuous ones."""
        environment, params = self._made
        return getattr(environment.action_space(params), "n", None)

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode."""
        environment, params = self._made
        observation, state = environment.reset_env(key, params)
        return state, self._flat(observation)

    def step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Act."""
        environment, params = self._made
        observation, state, reward, terminated, _ = environment.step_env(key, state, action, params)
        truncated = jnp.asarray(environment.is_truncated(state, params), bool) & ~terminated
        return state, TimeStep.of(self._flat(observation), reward, terminated, truncated)

    def _flat(self, observation: Array) -> Float[Array, "I"]:
        return jnp.ravel(observation).astype(jnp.result_type(float))
