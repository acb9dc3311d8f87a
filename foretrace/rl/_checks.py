"""Clear errors for the options of an agent, and for the data of an environment."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._network import Network, check_network
from foretrace.rl._environment import check_hash


def _whole(least: int, below: float = math.inf) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, int | np.integer) and bool(least <= x < below)


_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "learning_rate kappa prior": (lambda x: 0 < x < math.inf, "be a finite number above 0"),
    "actor_weight entropy": (lambda x: 0 <= x < math.inf, "be a finite number of at least 0"),
    "discount trace_decay": (lambda x: 0 <= x <= 1, "lie in [0, 1]"),
    "epsilon": (lambda x: callable(x) or 0 <= x <= 1, "lie in [0, 1]"),
    "forget": (lambda x: 0 < x <= 1, "lie in (0, 1]"),
    "back distractors": (_whole(0), "be an integer of at least 0"),
    "epsilon_steps batch_size action_size length corridor decks limit pause": (
        _whole(1),
        "be an integer of at least 1",
    ),
    "interval": (_whole(2), "be an integer of at least 2"),
    "steps environments log_every checkpoint_every episodes most_steps": (
        _whole(1, 2**31),
        "be an integer of at least 1 and below 2^31",
    ),
    "seed evaluation_episodes": (_whole(0, 2**31), "be an integer in [0, 2^31)"),
}
RANGES = {name: row for names, row in _RANGES.items() for name in names.split()}
"""For each option, a check of its value, and the text of the error message."""


def check_ranges(owner: object, form: str = "") -> None:
    """Check the options of an object that have a range in `RANGES`.

    If None is the default of an option, None is accepted.

    Raises:
        TypeError: an option is not a number.
        ValueError: an option is outside of its range.
    """
    form = form or f"{type(owner).__name__}({{}})"
    for name, value in vars(owner).items():
        is_default = value is None and getattr(type(owner), name, None) is None
        if name in RANGES and not is_default:
            check_range(name, value, form)


def check_range(name: str, value: Any, form: str) -> None:
    """Check one value by its name in `RANGES`, as `check_ranges` does."""
    fits, expected = RANGES[name]
    given = form.format(f"{name}={value!r:.80}")
    if value is None or isinstance(value, bool | str) or (callable(value) and name != "epsilon"):
        raise TypeError(f"{given} must be a number")
    if not fits(value):
        raise ValueError(f"{given} must {expected}")


def check_options(agent: Any) -> None:
    """Raise an error that names the wrong option and the accepted values."""
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
    check_ranges(agent)


def check_fits(name: str, agent: Any, seen: Any) -> None:
    """Raise a ValueError if an agent does not fit an environment's observations and actions."""
    size, inputs = seen.observation_size, agent.network.input_size
    if size != inputs:
        raise ValueError(f"{name}: observations have {size} elements, the network {inputs} inputs")
    own, bounds = getattr(agent.method, "action_size", None), getattr(seen, "bounds", None)
    given = own if bounds is None else bounds[0].size
    there, here = _actions(seen.action_count, given), _actions(agent.action_count, own)
    if there != here:
        raise ValueError(f"{name}: the environment has {there}, the agent {here}")


def _actions(count: int | None, size: int | None) -> str:
    if count is not None:
        return f"{count} discrete actions"
    return "continuous actions" if size is None else f"actions of {size} numbers"


def check_evaluation(agent: Any, environment: Any, episodes: Any, most_steps: Any) -> None:
    """Raise an error that names the wrong argument of an evaluation and the accepted values."""
    check_range("episodes", episodes, "evaluate({})")
    if most_steps is not None:
        check_range("most_steps", most_steps, "evaluate({})")
    if not all(callable(getattr(environment, name, None)) for name in ("reset", "step")):
        raise TypeError(
            f"evaluate(environment={environment!r:.80}) must be a foretrace.rl.Environment, or an "
            "environment of gymnasium or its id"
        )
    check_hash(environment)
    if agent.action_count == 1:
        raise ValueError(
            "evaluate: the agent only predicts, so that no return depends on it; look at its errors"
        )
    check_fits("evaluate", agent, environment)


def check_array(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    dtype: Any,
    low: float = -np.inf,
    high: float = np.inf,
    finite: bool = True,
) -> Any:
    """Return finite numbers, or booleans, as an array. A single value is repeated.

    The numbers in a traced array are not checked, nor numbers that need not be finite.

    Raises:
        TypeError: booleans are expected, and the value has another type.
        ValueError: the value does not consist of numbers, has the wrong shape, or contains NaN,
            infinity or a number outside [low, high].
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
    bad = finite & ~(np.isfinite(array) & (array >= low) & (array <= high))
    if bad.any():
        inside = "finite numbers" if low == -np.inf else f"numbers in [{low}, {high}]"
        raise ValueError(
            f"{name} holds {array[bad][0]}, expected {inside}; the state of the agent is as before"
        )
    return np.broadcast_to(array, shape)


def _as_array(name: str, value: Any, dtype: Any) -> np.ndarray:
    """Return a value as an array; floats are converted to one precision."""
    try:
        array = np.asarray(value)
        if dtype is bool:
            return array
        if array.dtype.kind in "cSU" or (array.dtype == object and None in array.ravel().tolist()):
            raise TypeError(f"they are {array.dtype}")
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a {type(value).__name__} that holds no numbers ({error})"
        ) from error
