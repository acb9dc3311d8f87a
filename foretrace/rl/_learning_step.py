"""The compiled step of an agent: two kinds of eligibility, one call of the engine.

The step in the order of the code:

    delta = reward + discount * value' - value         both values with the parameters of before
    theta <- theta + step * delta * z                  `ObGD`, or an optimiser on -delta * z;
                                                       `LSTD` solves for the decoder instead
    observation -> outputs, gradient, carry            with the new parameters: eligibility in time
    z     <- discount * trace_decay * z + gradient     eligibility in value

To spare a run of the network, value' and the gradient could be of the same call, before the update.
Then the effect of an update enters the next error as if it were news: predictions of a continuing
stream diverged (dev/LOG.md).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from foretrace._engine.carry import is_finite
from foretrace._engine.forward import forward
from foretrace._engine.gradient import Evaluation
from foretrace._learner.optimizer import norm
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, PRNGKeyArray
from foretrace.rl._lstd import LSTD
from foretrace.rl._method import Method
from foretrace.rl._moments import Moments, RewardScale
from foretrace.rl._monitors import real_parts
from foretrace.rl._overshoot import ObGD
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._transition import Final, Outcome, Transition, along


class Update(NamedTuple):
    """New parameters, and how large the step to them was."""

    network: AbstractNetwork
    opt_state: optax.OptState
    step_size: Float[Array, "*B"]
    norm: Float[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class LearningStep:
    """The step of an agent as a function of arrays.

    Args:
        method: method of learning, for one stream.
        gradient: function of network, carry, input, noise, reset and loss of one stream, which
            returns outputs, gradient and carry of one more step.
        optimizer: `ObGD`, `LSTD` or an Optax optimiser.
        discount: discount of the value of the next state.
        trace_decay: decay of the trace beside the discount.
        batch_size: number of streams; None for one without a batch axis.
    """

    method: Method
    gradient: Callable[..., Evaluation]
    optimizer: ObGD | LSTD | optax.GradientTransformation
    discount: float
    trace_decay: float
    batch_size: int | None

    def __call__(
        self, state: AgentState, transition: Transition, final: Final
    ) -> tuple[Array, AgentState, AgentInfo]:
        """Learn from the last action's outcome, and choose the next one."""
        outcome, fine = self._outcome(state, transition, final)
        observations, x = self._including(state.observations, transition.observation)
        key, draw = jax.random.split(state.key)
        noise = self._noises(draw, state)
        rewards, reward = self._scaled(state.rewards, outcome)
        td_error = self._td_error(state, outcome, reward, self._ahead(state, x), noise)
        trace = self._with_entropy(state.trace, state.entropy_grads, td_error)
        update = self._updated(state, outcome._replace(reward=reward), td_error, trace, x, noise)

        of_stream = partial(self._differentiated, update.network)
        axes = Evaluation(loss=0, grads=0, carry=1, outputs=0)  # type: ignore[arg-type]
        each = self._each(of_stream, (1, 0, 0, 0), (axes, 0))
        found, entropy_grads = each(state.carry, x, noise, outcome.done)
        output = found.outputs[..., 0, :]
        after = state._replace(
            network=update.network,
            opt_state=update.opt_state,
            carry=found.carry,
            trace=self._decayed(
                trace, trained(self.optimizer, found.grads), outcome, output, noise
            ),
            entropy_grads=entropy_grads,
            value=self._each(self.method.value)(output, noise),
            outcome=jax.tree.map(jnp.zeros_like, outcome),
            awaited=jnp.ones_like(outcome.known),
            observations=observations,
            rewards=rewards,
            step=jnp.where(outcome.known.any(), optax.safe_increment(state.step), state.step),
            key=key,
        )
        size = _sensitivity_norm(found.carry, jnp.zeros_like(update.norm))
        tested: tuple[Any, ...] = (
            output,
            td_error,
            found.carry.h,
            norm(after.trace),
            size,
            update.norm,
        )
        if isinstance(self.optimizer, LSTD):
            after = after._replace(opt_state=after.opt_state._replace(gradient=found.grads.decoder))
            tested += self.optimizer.sums(after.opt_state)
        # One vector and one reduction: else XLA repeats the test at each element of the state.
        accepted = jnp.isfinite(
            jnp.concatenate([part.ravel() for part in real_parts(tested)])
        ).all()
        info = AgentInfo(
            td_error=td_error,
            value=state.value,
            trace_norm=self._each(norm)(trace),
            sensitivity_norm=size,
            step_size=update.step_size,
            update_norm=jnp.where(accepted, update.norm, 0.0),
            accepted=accepted,
        )
        # Every leaf of the state is chosen, so that nothing depends on a branch.
        chosen = optax.tree.where(accepted, after, self._left(state, outcome))
        skipped = jnp.where(accepted & fine, state.skipped, optax.safe_increment(state.skipped))
        action = self._each(self.method.action)(output, noise)
        return action, chosen._replace(skipped=skipped), info

    def final(self, state: AgentState, observation: Array) -> Final:
        """Return the value of the last observation of an episode that was cut."""
        x = inputs_of(state.observations, observation)
        # Not the draw of the next action, which belongs to another observation.
        noise = self._noises(jax.random.fold_in(state.key, 2), state)
        value = self._each(self.method.next_value)(self._ahead(state, x), noise)
        solved = isinstance(self.optimizer, LSTD)
        return Final(value, self._following(state, x, noise) if solved else None)

    def act(
        self,
        state: AgentState,
        carry: Carry | None,
        observation: Array,
        begins: Array,
        key: PRNGKeyArray | None,
    ) -> tuple[Array, Float[Array, "*B O"], Carry | None]:
        """Choose an action, the greedy one without a key, and learn nothing.

        Args:
            state: state of the agent; its moments of observations stay as they are.
            carry: states of the network.
            observation: observation to act on.
            begins: whether it begins an episode.
            key: PRNG key of a sample of the policy.

        Returns:
            The action, the outputs of the network, and its next states.
        """

        def of_stream(carry: Carry, x: Array, begins: Array) -> tuple[Array, Carry | None]:
            outputs, after = forward(state.network, carry, x[None], reset=begins[None])
            return outputs[0], after

        x = inputs_of(state.observations, observation)
        output, after = self._each(of_stream, (1, 0, 0), (0, 1))(carry, x, begins)
        if key is None:
            return self._each(self.method.greedy_action)(output), output, after
        return self._each(self.method.action)(output, self._noises(key, state)), output, after

    def _outcome(
        self, state: AgentState, transition: Transition, final: Final
    ) -> tuple[Outcome, Bool[Array, ""]]:
        """Return what there is to learn from, and whether its numbers are finite."""
        given = Outcome.of(transition, self.discount, final)
        fine = is_finite((given.reward, given.discount, given.final))
        return state.outcome.followed_by(given.refused(fine, state.outcome), state.awaited), fine

    def _left(self, state: AgentState, outcome: Outcome) -> AgentState:
        """Return the state after a refused step.

        An end needs no further observation to be learned from; of the rest, the next one is
        missing.
        """
        left = outcome._replace(known=outcome.known & outcome.done)
        return state._replace(outcome=left, awaited=jnp.zeros_like(outcome.known))

    def _including(
        self, observations: Moments | None, observation: Array
    ) -> tuple[Moments | None, Array]:
        """Return the moments with one more observation of each stream, and the network's input."""
        if observations is None:
            return None, observation
        observations = observations.including(observation.reshape(-1, observation.shape[-1]))
        return observations, observations.normalised(observation)

    def _scaled(
        self, rewards: RewardScale | None, outcome: Outcome
    ) -> tuple[RewardScale | None, Float[Array, "*B"]]:
        """Return the rewards' scale after one more reward of each stream, and the scaled reward."""
        if rewards is None:
            return None, outcome.reward
        moved = rewards.including(outcome.reward, self.discount)
        rewards = optax.tree.where(outcome.known.any(), moved, rewards)
        return rewards.without(outcome.done), rewards.scaled(outcome.reward)

    def _td_error(
        self, state: AgentState, outcome: Outcome, reward: Array, ahead: Array, noise: Array
    ) -> Float[Array, "*B"]:
        """Return the errors. At the end of an episode the observation's value is not used."""
        following = self._each(self.method.next_value)(ahead, noise)
        following = jnp.where(outcome.truncated, outcome.final.value, following)
        error = reward + outcome.discount * following - state.value
        return jnp.where(outcome.known, error, 0.0)

    def _each(self, function: Any, in_axes: Any = 0, out_axes: Any = 0) -> Any:
        """Apply a function of one stream to all streams."""
        if self.batch_size is None:
            return function
        if self.batch_size > 1:
            return jax.vmap(function, in_axes, out_axes)
        return _only(function, in_axes, out_axes)

    def _noises(self, key: PRNGKeyArray, state: AgentState) -> Float[Array, "*B K"]:
        """Draw the random part of each stream's next action."""
        keys = key if self.batch_size is None else jax.random.split(key, self.batch_size)
        outputs, dtype = state.network.output_size, state.value.dtype
        return self._each(lambda key: self.method.noise(key, state.step, outputs, dtype))(keys)

    def _ahead(self, state: AgentState, x: Array) -> Float[Array, "*B O"]:
        """Return the outputs for the next inputs; nothing is differentiated or carried on."""

        def of_stream(carry: Carry, x: Array) -> Array:
            before = Carry(carry.h, None)
            return forward(state.network, before, x[None], keep_carry=False)[0][0]

        return self._each(of_stream, (1, 0))(state.carry, x)

    def _differentiated(
        self, network: Any, carry: Carry, x: Array, noise: Array, reset: Array
    ) -> tuple[Evaluation, Any]:
        """Return outputs, gradient and carry of one stream, and the gradient of the entropy."""
        evaluated = partial(self.gradient, network, carry, x, noise, reset)
        method = self.method
        if not method.entropy:
            return evaluated(method.objective), None

        def weighted(weights: Array) -> Evaluation:
            def loss(output: Array, noise: Array) -> Array:
                objective, entropy = method.objective(output, noise), method.policy_entropy(output)
                return weights[0] * objective + weights[1] * entropy

            return evaluated(loss)

        # The network is run once; only the backward pass is made for both.
        axes = Evaluation(loss=0, grads=0, carry=None, outputs=None)  # type: ignore[arg-type]
        both = jax.vmap(weighted, out_axes=axes)(jnp.eye(2, dtype=noise.dtype))
        grads, entropy = (jax.tree.map(lambda leaf, i=i: leaf[i], both.grads) for i in range(2))
        return both._replace(loss=both.loss[0], grads=grads), entropy

    def _with_entropy(self, trace: Any, entropy_grads: Any, td_error: Array) -> Any:
        """Add the gradient of the entropy with the sign of the error: updates always raise it."""
        if entropy_grads is None:
            return trace
        sign = self.method.entropy * jnp.sign(td_error)
        return jax.tree.map(lambda z, g: z + along(sign, g) * g, trace, entropy_grads)

    def _decayed(
        self, trace: Any, grads: Any, outcome: Outcome, output: Array, noise: Array
    ) -> Any:
        """Return the decayed trace with one more gradient of each stream."""
        keep = outcome.discount * self.trace_decay
        # Where an error is missing, later ones say nothing of earlier steps.
        ended = outcome.done | ~outcome.known
        keep = jnp.where(ended | self._each(self.method.cuts_trace)(output, noise), 0.0, keep)
        return jax.tree.map(lambda z, g: along(keep, z) * z + g, trace, grads)

    def _updated(
        self,
        state: AgentState,
        outcome: Outcome,
        td_error: Array,
        trace: Any,
        x: Array,
        noise: Array,
    ) -> Update:
        """Return the parameters after a step along the trace."""
        step_size = jnp.ones_like(td_error)
        if isinstance(self.optimizer, LSTD):
            before, following = state.network.decoder, self._following(state, x, noise)
            decoder, opt_state = self.optimizer.update(
                state.opt_state, before, trace, following, outcome
            )
            change = norm(jax.tree.map(jnp.subtract, decoder, before))
            network = eqx.tree_at(lambda network: network.decoder, state.network, decoder)
            return Update(network, opt_state, step_size, change)
        if isinstance(self.optimizer, ObGD):
            step_size = self._each(self.optimizer.step_size)(td_error, trace)
            updates = self._mean(state.network, step_size * td_error, trace)
            network = optax.apply_updates(state.network, updates)
            return Update(network, None, step_size, norm(updates))
        gradient = self._mean(state.network, -td_error, trace)
        updates, opt_state = self.optimizer.update(gradient, state.opt_state, state.network)
        moves = outcome.known.any()
        # Where nothing is known the optimiser must not move either.
        updates = jax.tree.map(lambda leaf: jnp.where(moves, leaf, 0.0), updates)
        opt_state = optax.tree.where(moves, opt_state, state.opt_state)
        network = optax.apply_updates(state.network, updates)
        return Update(network, opt_state, step_size, norm(updates))

    def _following(self, state: AgentState, x: Array, noise: Array) -> Any:
        """Return the gradient of each next value to the parameters of the decoder."""

        def of_stream(carry: Carry, x: Array, noise: Array) -> Any:
            before = Carry(carry.h, None)

            def value(decoder: Any) -> Array:
                network = eqx.tree_at(lambda network: network.decoder, state.network, decoder)
                output = forward(network, before, x[None], keep_carry=False)[0][0]
                return self.method.next_value(output, noise)

            return jax.grad(value)(state.network.decoder)

        return self._each(of_stream, (1, 0, 0))(state.carry, x, noise)

    def _mean(self, network: Any, weights: Array, trace: Any) -> Any:
        """Return the mean over streams of a weight times the trace."""
        if self.batch_size in (None, 1):
            return jax.tree.map(
                lambda z, p: weights.reshape(()) * z.reshape(p.shape), trace, network
            )
        return jax.tree.map(lambda z: jnp.tensordot(weights, z, 1) / self.batch_size, trace)


def trained(optimizer: Any, network: Any) -> Any:
    """Return the part of a network that an optimiser trains, or of a tree in its structure."""
    return network.decoder if isinstance(optimizer, LSTD) else network


def inputs_of(observations: Moments | None, observation: Array) -> Array:
    """Return the network's inputs for an observation."""
    return observation if observations is None else observations.normalised(observation)


def _sensitivity_norm(carry: Carry, none: Float[Array, ""]) -> Float[Array, ""]:
    """Return the norm of all sensitivities; `none` under a rule that carries none."""
    sensitivities = eqx.filter(carry.e, eqx.is_inexact_array)
    return norm(sensitivities) if jax.tree.leaves(sensitivities) else none


def _only(function: Callable, in_axes: Any, out_axes: Any) -> Callable:
    """Return `jax.vmap(function)` for one stream, without its axis: it slows XLA down on a CPU."""

    def apply(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        inner = [
            jax.tree.map(lambda leaf, axis=axis: jnp.squeeze(leaf, axis), arg)
            for arg, axis in zip(args, axes, strict=True)
        ]
        found = function(*inner)
        return jax.tree.map(
            lambda axis, part: jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), part),
            out_axes,
            found,
        )

    return apply
