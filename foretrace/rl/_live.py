"""Environments of gymnasium that are running, and checks of their results."""

import contextlib
import importlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace.rl._checks import check_array
from foretrace.rl._task import Task

MOST_STEPS = 10_000
"""Length limit of an episode if neither the environment nor the user sets one."""

MOST_LIVE = 256
"""Maximum number of environments kept within an episode; others must repeat their actions."""


class _Episode(NamedTuple):
    """An environment within an episode, with the actions so far.

    The actions are bytes, because they are compared with the program's actions at every step.
    """

    environment: Any
    actions: bytearray


class Live:
    """Environments in Python that the pure functions of `AbstractGymnasium` call.

    Args:
        make: function that returns a new environment of gymnasium.
        limit: number of steps after which an episode is truncated; None for the environment's
            limit.
    """

    failed: ClassVar[Exception | None] = None

    def __init__(self, make: Callable[[], Any], limit: int | None):
        first = make()
        self._make, self._free, self._episodes = make, [first], OrderedDict[int, _Episode]()
        self.spaces = spaces_of(first.observation_space, first.action_space)
        own = getattr(getattr(first, "spec", None), "max_episode_steps", None)
        self.limit = limit or own or MOST_STEPS
        self.seen = jax.ShapeDtypeStruct((self.spaces.observation_size,), jnp.result_type(float))
        self.action = jax.ShapeDtypeStruct((), jnp.int32)
        if self.spaces.bounds is not None:
            self.action = jax.ShapeDtypeStruct(self.spaces.bounds[0].shape, self.seen.dtype)

    def reset(self, seed: Any) -> np.ndarray:
        """Begin an episode, and return its first observation."""
        with _noted():
            return self._begun(int(seed))[1]

    def step(self, bits: Any) -> tuple[np.ndarray, ...]:
        """Return the result of an action at a given step of an episode.

        Args:
            bits: seed and step, the actions so far in `limit` rows, and the action, as int32.
        """
        with _noted():
            numbers = np.asarray(bits)
            seed, step = numbers[:2].tolist()
            actions = numbers[2:].view(self.action.dtype).reshape(-1, *self.action.shape)
            action = actions[-1]
            environment, before = self._at(seed, actions[:step])
            observation, reward, terminated, truncated, _ = acted(environment, action)
            before.extend(action.tobytes())
            reward = check_array("reward", reward, (), self.seen.dtype, finite=False)
            terminated = check_array("terminated", terminated, (), bool)
            truncated = check_array("truncated", truncated, (), bool)
            truncated = ~terminated & (truncated | (step + 1 >= self.limit))
            if terminated | truncated:
                self._free.append(self._episodes.pop(seed).environment)
            return self._flat(observation), reward, terminated, np.asarray(truncated)

    def _at(self, seed: int, actions: np.ndarray) -> _Episode:
        """Return an environment at a given step of an episode; repeat its actions if needed."""
        found = self._episodes.get(seed)
        if found is not None and found.actions == actions.tobytes():
            self._episodes.move_to_end(seed)
            return found
        episode, _ = self._begun(seed)
        for action in actions:
            acted(episode.environment, action)
        episode.actions.extend(actions.tobytes())
        return episode

    def _begun(self, seed: int) -> tuple[_Episode, np.ndarray]:
        if (left := self._episodes.pop(seed, None)) is not None:
            self._free.append(left.environment)
        elif len(self._episodes) >= MOST_LIVE:
            self._free.append(self._episodes.popitem(last=False)[1].environment)
        environment = self._free.pop() if self._free else self._make()
        self._episodes[seed] = _Episode(environment, bytearray())
        return self._episodes[seed], self._flat(begun(environment, seed=seed))

    def _flat(self, observation: Any) -> np.ndarray:
        flat = np.ravel(observation)
        return check_array("observation", flat, self.seen.shape, self.seen.dtype, finite=False)


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """Store an error, because compiled programs report only its text."""
    try:
        yield
    except Exception as error:
        Live.failed = error
        raise


