"""Environments of gymnasium as pure functions, whose state is a seed and the actions so far."""

import copy
import dataclasses
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from jax import lax

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._live import Live, SpacedTask, Spaces, made


class GymnasiumState(NamedTuple):
    """Episode of an environment: a seed and actions that reproduce it.

    Args:
        seed: seed of the reset.
        step: number of finished steps.
        actions: actions of these steps, followed by zeros.
    """

    seed: Int[Array, ""]
    step: Int[Array, ""]
    actions: Array


class AbstractGymnasium(SpacedTask):
    """Environment of gymnasium. Its steps run in Python, between the compiled steps of the agent.

    The seed of a reset and the actions must determine an episode, as gymnasium requires, because a
    resumed run repeats the actions of its present episode.
    """

    truncates: ClassVar[bool] = True
    in_python: ClassVar[bool] = True

    _live: Live

    @property
    def _spaces(self) -> Spaces:
        return self._live.spaces

    def reset(self, key: PRNGKeyArray) -> tuple[GymnasiumState, Float[Array, "I"]]:
        """Begin an episode with a random seed."""
        live, none = self._live, jnp.zeros((), jnp.int32)
        seed = jax.random.randint(key, (), 0, 2**31 - 1, jnp.int32)
        observation = jax.pure_callback(live.reset, live.seen, seed)
        actions = jnp.zeros((live.limit, *live.action.shape), live.action.dtype)
        return GymnasiumState(seed, none, actions), observation

    def step(
        self, state: GymnasiumState, action: Array, key: PRNGKeyArray
    ) -> tuple[GymnasiumState, TimeStep]:
        """Take an action. The seed of the episode determines the random numbers."""
        live, flag = self._live, jax.ShapeDtypeStruct((), jnp.bool_)
        number = jax.ShapeDtypeStruct((), live.seen.dtype)
        action = action.astype(live.action.dtype)
        # One array, because JAX takes some 60 us for each argument of a function in Python.
        numbers = [state.seed, state.step, state.actions, action]
        bits = [lax.bitcast_convert_type(part, jnp.int32).ravel() for part in numbers]
        found = jax.pure_callback(live.step, (live.seen, number, flag, flag), jnp.concatenate(bits))
        actions = state.actions.at[state.step].set(action)
        after = GymnasiumState(state.seed, state.step + 1, actions)
        return after, TimeStep.of(*found)


@dataclasses.dataclass(frozen=True)
class Gymnasium(AbstractGymnasium):
    """An environment of gymnasium, by its id.

    Actions are discrete, or continuous and clipped to their bounds. Observations are flattened.
    This class needs gymnasium: `pip install '.[rl]'`.

    Args:
        id: id of the environment, such as CartPole-v1. The form module:NAME-v0 imports your own
            module, which registers it.
        limit: number of steps after which an episode is truncated. Default: the limit of the
            environment; 10,000 if it has none.

    Raises:
        ValueError: a limit is below one. If the id is unknown or gymnasium is not installed, the
            first use raises the error.
    """

    id: Annotated[str, tyro.conf.arg(aliases=("--id",))] = "CartPole-v1"
    limit: int | None = None

    @property
    def title(self) -> str:
        """Name of the environment in a report."""
        return self.id

    @cached_property
    def _live(self) -> Live:  # type: ignore[override]
        return Live(partial(made, self.id), self.limit)


class Wrapped(AbstractGymnasium):
    """An existing environment of gymnasium. The other environments of a batch are deep copies.

    Args:
        environment: environment of gymnasium.
    """

    def __init__(self, environment: Any):
        self._live = Live(lambda: copy.deepcopy(environment), None)


def as_environment(environment: Any) -> Any:
    """Return an environment of gymnasium, or its id, as an `Environment`; others unchanged."""
    if isinstance(environment, str):
        return Gymnasium(environment)
    return Wrapped(environment) if hasattr(environment, "observation_space") else environment
