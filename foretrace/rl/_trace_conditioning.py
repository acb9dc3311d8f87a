"""Trace conditioning: a stimulus, an empty interval, and the announced event."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._task import Task


@dataclasses.dataclass(frozen=True)
class TraceConditioning(Task):
    """Prediction of an event after a short stimulus and an empty interval, without actions.

        observation = (stimulus, event, distractors)
        reward      = event, the cumulant that is predicted

    Between an event and the next stimulus lies a random number of steps, uniform in [pause, 2
    pause]. Nothing marks the interval, so the event can be predicted only from the memory of the
    stimulus. The stream has no episodes.

    Args:
        interval: number of steps from the stimulus to the event; at least two, since predictions
            are compared with the best constant between the two.
        pause: smallest number of steps from an event to the next stimulus. Default: four intervals.
        distractors: number of inputs that are 1 at random, with probability 0.1 each.

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
        """Stimulus, event and distractors."""
        return 2 + self.distractors

    @property
    def least_pause(self) -> int:
        """Smallest number of steps from an event to the next stimulus."""
        return 4 * self.interval if self.pause is None else self.pause

    def reset(self, key: PRNGKeyArray) -> tuple[Int[Array, ""], Float[Array, "I"]]:
        """Begin in a pause; the state is the number of steps to the next event."""
        return self._observed(self._drawn(key), key)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], TimeStep]:
        """Advance by a step; the action has no effect."""
        state, observation = self._observed(jnp.where(state == 0, self._drawn(key), state - 1), key)
        return state, TimeStep.of(observation, observation[1])

    def value(
        self, state: Int[Array, ""], discount: float
    ) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """Return the discounted sum of future events, and whether the past determines it.

            V(s) = discount^(s - 1) + discount^s V(0), s steps before the event
            V(0) = g / (1 - discount g)

        g is the mean of discount^d over the number of steps d that is drawn after an event.
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
        """Return the value's variance between stimulus and event, the best constant's error."""
        steps = range(1, self.interval + 1)
        return float(jnp.var(jnp.stack([self.value(jnp.array(s), discount)[0] for s in steps])))

    def _drawn(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """Draw the number of steps from the step after an event to the next event."""
        pause = jax.random.randint(key, (), self.least_pause, 2 * self.least_pause + 1, jnp.int32)
        return pause - 1 + self.interval

    def _observed(
        self, state: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], Float[Array, "I"]]:
        noise = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.1, (self.distractors,))
        shown = jnp.concatenate([jnp.stack([state == self.interval, state == 0]), noise])
        return state, shown.astype(jnp.result_type(float))
