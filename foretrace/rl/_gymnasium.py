"""Environments of gymnasium, step by step in Python."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from foretrace.rl._agent import AbstractAgent
from foretrace.rl._state import AgentInfo, AgentState


class Interaction(NamedTuple):
    """What a step in an environment of gymnasium gives.

    Args:
        state: state of the agent; keep the last one to go on.
        info: what `learn` returned.
        reward: reward of the step.
        total: sum of the rewards of the episode if the step has ended it; None within an episode.
    """

    state: AgentState
    info: AgentInfo
    reward: float
    total: float | None


def interact(
    agent: AbstractAgent, state: AgentState, environment: Any, steps: int, *, seed: int | None = None
) -> Iterator[Interaction]:
    """Let an agent act and learn in an environment of gymnasium, episode after episode.

    Args:
        agent: agent of one environment (`batch_size=None`).
        state: state of the agent. If it was kept within an episode, that episode ends here without a value.
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
    observation, _ = _parts("reset", environment.reset(seed=seed), "observation, info")
    if not bool(state.outcome.done):
        # The state was kept within an episode, which the environment has now left: its last step is not learned from.
        end = state.outcome._replace(done=jnp.array(True), known=jnp.array(False), awaited=jnp.array(False))
        state = state._replace(outcome=end)
    total = 0.0
    for _ in range(steps):
        action, state = agent.act(state, np.ravel(observation))
        moment = _parts("step", environment.step(_taken(agent, environment, action)), _STEP)
        observation, reward, terminated, truncated, _ = moment
        last = np.ravel(observation) if truncated else None
        state, info = agent.learn(state, _single(reward), terminated, truncated, final_observation=last)
        number = float(_single(reward))
        total += number
        done = bool(terminated or truncated)
        yield Interaction(state, info, number, total if done else None)
        if done:
            observation, _ = _parts("reset", environment.reset(), "observation, info")
            total = 0.0


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


def _taken(agent: AbstractAgent, environment: Any, action: Any) -> Any:
    if agent.action_count is not None:
        return int(action)
    space = environment.action_space
    return np.clip(np.asarray(action).reshape(space.shape), space.low, space.high)


def _check(agent: AbstractAgent, environment: Any) -> None:
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
