"""Updates of an agent's parameters: the interface `Update`, and the optimisers of Optax."""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from foretrace._learner.optimizer import updated
from foretrace._types import Array, Float
from foretrace.rl._transition import Outcome, along


class Change(NamedTuple):
    """New parameters, and the size of the change.

    Args:
        network: network with the new parameters.
        state: state of the update.
        step_size: step size of each stream.
        norm: norm of the change of the parameters. If it is NaN, the step is refused.
    """

    network: Any
    state: Any
    step_size: Float[Array, "*B"]
    norm: Float[Array, ""]


class Update(Protocol):
    """Interface of updates of the parameters by temporal-difference errors and traces.

    `ObGD`, `LSTD` and `Descent` (for an optimiser of Optax) are updates. An update reads anything
    else that it needs from the outcome.
    """

    asks_following: ClassVar[bool] = False
    """Whether the update needs the gradient of the value of the next observation."""

    def check(self, name: str, agent: Any) -> None:
        """Raise a ValueError if an agent's options do not fit this update."""
        return

    def trained(self, network: Any) -> Any:
        """Return the trained part of a network, or of a tree of the same structure."""
        return network

    def init(self, network: Any, front: tuple[int, ...]) -> Any:
        """Return the state before the first step. Default: None.

        Args:
            network: network before the first step.
            front: shape of the leading axes of arrays that each stream has.
        """
        return None

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a step of each stream.

        Args:
            state: state before the step.
            network: network before the step.
            trace: trace of each stream.
            td_error: error of each stream, 0 if there is nothing to learn from.
            outcome: outcome of the last actions, with the scaled reward. `final` is the next value
                in any case, and has a gradient if `asks_following` is True.
        """

    def remembering(self, state: Any, gradient: Any) -> Any:
        """Return the state with the gradient of each stream's newest step. Default: unchanged."""
        return state


@dataclasses.dataclass(frozen=True)
class Descent(Update):
    """Update by an Optax optimiser, on the mean of `-td_error * trace` over the streams."""

    optimizer: optax.GradientTransformation | optax.MultiSteps

    def init(self, network: Any, front: tuple[int, ...]) -> Any:
        """Return the initial state of the optimiser."""
        return self.optimizer.init(network)

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a step of the optimiser."""
        *moved, size = updated(self.optimizer, network, state, mean(-td_error, trace))
        # If no outcome is known, the optimiser must not change either.
        moves = outcome.known.any()
        network, state = optax.tree.where(moves, tuple(moved), (network, state))
        return Change(network, state, jnp.ones_like(td_error), jnp.where(moves, size, 0.0))


def as_update(name: str, optimizer: Any) -> Update:
    """Return the update of an agent's optimiser.

    Raises:
        TypeError: the value is neither an update nor an optimiser of Optax.
    """
    if isinstance(optimizer, optax.GradientTransformation | optax.MultiSteps):
        return Descent(optimizer)
    # A class has the functions of an update, but is no update.
    if isinstance(optimizer, type) or not callable(getattr(optimizer, "remembering", None)):
        raise TypeError(
            f"{name}(optimizer={optimizer!r:.80}) must be foretrace.rl.ObGD, foretrace.rl.LSTD, or "
            "an Optax optimiser"
        )
    return optimizer


def mean(weights: Float[Array, "*B"], trace: Any) -> Any:
    """Return the mean over streams of a weight times the trace."""
    streams = tuple(range(weights.ndim))
    return jax.tree.map(lambda z: (along(weights, z) * z).mean(streams), trace)
