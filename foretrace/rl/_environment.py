"""Environments as two pure functions, `reset` and `step`, and consecutive episodes."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray


class TimeStep(NamedTuple):
    """Result of an action in an environment.

    Args:
        observation: observation of the next state. At the end of an episode, it is the last
            observation of the episode.
        reward: reward of the action, or the cumulant to predict.
        terminated: whether the episode has ended in a state without a future, whose value is zero.
        truncated: whether the episode was cut, for example by a limit of steps. The next state then
            has a value.
        discount: factor of the value of the next state, in addition to the agent's own discount.
    """

    observation: Float[Array, "*B I"]
    reward: Float[Array, "*B"]
    terminated: Bool[Array, "*B"]
    truncated: Bool[Array, "*B"]
    discount: Float[Array, "*B"]

    @classmethod
    def of(
        cls, observation: Array, reward: Any, terminated: Any = False, truncated: Any = False
    ) -> "TimeStep":
        """Return a time step with a discount of 1, in the precision of the observation."""
        number, flag = (partial(jnp.asarray, dtype=dtype) for dtype in (observation.dtype, bool))
        return cls(observation, number(reward), flag(terminated), flag(truncated), number(1))


class Environment(Protocol):
    """An environment as pure functions. Everything that changes is in `state`.

    The functions are for a single environment and can be traced by JAX; `jax.vmap` makes a batch.
    Use each key only once.
    """

    @property
    def observation_size(self) -> int:
        """Number of elements of an observation."""

    @property
    def action_count(self) -> int | None:
        """Number of actions: 1 if there is only a prediction, None for continuous actions."""

    @property
    def truncates(self) -> bool:
        """Whether episodes can be cut, so that the value of the last observation is needed."""

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, "I"]]:
        """Begin an episode; return its state and its first observation."""

    def step(self, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, TimeStep]:
        """Take an action; return the next state and the time step."""


def step_or_reset(
    environment: Environment, state: Any, action: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Any, TimeStep, Float[Array, "I"]]:
    """Take an action, and begin a new episode if this one has ended.

    Args:
        environment: environment in which to act.
        state: state of the environment.
        action: action to take.
        key: PRNG key of the step and of the new episode.

    Returns:
        The next state, the result of the action, and the observation for the next action: the
        observation of the time step, or the first one of the new episode.

    >>> import jax, jax.numpy as jnp
    >>> from foretrace import rl
    >>> chain = rl.MemoryChain(length=1)
    >>> state, _ = chain.reset(jax.random.key(0))
    >>> for _ in range(2):
    ...     state, step, observation = step_or_reset(chain, state, jnp.array(0), jax.random.key(1))
    >>> bool(step.terminated), [float(x) for x in step.observation], abs(float(observation[0]))
    (True, [0.0, 0.0], 1.0)
    """
    step_key, reset_key = jax.random.split(key)
    after, step = environment.step(state, action, step_key)
    done, going_on = step.terminated | step.truncated, (after, step.observation)
    if _in_python(environment):
        # A branch, because a reset costs more than choosing an array.
        after, observation = lax.cond(done, lambda: environment.reset(reset_key), lambda: going_on)
    else:
        after, observation = optax.tree.where(done, environment.reset(reset_key), going_on)
    return after, step, observation


def each_environment(environment: Environment, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a batch of environments, vectorised or one by one in Python."""
    if _in_python(environment):
        return lambda *batches: lax.map(lambda now: function(*now), batches)
    return jax.vmap(function)


def _in_python(environment: Environment) -> bool:
    return getattr(environment, "in_python", False)


def check_hash(environment: Any) -> None:
    """Raise a TypeError if an environment cannot be hashed: programs are compiled for each one."""
    try:
        hash(environment)
    except TypeError as error:
        raise TypeError(
            f"{type(environment).__name__} cannot be hashed ({error}); make it a frozen dataclass, "
            "@dataclasses.dataclass(frozen=True), with fields that can be hashed"
        ) from None


def check_environment(environment: Environment) -> None:
    """Check by tracing that an environment has the interface of `Environment`.

    The values are not checked. A run refuses and counts steps whose reward or observation is NaN or
    infinite.

    Raises:
        TypeError: `step` does not return a `TimeStep`, a flag is not boolean, a number is not real,
            or the environment cannot be hashed.
        ValueError: an observation does not have `observation_size` elements, a reward or discount
            is not a single number, or the states that `step` and `reset` return have different
            shapes.

    >>> from foretrace import rl
    >>> check_environment(rl.MemoryChain(length=1))
    """
    check_hash(environment)
    name = type(environment).__name__
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, observation = jax.eval_shape(environment.reset, key)
    bounds, action = getattr(environment, "bounds", None), jax.ShapeDtypeStruct((), jnp.int32)
    if bounds is not None:
        action = jax.ShapeDtypeStruct(bounds[0].shape, observation.dtype)
    after, step = jax.eval_shape(environment.step, state, action, key)
    if not isinstance(step, TimeStep):
        raise TypeError(
            f"{name}.step returned a {type(step).__name__}, expected (state, foretrace.rl.TimeStep)"
        )
    size = (environment.observation_size,)
    _check_part(f"{name}.reset: observation", observation, size, jnp.floating)
    _check_part(f"{name}.step: observation", step.observation, size, observation.dtype)
    kinds = {"reward": jnp.floating, "discount": jnp.floating}
    for part in TimeStep._fields[1:]:
        _check_part(f"{name}.step: {part}", getattr(step, part), (), kinds.get(part, jnp.bool_))
    before, now = (
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.name), tree) for tree in (state, after)
    )
    if before != now:
        raise ValueError(
            f"{name}.step returned the state {now}, expected that of reset, {before}: a compiled "
            "loop needs the same structure, shapes and dtypes at every step"
        )


def _check_part(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if value.shape != shape:
        raise ValueError(
            f"{name} has shape {value.shape}, expected {shape}, the same at every step"
        )
    if not jnp.issubdtype(value.dtype, dtype):
        expected = "floating point" if dtype is jnp.floating else jnp.dtype(dtype).name
        raise TypeError(f"{name} is {value.dtype.name}, expected {expected}")
