"""Updates of an agent's parameters: `Update`, and Optax's optimisers."""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from foretrace._learner.optimizer import updated
from foretrace._types import Array, Float
from foretrace.rl._transition import Outcome, along


class Change(NamedTuple):
    """New parameters, and the size of the step.

    Args:
        network: network with these parameters.
        state: state of the update.
        step_size: step size of each stream.
        norm: norm of the change of the parameters; NaN refuses the step.
    """

    network: Any
    state: Any
    step_size: Float[Array, "*B"]
    norm: Float[Array, ""]


class Update(Protocol):
    """A way to update parameters by temporal-difference errors and traces.

    `ObGD`, `LSTD` and, for an optimiser of Optax, `Descent` are updates. What one needs beside
    error and trace is in the outcome, by name.
    """

    asks_following: ClassVar[bool] = False
    """Whether it asks for `following`, the gradient of the value of what follows."""

    def check(self, name: str, agent: Any) -> None:
        """Raise a ValueError if an agent's options do not fit this update."""
        return

    def trained(self, network: Any) -> Any:
        """Return the trained part of a network, or of a tree of the same structure."""
        return network

    def init(self, network: Any, front: tuple[int, ...]) -> Any:
        """Return the state before the first step; None by default.

        Args:
            network: network before the first step.
            front: shape that stands in front of what belongs to each stream.
        """
        return None

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a step of each stream.

        Args:
            state: state before.
            network: network before.
            trace: trace of each stream.
            td_error: error of each stream, 0 where there is nothing to learn from.
            outcome: what followed the last actions, with the reward as it is learned from and, as
                `final`, what follows in any case: with its gradient if `asks_following`.
        """

    def remembering(self, state: Any, gradient: Any) -> Any:
        """Return the state with the gradient of each stream's newest step. Default: unchanged."""
        return state


@dataclasses.dataclass(frozen=True)
class Descent(Update):
    """An optimiser of Optax on the mean of `-td_error * trace` over the streams."""

    optimizer: optax.GradientTransformation | optax.MultiSteps

    def init(self, network: Any, front: tuple[int, ...]) -> Any:
        """Return the optimiser's state."""
        return self.optimizer.init(network)

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the parameters after a step of the optimiser."""
        *moved, size = updated(self.optimizer, network, state, mean(-td_error, trace))
        # Where nothing is known the optimiser must not move either.
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
    # A class has the functions of an update, but is none.
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
