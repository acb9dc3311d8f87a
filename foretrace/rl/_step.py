"""The compiled step of an agent: two kinds of eligibility, one call of the engine.

The step in the order of the code:

    delta = reward + discount * value' - value         value' of the new observation, both with the same parameters
    theta <- theta + step * delta * z                  `ObGD`, or an Optax optimiser on -delta * z
    observation -> outputs, gradient, carry            with the new parameters: eligibility in time
    z     <- discount * trace_decay * z + gradient     eligibility in value

To spare a run of the network, value' and the gradient could be of the same call, before the update. Then the effect of
an update enters the next error as if it were news: predictions of a continuing stream diverged (dev/LOG.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from foretrace._engine.data import Data
from foretrace._engine.forward import forward
from foretrace._engine.gradient import Evaluation, evaluate
from foretrace._learner.optimizer import norm
from foretrace._network import Network
from foretrace._recurrence.chunk import Carry
from foretrace._rule import LearningRule
from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._method import AbstractMethod
from foretrace.rl._moments import Moments
from foretrace.rl._overshoot import ObGD
from foretrace.rl._state import AgentInfo, AgentState


class LearningStep(AbstractMethod):
    """What `AbstractAgent.act` compiles; the options are those of the agent."""

    network: Network
    rule: LearningRule
    optimizer: ObGD | optax.GradientTransformation
    discount: float
    trace_decay: float
    batch_size: int | None
    _dtype: Any

    def _each(self, function: Any, in_axes: Any = 0, out_axes: Any = 0) -> Any:
        """Apply a function of one stream to all streams."""
        if self.batch_size is None:
            return function
        return jax.vmap(function, in_axes, out_axes) if self.batch_size > 1 else _only(function, in_axes, out_axes)

    def _seen(self, observations: Moments | None, observation: Array) -> Array:
        return observation if observations is None else observations.normalised(observation)

    def _traced_final_value(self, state: AgentState, observation: Array) -> Float[Array, "*B"]:
        outputs = self._ahead(state, self._seen(state.observations, observation))
        # Not the draw of the next action, which belongs to another observation.
        return self._each(self._next_value)(outputs, self._noises(jax.random.fold_in(state.key, 2), state))

    def _noises(self, key: PRNGKeyArray, state: AgentState) -> Float[Array, "*B K"]:
        """Draw what the next action of each stream depends on beside the outputs."""
        keys = key if self.batch_size is None else jax.random.split(key, self.batch_size)
        return self._each(partial(self._noise, step=state.step))(keys)

    def _ahead(self, state: AgentState, x: Array) -> Float[Array, "*B O"]:
        """Return the outputs for the next inputs; nothing is differentiated or carried on."""

        def of_stream(carry: Carry, x: Array) -> Array:
            return forward(state.network, Carry(carry.h, None), x[None], keep_carry=False)[0][0]

        return self._each(of_stream, (1, 0))(state.carry, x)

    def _differentiated(
        self, network: Network, carry: Carry, x: Array, noise: Array, reset: Array
    ) -> tuple[Evaluation, Network | None]:
        """Return outputs, gradient of the objective and carry of one stream, and the gradient of the entropy."""
        evaluated = partial(self._evaluated, network, carry, x, noise, reset)
        if not self._entropy_bonus:
            return evaluated(self._objective), None

        def weighted(weights: Array) -> Evaluation:
            def loss(output: Array, noise: Array) -> Array:
                return weights[0] * self._objective(output, noise) + weights[1] * self._entropy(output)

            return evaluated(loss)

        # The network is run once; only the backward pass is made for both.
        axes = Evaluation(loss=0, grads=0, carry=None, outputs=None)  # type: ignore[arg-type]
        both = jax.vmap(weighted, out_axes=axes)(jnp.eye(2, dtype=self._dtype))
        objective, entropy = (jax.tree.map(lambda leaf, i=i: leaf[i], both.grads) for i in range(2))
        return both._replace(loss=both.loss[0], grads=objective), entropy

    def _evaluated(
        self, network: Network, carry: Carry, x: Array, noise: Array, reset: Array, loss: Callable
    ) -> Evaluation:
        """Return outputs, gradient of a loss and carry of one stream after one more step."""
        return evaluate(network, carry, Data(x[None], noise[None], reset=reset[None]), rule=self.rule, loss=loss)

    def _traced_act(self, state: AgentState, observation: Array) -> tuple[Array, AgentState]:
        outcome, observations, none = state.outcome, state.observations, jnp.zeros_like(state.outcome.known)
        if observations is not None:
            observations = observations.including(observation.reshape(-1, self.network.input_size))
        x = self._seen(observations, observation)
        key, draw = jax.random.split(state.key)
        noise = self._noises(draw, state)
        rewards, reward = state.rewards, outcome.reward
        if rewards is not None:
            moved = rewards.including(reward, self.discount)
            rewards = optax.tree.where(outcome.known.any(), moved, rewards)
            reward, rewards = rewards.scaled(reward), rewards.without(outcome.done)
        # The old parameters judge what followed; where an episode has ended, this value is not used.
        following = self._each(self._next_value)(self._ahead(state, x), noise)
        following = jnp.where(outcome.truncated, outcome.final_value, following)
        td_error = jnp.where(outcome.known, reward + outcome.discount * following - state.value, 0.0)
        trace = self._with_entropy(state.trace, state.entropy_grads, td_error)
        network, opt_state, step_size, update_norm = self._updated(state, td_error, trace)

        of_stream = partial(self._differentiated, network)
        axes = Evaluation(loss=0, grads=0, carry=1, outputs=0)  # type: ignore[arg-type]
        found, entropy_grads = self._each(of_stream, (1, 0, 0, 0), (axes, 0))(state.carry, x, noise, outcome.done)
        output = found.outputs[..., 0, :]
        keep = outcome.discount * self.trace_decay
        # Where an error is missing, later ones say nothing of what came before it.
        cut = outcome.done | ~outcome.known | self._each(self._cuts_trace)(output, noise)
        keep = jnp.where(cut, 0.0, keep)
        after = state._replace(
            network=network,
            opt_state=opt_state,
            carry=found.carry,
            trace=jax.tree.map(lambda z, g: self._along(keep, z) * z + g, trace, found.grads),
            entropy_grads=entropy_grads,
            value=self._each(self._value)(output, noise),
            outcome=outcome._replace(known=none, done=none, awaited=~none),
            observations=observations,
            rewards=rewards,
            step=jnp.where(outcome.known.any(), optax.safe_increment(state.step), state.step),
            key=key,
        )
        sensitivities = eqx.filter(found.carry.e, eqx.is_inexact_array)
        sensitivity_norm = norm(sensitivities) if jax.tree.leaves(sensitivities) else jnp.zeros_like(update_norm)
        accepted = jnp.isfinite(update_norm) & jnp.isfinite(norm(after.trace)) & jnp.isfinite(sensitivity_norm)
        for values in (output, td_error, *jax.tree.leaves(found.carry.h)):
            accepted &= jnp.isfinite(values).all()
        # What has ended needs no further observation to be learned from; of the rest, the next one is missing.
        missing = outcome._replace(known=outcome.known & outcome.done, awaited=none)
        before = state._replace(outcome=missing, skipped=optax.safe_increment(state.skipped))
        # A refused call leaves no trace: every leaf of the state is chosen, so that nothing depends on a branch.
        info = AgentInfo(
            td_error=td_error,
            value=state.value,
            trace_norm=self._each(norm)(trace),
            sensitivity_norm=sensitivity_norm,
            step_size=step_size,
            update_norm=jnp.where(accepted, update_norm, 0.0),
            accepted=accepted,
        )
        chosen = optax.tree.where(accepted, after._replace(info=info), before._replace(info=info))
        return self._each(self._action)(output, noise), chosen

    def _with_entropy(self, trace: Network, entropy_grads: Network | None, td_error: Array) -> Network:
        """Add the gradient of the entropy with the sign of the error, so that the update always raises the entropy."""
        if entropy_grads is None:
            return trace
        sign = self._entropy_bonus * jnp.sign(td_error)
        return jax.tree.map(lambda z, g: z + self._along(sign, g) * g, trace, entropy_grads)

    def _updated(
        self, state: AgentState, td_error: Array, trace: Network
    ) -> tuple[Network, optax.OptState, Array, Array]:
        """Return network, optimiser state, step size of each stream and norm of the update."""
        step_size = jnp.ones_like(td_error)
        if isinstance(self.optimizer, ObGD):
            step_size = self._each(self.optimizer.step_size)(td_error, trace)
            updates = self._mean(step_size * td_error, trace)
            return optax.apply_updates(state.network, updates), None, step_size, norm(updates)
        updates, opt_state = self.optimizer.update(self._mean(-td_error, trace), state.opt_state, state.network)
        # Where nothing is known the optimiser must not move either.
        moves = state.outcome.known.any()
        updates = jax.tree.map(lambda leaf: jnp.where(moves, leaf, 0.0), updates)
        opt_state = optax.tree.where(moves, opt_state, state.opt_state)
        return optax.apply_updates(state.network, updates), opt_state, step_size, norm(updates)

    def _mean(self, weights: Array, trace: Network) -> Network:
        """Return the mean over streams of a weight times the trace."""
        if self.batch_size in (None, 1):
            return jax.tree.map(lambda z, p: weights.reshape(()) * z.reshape(p.shape), trace, self.network)
        return jax.tree.map(lambda z: jnp.tensordot(weights, z, 1) / self.batch_size, trace)

    def _along(self, weights: Array, leaf: Array) -> Array:
        """Return one weight for each stream in the shape that multiplies a leaf."""
        return weights.reshape(weights.shape + (1,) * (leaf.ndim - weights.ndim))


def _only(function: Callable, in_axes: Any, out_axes: Any) -> Callable:
    """Return what `jax.vmap` returns, for a batch of one stream: without its axis, which slows XLA down on a CPU."""

    def apply(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        inner = [
            jax.tree.map(lambda leaf, axis=axis: jnp.squeeze(leaf, axis), arg)
            for arg, axis in zip(args, axes, strict=True)
        ]
        found = function(*inner)
        return jax.tree.map(
            lambda axis, part: jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), part), out_axes, found
        )

    return apply
