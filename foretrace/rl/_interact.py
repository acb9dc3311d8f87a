"""An agent that acts in an environment of gymnasium, step by step in Python: `interact`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from foretrace.rl._agent import Agent
from foretrace.rl._checks import check_fits
from foretrace.rl._live import acted, begun, made, spaces_of
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._transition import Transition


class Interaction(NamedTuple):
    """Result of a step in an environment of gymnasium.

    Args:
        state: state of the agent after it has learned from the step. Keep the last state to
            continue.
        info: information about this update.
        reward: reward of the step.
        total: sum of the rewards of the episode if this step ended it; otherwise None.
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
        state: state of the agent. If it was saved within an episode, the agent does not learn from
            the rest of that episode.
        environment: environment of gymnasium with the agent's kind of actions, or its id.
            Observations are flattened, and continuous actions are clipped to their bounds.
        steps: number of steps.
        seed: seed of the environment. Default: the environment's own seed.

    Yields:
        The state of the agent after each step, and the result of the step.

    Raises:
        TypeError: a flag that ends an episode is not boolean.
        ValueError: the spaces do not fit the agent; an observation or reward is NaN, infinite or
            not real, or has another shape than before; or the environment has another interface.
            The last state is unchanged.
    """
    if agent.batch_size is not None:
        raise ValueError(
            f"interact: the agent has batch_size={agent.batch_size}, expected None: one environment"
        )
    environment = made(environment)
    spaces = spaces_of(environment.observation_space, environment.action_space)
    check_fits("interact", agent, spaces)
    observation = begun(environment, seed=seed)
    action, state, _ = agent.step(state, Transition(np.ravel(observation), first=True))
    total = 0.0
    for _ in range(steps):
        last, reward, terminated, truncated, _ = acted(environment, action)
        done = bool(terminated or truncated)
        observation = begun(environment) if done else last
        brought = Transition(
            np.ravel(observation),
            reward,
            terminated,
            truncated,
            final_observation=np.ravel(last) if truncated else None,
        )
        action, state, info = agent.step(state, brought)
        total += float(brought.reward)
        yield Interaction(state, info, float(brought.reward), total if done else None)
        total = 0.0 if done else total
