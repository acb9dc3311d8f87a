"""`Transition`, the input of an agent's step, and the outcome from which the agent learns."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Arrays, Bool, Float
from foretrace.rl._checks import check_array


class Transition(NamedTuple):
    """The next observation, and the outcome of the last action.

    Numbers and flags have the shape () for one environment and (B,) for a batch. A single value is
    used for all environments.

    Args:
        observation: observation to act on, (I,) or (B, I). After the end of an episode, this is the
            first observation of the next episode.
        reward: reward of the last action, or the cumulant (the signal whose sum is predicted). It
            may be left out only if `first` is True.
        terminated: whether the episode has ended in a state of value zero.
        truncated: whether the episode was cut, as gymnasium defines it, so that the last state
            still has a value. Default: episodes are never cut.
        discount: factor in addition to the agent's own discount. For a general value function, set
            the agent's discount to 1 and pass the discount of each step here.
        final_observation: last observation of a truncated episode, (I,) or (B, I). Its value stands
            for the rest of the episode. It is needed only with `truncated`.
        first: whether the observation begins an episode and no action led to it, as at the start of
            a stream. If the last action still waits for its outcome, the agent does not learn from
            that action.

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
        value: the value; 0 if there is no such observation.
        gradient: under `LSTD`, the gradient of the value with respect to the decoder's parameters;
            otherwise None.
    """

    value: Float[Array, "*B"]
    gradient: Arrays | None


class Outcome(NamedTuple):
    """Outcome of the last action, from which the agent learns.

    Args:
        reward: reward before any scaling.
        discount: discount of the value of the next state; 0 after a termination.
        final: value of the last observation of a truncated episode.
        truncated: whether `final` replaces the value of the next observation.
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
            new: outcome in the transition.
            counts: whether the agent can learn from `new`: the last action was chosen for an
                observation, and all numbers are finite. If not, only the end of an episode in `new`
                counts, and an end in `self` that is still to be learned from is kept.
        """
        ends = self._replace(done=self.done | new.done)
        return jax.tree.map(lambda a, b: jnp.where(along(counts, a), a, b), new, ends)


def along(weights: Array, leaf: Array) -> Array:
    """Return one weight for each stream, in a shape that broadcasts to a leaf."""
    return weights.reshape(weights.shape + (1,) * (leaf.ndim - weights.ndim))


def check_transition(
    transition: Transition, front: tuple[int, ...], size: int, dtype: Any
) -> Transition:
    """Return a transition whose values are arrays.

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
            # Any value will do; without an array here, the first episode that is cut would compile
            # the step again.
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
    """Raise a ValueError if an episode was cut, because its last observation is then needed."""
    truncated, terminated = transition.truncated, transition.terminated
    if isinstance(truncated, jax.core.Tracer) or (
        truncated.any() and not np.all(terminated >= truncated)
    ):
        raise ValueError(
            "truncated is True without a final_observation: the value of the last observation "
            "stands for the rest of the episode; give Transition(…, final_observation=observation),"
            " or terminated=True for a value of zero"
        )
