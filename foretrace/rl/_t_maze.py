"""The T-maze: a sign at the start shows where to turn at the end of a corridor."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._task import Task


class TMazeState(NamedTuple):
    """Position in the corridor, whether the goal is in the north, and number of finished steps."""

    place: Int[Array, ""]
    north: Bool[Array, ""]
    step: Int[Array, ""]


NORTH, EAST, SOUTH, WEST = range(4)


@dataclasses.dataclass(frozen=True)
class TMaze(Task):
    """Walk east along a corridor, then turn in the direction that a sign at the start showed.

        place             observation
        start             (0, 1, 1) if the goal is in the north, (1, 1, 0) if it is in the south
        corridor          (1, 0, 1)
        junction          (0, 1, 0)

    The actions are north, east, south and west. At the junction, north and south end the episode
    with reward 4 at the goal and -0.1 otherwise. A step into a wall does not move the agent and has
    reward -0.1. Every other step has reward 0.

    Args:
        corridor: number of steps from the start to the junction.
        limit: number of steps after which an episode is truncated. Default: ten times the corridor.

    Raises:
        ValueError: the corridor or the limit is below one.

    Source: Bakker, Reinforcement learning with long short-term memory, NIPS 2001.

    >>> maze = TMaze(corridor=10)
    >>> maze.observation_size, maze.action_count, maze.most_steps
    (3, 4, 100)
    """

    corridor: int = 10
    limit: int | None = None

    observation_size: ClassVar[int] = 3
    action_count: ClassVar[int] = 4
    truncates: ClassVar[bool] = True
    best_return: ClassVar[float] = 4.0

    @property
    def most_steps(self) -> int:
        """Number of steps after which an episode is truncated."""
        return 10 * self.corridor if self.limit is None else self.limit

    def reset(self, key: PRNGKeyArray) -> tuple[TMazeState, Float[Array, "I"]]:
        """Begin at the start, with the goal in the north or in the south."""
        zero = jnp.zeros((), jnp.int32)
        state = TMazeState(zero, jax.random.bernoulli(key), zero)
        return state, self._seen(state)

    def step(
        self, state: TMazeState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[TMazeState, TimeStep]:
        """Walk, or turn at the junction."""
        at_junction, turns = state.place == self.corridor, (action == NORTH) | (action == SOUTH)
        move = jnp.where(action == EAST, 1, jnp.where(action == WEST, -1, 0))
        place = jnp.clip(state.place + move, 0, self.corridor).astype(jnp.int32)
        after = TMazeState(place, state.north, state.step + 1)
        terminated = at_junction & turns
        found = terminated & ((action == NORTH) == state.north)
        reward = jnp.where(found, 4.0, jnp.where(place == state.place, -0.1, 0.0))
        truncated = ~terminated & (after.step >= self.most_steps)
        return after, TimeStep.of(self._seen(after), reward, terminated, truncated)

    def _seen(self, state: TMazeState) -> Float[Array, "3"]:
        start = jnp.where(state.north, jnp.array([0, 1, 1]), jnp.array([1, 1, 0]))
        corridor, junction = jnp.array([1, 0, 1]), jnp.array([0, 1, 0])
        inside = jnp.where(state.place == self.corridor, junction, corridor)
        return jnp.where(state.place == 0, start, inside).astype(jnp.result_type(float))