@contextlib.contextmanager
def errors_of_python() -> Iterator[None]:
    """Raise the error of a Python environment that a compiled program has reported as text."""
    Live.failed = None
    try:
        yield
    except jax.errors.JaxRuntimeError:
        if Live.failed is None:
            raise
        raise Live.failed from None


def imported(name: str) -> Any:
    """Return a module of the extra `rl`.

    Raises:
        ValueError: the module is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"environments of {name} need it; pip install 'foretrace[rl]'") from error


def made(environment: Any) -> Any:
    """Return an environment of gymnasium with flat observations, made from an id if needed.

    Raises:
        ValueError: the id is unknown, or gymnasium is not installed.
    """
    if not isinstance(environment, str):
        return environment
    gymnasium = imported("gymnasium")
    try:
        found = gymnasium.make(environment)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"Gymnasium(id={environment!r}) cannot be made: {error}") from error
    box = isinstance(found.observation_space, gymnasium.spaces.Box)
    return found if box else gymnasium.wrappers.FlattenObservation(found)


class Spaces(NamedTuple):
    """Sizes and bounds of an environment's observations and actions.

    Args:
        observation_size: number of elements of a flattened observation.
        action_count: number of actions; None for continuous actions.
        bounds: smallest and largest value of each element of an action; None for discrete actions.
    """

    observation_size: int
    action_count: int | None
    bounds: tuple[np.ndarray, np.ndarray] | None


def spaces_of(seen: Any, taken: Any) -> Spaces:
    """Return sizes and bounds from the observation and action spaces of gymnasium or gymnax.

    Raises:
        ValueError: observations or actions consist of several arrays.
    """
    if seen.shape is None:
        raise ValueError(
            "observations have no shape; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation"
        )
    size = math.prod(seen.shape)
    count = getattr(taken, "n", None)
    if count is not None and getattr(taken, "shape", ()) in ((), None):
        return Spaces(size, int(count), None)
    is_real = jnp.issubdtype(getattr(taken, "dtype", float), jnp.floating)
    if not hasattr(taken, "low") or not is_real:
        raise ValueError(f"actions are {taken}, expected Discrete, or a Box of continuous ones")
    low, high = (np.broadcast_to(end, taken.shape).ravel() for end in (taken.low, taken.high))
    return Spaces(size, None, (low, high))


class SpacedTask(Task):
    """A task that reads its sizes from the spaces of an environment."""

    @property
    def _spaces(self) -> Spaces:
        raise NotImplementedError

    @property
    def observation_size(self) -> int:
        """Number of elements of a flattened observation."""
        return self._spaces.observation_size

    @property
    def action_count(self) -> int | None:
        """Number of actions; None for continuous actions."""
        return self._spaces.action_count

    @property
    def bounds(self) -> Any:
        """Smallest and largest value of each element of an action; None for discrete actions."""
        return self._spaces.bounds


def begun(environment: Any, **options: Any) -> Any:
    """Begin an episode, and return its first observation."""
    return _parts("reset", environment.reset(**options), "observation, info")[0]


def acted(environment: Any, action: Any) -> tuple[Any, ...]:
    """Take an action, and return its result with the reward as a number."""
    expected = "observation, reward, terminated, truncated, info"
    given = _parts("step", environment.step(taken(environment, action)), expected)
    observation, reward, *others = given
    reward = np.asarray(reward)
    return observation, reward.reshape(()) if reward.size == 1 else reward, *others


def _parts(function: str, given: Any, expected: str) -> Any:
    """Return the result of an environment after a check of its parts."""
    count = len(expected.split(", "))
    if not isinstance(given, tuple) or len(given) != count:
        what = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise ValueError(
            f"{function}() returned {what}, expected ({expected}), as gymnasium defines since "
            "0.26; wrap an older environment"
        )
    return given


def taken(environment: Any, action: Any) -> Any:
    """Return an action for an environment: an integer, or numbers clipped to the bounds."""
    space = environment.action_space
    if getattr(space, "n", None) is not None:
        return int(action) + int(getattr(space, "start", 0))
    return np.clip(np.asarray(action).reshape(space.shape), space.low, space.high)
