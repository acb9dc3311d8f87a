"""`Transition`, the input of an agent's step, and the outcome that it learns from."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Arrays, Bool, Float
from foretrace.rl._checks import check_array


class Transition(NamedTuple):
    """The next observation, and the last action's outcome.

    Numbers and flags have the shape () for one environment and (B,) for a batch; a single value
    stands for all environments.

    Args:
        observation: observation to act on, (I,) or (B, I); after the end of an episode, the first
            observation of the next.
        reward: reward of the last action, or the cumulant (the signal whose sum is predicted). It
            may be left out only if `first` is True.
        terminated: whether the episode has ended in a state of value zero.
        truncated: whether the episode was cut, as gymnasium defines it: the last state still has a
            value. Default: episodes are never cut.
        discount: factor that multiplies the agent's own discount, such as the discount of this step
            of a general value function, where the agent's is 1.
        final_observation: last observation of the episode, (I,) or (B, I), whose value stands for
            the rest of an episode that was cut. Needed only with `truncated`.
        first: whether the observation begins an episode without an outcome before it, as at the
            start of a stream. An action that waits for its outcome is then not learned from.

    >>> Transition([0.0, 1.0], first=True).reward is None
    True
    """

    observation: Any
    reward: Any = None
    terminated: Any = False
    truncated: Any = None
    discount: Any = 1.0
    final_observation: Any = None
    first: Any = False


class Final(NamedTuple):
    """Value of the last observation of a truncated episode.

    Args:
        value: the value; 0 without such an observation.
        gradient: its gradient to the parameters of the decoder, under `LSTD`; else None.
    """

    value: Float[Array, "*B"]
    gradient: Arrays | None


class Outcome(NamedTuple):
    """Outcome of the last action, to learn from.

    Args:
        reward: reward, before any scaling.
        discount: discount of the value of the state that follows; 0 after a termination.
        final: the last observation of a truncated episode.
        truncated: whether `final` replaces the next observation.
        done: whether an episode has ended, so that the next observation begins another.
        known: whether there is an outcome to learn from.
    """

    reward: Float[Array, "*B"]
    discount: Float[Array, "*B"]
    final: Final
    truncated: Bool[Array, "*B"]
    done: Bool[Array, "*B"]
    known: Bool[Array, "*B"]

    @classmethod
    def of(cls, transition: Transition, discount: float, final: Final) -> "Outcome":
        """Return the outcome of a checked transition."""
        factor = transition.discount * discount
        return cls(
            reward=transition.reward,
            discount=jnp.where(transition.terminated, jnp.zeros_like(factor), factor),
            final=final,
            truncated=transition.truncated,
            done=transition.terminated | transition.truncated | transition.first,
            known=~transition.first,
        )

    def followed_by(self, new: "Outcome", counts: Bool[Array, "*B"]) -> "Outcome":
        """Return the outcome after one more transition.

        Args:
            new: outcome that the transition tells of.
            counts: whether it does: the last action was chosen for an observation, and all numbers
                are finite. Of another one only the end of an episode counts, and `self`, an end
                that is still to be learned from, stays.
        """
        ends = self._replace(done=self.done | new.done)
        return jax.tree.map(lambda a, b: jnp.where(along(counts, a), a, b), new, ends)


def along(weights: Array, leaf: Array) -> Array:
    """Return one weight for each stream, broadcastable to a leaf."""
    return weights.reshape(weights.shape + (1,) * (leaf.ndim - weights.ndim))


def check_transition(
    transition: Transition, front: tuple[int, ...], size: int, dtype: Any
) -> Transition:
    """Return a transition of arrays.

    Raises:
        TypeError: the value is no transition, or its flags are not boolean.
        ValueError: a shape is wrong, an observation or reward is NaN or infinite, the discount is
            outside [0, 1], the reward is missing, or a truncated episode has no last observation.
    """
    if not isinstance(transition, Transition):
        raise TypeError(
            f"transition is a {type(transition).__name__}, expected foretrace.rl.Transition("
            "observation, reward, terminated), or Transition(observation, first=True) at the start"
        )
    flag = partial(check_array, shape=front, dtype=bool)
    number = partial(check_array, shape=front, dtype=dtype)
    seen = partial(check_array, shape=(*front, size), dtype=dtype)
    first, last = flag("first", transition.first), transition.final_observation
    truncated = False if transition.truncated is None else transition.truncated
    observation = seen("observation", transition.observation)
    checked = Transition(
        observation=observation,
        reward=number("reward", _reward(transition, first)),
        terminated=flag("terminated", transition.terminated),
        truncated=flag("truncated", truncated),
        discount=number("discount", transition.discount, low=0.0, high=1.0),
        final_observation=None if last is None else seen("final_observation", last),
        first=first,
    )
    if last is None:
        _check_uncut(checked)
        if not isinstance(observation, jax.core.Tracer):
            # Any will do: the first episode that is cut should not compile the step again.
            return checked._replace(final_observation=observation)
    return checked


def _reward(transition: Transition, first: Any) -> Any:
    if transition.reward is not None:
        return transition.reward
    if isinstance(first, jax.core.Tracer) or not first.all():
        raise ValueError(
            "the transition has no reward: give what the last action brought, as "
            "Transition(observation, reward), or first=True where an episode begins without one; "
            "where first is an array of a compiled program, give zeros as the reward"
        )
    return 0.0


def _check_uncut(transition: Transition) -> None:
    """Raise a ValueError if an episode was cut, so that a last observation is needed."""
    truncated, terminated = transition.truncated, transition.terminated
    if isinstance(truncated, jax.core.Tracer) or (
        truncated.any() and not np.all(terminated >= truncated)
    ):
        raise ValueError(
            "truncated is True without a final_observation: the value of the last observation "
            "stands for the rest of the episode; give Transition(…, final_observation=observation),"
            " or terminated=True for a value of zero"
        )
