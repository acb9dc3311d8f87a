"""The memory chain: a cue, steps without input, and a question about the cue."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._task import Task


class MemoryChainState(NamedTuple):
    """Cue of the episode, 1 or -1, and number of finished steps."""

    cue: Float[Array, ""]
    step: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class MemoryChain(Task):
    """Remember a cue over steps without input, and answer with it.

       step          observation          effect of the action
        0             (1, 0) or (-1, 0)    none
        1 …           (0, 0)               none
        length        (0, 1)               end: reward 1 for the right answer, -1 for the wrong one

    The right answer is action 1 after the cue 1, and action 0 after the cue -1.

    The reward follows the answer at once, so the only difficulty is to remember the cue.

    Args:
        length: number of steps from the cue to the question.

    Raises:
        ValueError: the length is below one.

    Source: bsuite's "memory length" (Osband et al., ICLR 2020), without a clock.

    >>> chain = MemoryChain(length=16)
    >>> chain.observation_size, chain.action_count
    (2, 2)
    """

    length: int = 16

    observation_size: ClassVar[int] = 2
    action_count: ClassVar[int] = 2
    best_return: ClassVar[float] = 1.0

    def reset(self, key: PRNGKeyArray) -> tuple[MemoryChainState, Float[Array, "I"]]:
        """Begin an episode with a random cue."""
        cue = jax.random.rademacher(key, (), jnp.result_type(float))
        state = MemoryChainState(cue, jnp.zeros((), jnp.int32))
        return state, jnp.stack([cue, jnp.zeros_like(cue)])

    def step(
        self, state: MemoryChainState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[MemoryChainState, TimeStep]:
        """Take an action. Only the answer to the question has an effect."""
        cue, now = state.cue, state.step + 1
        terminated = state.step >= self.length
        right = jnp.where(action == 1, cue, -cue)
        observation = jnp.stack([jnp.zeros_like(cue), (now == self.length).astype(cue.dtype)])
        reward = jnp.where(terminated, right, 0.0)
        return MemoryChainState(cue, now), TimeStep.of(observation, reward, terminated)
