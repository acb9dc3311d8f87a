"""Trace conditioning: a stimulus, an interval without input, and the event that it announces."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._task import Task


@dataclasses.dataclass(frozen=True)
class TraceConditioning(Task):
    """Predict an event after a short stimulus and an interval without input, without actions.

       observation = (stimulus, event, distractors)
        reward      = event, which is the cumulant

    The number of steps from an event to the next stimulus is random and uniform in [pause, 2
    pause]. Nothing marks the interval, so the event can be predicted only from the memory of the
    stimulus. The stream has no episodes.

    Args:
        interval: number of steps from the stimulus to the event. It is at least two, because
            predictions are compared with the best constant between stimulus and event.
        pause: minimum number of steps from an event to the next stimulus. Default: four intervals.
        distractors: number of inputs that are 1 at random, each with probability 0.1.

    Raises:
        ValueError: the interval is below two, the pause is below one, or the number of distractors
            is negative.

    Source: Rafiee et al., From eye-blinks to state construction, Adaptive Behavior, 2022.

    >>> TraceConditioning(interval=10).observation_size
    2
    """

    interval: int = 10
    pause: int | None = None
    distractors: int = 0

    action_count: ClassVar[int] = 1
    predicts: ClassVar[bool] = True

    @property
    def observation_size(self) -> int:
        """Number of elements: stimulus, event and distractors."""
        return 2 + self.distractors

    @property
    def least_pause(self) -> int:
        """Minimum number of steps from an event to the next stimulus."""
        return 4 * self.interval if self.pause is None else self.pause

    def reset(self, key: PRNGKeyArray) -> tuple[Int[Array, ""], Float[Array, "I"]]:
        """Begin in a pause. The state is the number of steps to the next event."""
        return self._observed(self._drawn(key), key)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], TimeStep]:
        """Advance by one step. The action has no effect."""
        state, observation = self._observed(jnp.where(state == 0, self._drawn(key), state - 1), key)
        return state, TimeStep.of(observation, observation[1])

    def value(
        self, state: Int[Array, ""], discount: float
    ) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """Return the discounted sum of future events, and whether the past determines this sum.

           V(s) = discount^(s - 1) + discount^s V(0)    s steps before the event
            V(0) = g / (1 - discount g)

        g is the mean of discount^d over the random number of steps d from one event to the next.
        """
        first = self.least_pause - 1 + self.interval
        drawn = jnp.arange(first, first + self.least_pause + 1, dtype=jnp.result_type(float))
        g = (discount**drawn).mean()
        after = g / (1 - discount * g)
        known = (state >= 1) & (state <= self.interval)
        steps = jnp.maximum(state, 1).astype(g.dtype)
        before = discount ** (steps - 1) + discount**steps * after
        return jnp.where(state == 0, after, before), known

    def spread(self, discount: float) -> float:
        """Return the variance of the value after a stimulus, the error of the best constant."""
        steps = range(1, self.interval + 1)
        return float(jnp.var(jnp.stack([self.value(jnp.array(s), discount)[0] for s in steps])))

    def _drawn(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """Sample the number of steps from the step after an event to the next event."""
        pause = jax.random.randint(key, (), self.least_pause, 2 * self.least_pause + 1, jnp.int32)
        return pause - 1 + self.interval

    def _observed(
        self, state: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], Float[Array, "I"]]:
        noise = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.1, (self.distractors,))
        shown = jnp.concatenate([jnp.stack([state == self.interval, state == 0]), noise])
        return state, shown.astype(jnp.result_type(float))
