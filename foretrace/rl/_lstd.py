"""Values by least squares on temporal differences: LSTD(lambda) on the decoder of a network."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._learner.optimizer import norm
from foretrace._types import Array, Arrays, Float, Int
from foretrace.rl._checks import check_ranges
from foretrace.rl._method import Method
from foretrace.rl._transition import Outcome
from foretrace.rl._update import Change, Update

LARGEST = 10.0
"""Limit of a reward, relative to the root of the sum of squares of earlier rewards."""


class LSTDState(NamedTuple):
    """State of the least squares for the P parameters of a decoder.

    Args:
        equations: weighted sum of `z (d, reward)^T` over the steps up to the last solution.
        recent: the same sum over the steps since the last solution. It is separate, because
            rounding a single step into a sum of 100,000 steps would cause errors as large as the
            prior in float32.
        gradient: gradient of the last value of each stream.
        size: root of the sum of the squares of all rewards, after clipping.
        waiting: number of steps of all streams since the last solution.
    """

    equations: Float[Array, "P Q"]
    recent: Float[Array, "P Q"]
    gradient: Arrays
    size: Float[Array, ""]
    waiting: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class LSTD(Update):
    """Values by least squares: the decoder solves the temporal-difference equations of all steps.

        A <- forget A + z d^T,  b <- forget b + z reward,  d = g - discount g'
        theta = (A + I / prior)^-1 b                          at every P-th step, for P parameters

    z is the trace of the agent. g and g' are the gradients of the values of a step and of the next
    step, with respect to the decoder's parameters theta. The decoder must be linear, and each value
    must be one of the outputs. Only the decoder is trained, so the features must remember without
    training: use the network `ft.ModuleNetwork(inputs, outputs, key=key)` and the rule
    `ft.RESERVOIR`. If rewards are far away, this needs far fewer steps than learning by a gradient
    (docs/agents.md). A step costs about P^2 operations, and a solution P^3 / 1.5. Nothing is
    learned before the P-th step.

    A reward is clipped at ten times the root of the sum of squares of all earlier rewards. A reward
    of 1e12 after 2,000 rewards of 1 counts as 450 and does not outweigh all later steps. Large
    rewards that occur repeatedly soon count in full, because each raises the limit tenfold.

    At the end of an episode that was cut, g' belongs to the last observation. `scale_rewards` has
    no benefit here: the solution is proportional to the rewards, and the sums would mix rewards
    that were scaled at different times.

    Args:
        forget: factor by which the weight of older steps is multiplied at every step of a stream.
        prior: variance of a parameter before the first step.

    Raises:
        TypeError: an argument is no number.
        ValueError: forget is outside (0, 1], or the prior is not positive.

    Source: Bradtke and Barto, Linear least-squares algorithms for temporal difference learning,
        1996; Boyan, Least-squares temporal difference learning, 1999.

    >>> import foretrace as ft, jax
    >>> network = ft.ModuleNetwork(1, 1, key=jax.random.key(0))
    >>> options = {"rule": ft.RESERVOIR, "optimizer": ft.rl.LSTD(), "discount": 0.5}
    >>> agent = ft.rl.Agent(network, ft.rl.ValuePrediction(), **options)
    >>> prediction, state, _ = agent.step(agent.init(), ft.rl.Transition([1.0], first=True))
    >>> for _ in range(200):
    ...     prediction, state, _ = agent.step(state, ft.rl.Transition([1.0], reward=3.0))
    >>> round(float(prediction), 1)  # 3 / (1 - 0.5)
    6.0
    """

    forget: float = 0.99999
    prior: float = 1.0

    asks_following: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ranges(self)

    def check(self, name: str, agent: Any) -> None:
        """Raise a ValueError if least squares do not fit an agent's options."""
        method, decoder = type(agent.method), agent.network.decoder
        learns_value = getattr(method, "objective", None) is Method.objective
        if agent.method.entropy or not learns_value:
            raise ValueError(
                f"{name}(method={method.__name__}) does not fit optimizer=LSTD, which learns "
                "values alone; give QLearning(on_policy=True), which is agent.method=sarsa, "
                "ValuePrediction(), which is prediction, or a subclass of foretrace.rl.Method "
                "without an `objective` and `entropy` of its own"
            )
        if agent.rule.trains_cells:
            raise ValueError(
                f"{name}(rule={agent.rule.name}) does not fit optimizer=LSTD, which trains the "
                "decoder alone; give rule=reservoir"
            )
        if getattr(decoder, "hidden", None) is not None:
            raise ValueError(
                f"{name}: optimizer=LSTD needs a linear decoder; make the network without "
                "readout_size"
            )

    def trained(self, network: Any) -> Any:
        """Return the decoder."""
        return network.decoder

    def init(self, network: Any, front: tuple[int, ...]) -> LSTDState:
        """Return the state before the first step; `front` is the shape of the axis of streams."""
        flat, decoder = ravel_pytree(network.decoder)[0], network.decoder
        none = jax.tree.map(lambda leaf: jnp.zeros(front + leaf.shape, leaf.dtype), decoder)
        equations = jnp.zeros((flat.size, flat.size + 1), flat.dtype)
        return LSTDState(equations, equations, none, jnp.zeros((), flat.dtype), jnp.int32(0))

    def update(
        self, state: Any, network: Any, trace: Any, td_error: Float[Array, "*B"], outcome: Outcome
    ) -> Change:
        """Return the network with the decoder that solves the equations of all steps."""
        trees = (trace, state.gradient, outcome.final.gradient)
        z, g, following = (_rows(tree, outcome) for tree in trees)
        known, discount = outcome.known.reshape(-1), outcome.discount.reshape(-1)
        d = g - discount[:, None] * following
        labels = known.sum(dtype=jnp.int32)
        keep = self.forget ** labels.astype(z.dtype)
        z = jnp.where(known[:, None], z, 0)
        reward, size = _bounded(state.size, jnp.where(known, outcome.reward.reshape(-1), 0))
        rows = jnp.concatenate([d, reward[:, None]], axis=1)
        recent = keep * state.recent + jnp.matmul(z.T, rows, precision="highest")
        waiting = state.waiting + labels
        before, restored = ravel_pytree(network.decoder)
        due = waiting >= before.size

        def solved() -> tuple[Array, Array, Array]:
            equations = self.forget ** waiting.astype(z.dtype) * state.equations + recent
            A = equations[:, :-1] + jnp.eye(before.size, dtype=before.dtype) / self.prior
            return jnp.linalg.solve(A, equations[:, -1]), equations, jnp.zeros_like(recent)

        found, equations, recent = lax.cond(due, solved, lambda: (before, state.equations, recent))
        # If the equations have no finite solution, the parameters do not change.
        distance = jnp.linalg.norm(found - before)
        found = jnp.where(jnp.isfinite(distance), found, before)
        after = LSTDState(equations, recent, state.gradient, size, jnp.where(due, 0, waiting))
        decoder = restored(found)
        moved = norm(jax.tree.map(jnp.subtract, decoder, network.decoder))
        # The sum is finite only if all terms are.
        parts = (equations, recent)
        sums = [size, *map(jnp.sum, parts), *(jnp.linalg.norm(part[:, -1]) for part in parts)]
        moved = jnp.where(jnp.isfinite(jnp.stack(sums)).all(), moved, jnp.nan)
        network = eqx.tree_at(lambda network: network.decoder, network, decoder)
        return Change(network, after, jnp.ones_like(td_error), moved)

    def remembering(self, state: LSTDState, gradient: Arrays) -> LSTDState:
        """Return the state with the gradient of each stream's newest value."""
        return state._replace(gradient=gradient)


def _bounded(
    size: Float[Array, ""], rewards: Float[Array, "B"]
) -> tuple[Float[Array, "B"], Float[Array, ""]]:
    """Return clipped rewards, and the updated root of the sum of their squares.

    No square is forgotten. Otherwise rewards that are far apart would be clipped for ever.
    """
    # Before the first nonzero reward, the size of rewards is unknown.
    limit = jnp.where(size > 0, LARGEST * size, jnp.inf)
    rewards = jnp.clip(rewards, -limit, limit)
    return rewards, jnp.hypot(size, jnp.linalg.norm(rewards))


def _rows(tree: Arrays, outcome: Outcome) -> Float[Array, "B P"]:
    """Return a matrix with one row for each stream, which contains its leaves."""
    count = outcome.known.size
    return jnp.concatenate([leaf.reshape(count, -1) for leaf in jax.tree.leaves(tree)], axis=1)
