"""Environments of gymnasium, step by step in Python."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from foretrace.rl._agent import Agent
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._transition import Transition


class Interaction(NamedTuple):
    """What a step in an environment of gymnasium gives.

    Args:
        state: state of the agent, which has learned from the step; keep the last one to go on.
        info: information about this update.
        reward: reward of the step.
        total: sum of the rewards of the episode if the step has ended it; None within an episode.
    """

    state: AgentState
    info: AgentInfo
    reward: float
    total: float | None


def interact(
    agent: Agent, state: AgentState, environment: Any, steps: int, *, seed: int | None = None
) -> Iterator[Interaction]:
    """Let an agent act and learn in an environment of gymnasium, episode after episode.

    Args:
        agent: agent of one environment (`batch_size=None`).
        state: state of the agent. If it was kept within an episode, nothing is learned from what
            followed there.
        environment: environment of gymnasium with actions of the agent's kind; observations are flattened. Continuous
            actions are clipped to their bounds.
        steps: number of steps.
        seed: seed of the environment. Default: the environment's own.

    Yields:
        The state of the agent after each step, and what the step gave.

    Raises:
        TypeError: flags of an end that are not boolean.
        ValueError: spaces that do not fit the agent, an observation or reward that is NaN, infinite, not real or of
            another shape than before, or an environment with another interface. The last state is unharmed.
    """
    _check(agent, environment)
    observation, _ = _parts("reset", environment.reset(seed=seed), _RESET)
    action, state, _ = agent.step(state, Transition(np.ravel(observation), first=True))
    total = 0.0
    for _ in range(steps):
        given = _parts("step", environment.step(_taken(agent, environment, action)), _STEP)
        last, reward, terminated, truncated, _ = given
        done = bool(terminated or truncated)
        observation = _parts("reset", environment.reset(), _RESET)[0] if done else last
        brought = Transition(
            np.ravel(observation),
            _single(reward),
            terminated,
            truncated,
            final_observation=np.ravel(last) if truncated else None,
        )
        action, state, info = agent.step(state, brought)
        total += float(brought.reward)
        yield Interaction(state, info, float(brought.reward), total if done else None)
        total = 0.0 if done else total


_RESET = "observation, info"
_STEP = "observation, reward, terminated, truncated, info"


def _parts(function: str, given: Any, expected: str) -> Any:
    """Return what an environment returned, if it has the parts that gymnasium defines."""
    count = len(expected.split(", "))
    if not isinstance(given, tuple) or len(given) != count:
        what = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise ValueError(
            f"interact: {function}() returned {what}, expected ({expected}), as gymnasium defines since 0.26; wrap an "
            "older environment"
        )
    return given


def _single(reward: Any) -> Any:
    """Return a reward that came as an array of one number as that number."""
    array = np.asarray(reward)
    return array.reshape(()) if array.size == 1 else reward


def _taken(agent: Agent, environment: Any, action: Any) -> Any:
    if agent.action_count is not None:
        return int(action)
    space = environment.action_space
    return np.clip(np.asarray(action).reshape(space.shape), space.low, space.high)


def _check(agent: Agent, environment: Any) -> None:
    if agent.batch_size is not None:
        raise ValueError(f"interact: the agent has batch_size={agent.batch_size}, expected None: one environment")
    shape, count = environment.observation_space.shape, getattr(environment.action_space, "n", None)
    size = None if shape is None else int(np.prod(shape))
    if size != agent.network.input_size:
        raise ValueError(f"interact: observations have {size} elements, the network {agent.network.input_size} inputs")
    if agent.action_count is not None and (count is None or int(count) != agent.action_count):
        raise ValueError(f"interact: the environment has {count} discrete actions, the agent {agent.action_count}")
    if agent.action_count is None and count is not None:
        raise ValueError(f"interact: the environment has {count} discrete actions, the agent continuous ones")
