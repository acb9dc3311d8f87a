"""Clear errors for the options of an agent, and for the data of an environment."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._network import Network, check_network


def check_options(agent: Any) -> None:
    """Raise an error that names the option that is wrong, and what would be right."""
    name = type(agent).__name__
    check_network(name, agent.network)
    if agent.network.cumulative_mean:
        raise ValueError(
            f"{name}: a network with cumulative_mean runs on whole sequences only; leave it out"
        )
    if isinstance(agent.network, Network) and agent.network.blocks.dropout:
        raise ValueError(f"{name}: agents act without dropout; make the network with dropout=0")
    if not callable(getattr(agent.method, "next_value", None)):
        raise TypeError(
            f"{name}(method={agent.method!r:.80}) must be foretrace.rl.ActorCritic(…), "
            "QLearning(…) or ValuePrediction()"
        )
    agent.method.check(agent.network.output_size)
    agent.optimizer.check(name, agent)
    for option in ("discount", "trace_decay"):
        if not 0 <= getattr(agent, option) <= 1:
            raise ValueError(f"{name}({option}={getattr(agent, option)}) must lie in [0, 1]")
    if agent.batch_size is not None and agent.batch_size < 1:
        raise ValueError(
            f"{name}(batch_size={agent.batch_size}) must be at least 1, or None for one environment"
        )


def check_fits(name: str, agent: Any, size: int | None, count: int | None) -> None:
    """Raise a ValueError if an agent does not fit these sizes of observation and actions."""
    inputs, actions = agent.network.input_size, agent.action_count
    if size != inputs:
        raise ValueError(f"{name}: observations have {size} elements, the network {inputs} inputs")
    if count != actions:
        kinds = [
            f"{n} discrete actions" if n is not None else "continuous ones"
            for n in (count, actions)
        ]
        raise ValueError(f"{name}: the environment has {kinds[0]}, the agent {kinds[1]}")


def check_evaluation(agent: Any, environment: Any, episodes: Any, most_steps: Any) -> None:
    """Raise an error that names an unfit argument of an evaluation, and a fit one."""
    for name, value in (("episodes", episodes), ("most_steps", most_steps)):
        given = name == "episodes" or value is not None
        if given and (
            isinstance(value, bool)
            or not isinstance(value, int | np.integer)
            or not 1 <= value < 2**31
        ):
            raise ValueError(
                f"evaluate({name}={value!r}) must be an integer of at least 1 and below 2^31"
            )
    if not callable(getattr(environment, "reset", None)) or not callable(
        getattr(environment, "step", None)
    ):
        raise TypeError(
            f"evaluate(environment={environment!r:.80}) must be a foretrace.rl.Environment, or an "
            "environment of gymnasium or its id"
        )
    if agent.action_count == 1:
        raise ValueError(
            "evaluate: the agent only predicts, so that no return depends on it; look at its errors"
        )
    check_fits("evaluate", agent, environment.observation_size, environment.action_count)


def check_array(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    dtype: Any,
    low: float = -np.inf,
    high: float = np.inf,
) -> Any:
    """Return finite numbers, or booleans, as an array. A single one is repeated.

    The numbers of traced arrays are not looked at.

    Raises:
        TypeError: not booleans where these are expected.
        ValueError: no numbers, another shape, NaN, infinity, or a number outside [low, high].
    """
    traced = isinstance(value, jax.core.Tracer)
    array = value if traced else _as_array(name, value, dtype)
    if dtype is bool and array.dtype != bool:
        raise TypeError(f"{name} is {array.dtype}, expected booleans")
    if array.shape not in ((), shape):
        raise ValueError(
            f"{name} has shape {array.shape}, expected {shape}: environments in front, if there is "
            "a batch"
        )
    if traced:
        return jnp.broadcast_to(array, shape).astype(dtype)
    bad = ~(np.isfinite(array) & (array >= low) & (array <= high))
    if bad.any():
        inside = "finite numbers" if low == -np.inf else f"numbers in [{low}, {high}]"
        raise ValueError(
            f"{name} holds {array[bad][0]}, expected {inside}; the state of the agent is as before"
        )
    return np.broadcast_to(array, shape)


def _as_array(name: str, value: Any, dtype: Any) -> np.ndarray:
    """Return what is given as an array, numbers in a precision."""
    try:
        array = np.asarray(value)
        if dtype is bool:
            return array
        if array.dtype.kind in "cSU":
            raise TypeError(f"they are {array.dtype}")
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a {type(value).__name__} that holds no numbers ({error})"
        ) from error
