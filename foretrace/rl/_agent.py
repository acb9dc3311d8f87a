"""What all agents share: two kinds of eligibility, one compiled call for each environment step.

The step in the order of the code:

    observation -> outputs, gradient of the step's objective, carry        one call of the engine: eligibility in time
    delta = reward + discount * value' - value                             known once the next observation is there
    theta <- theta + step * delta * z                                      `ObGD`, or an Optax optimiser on -delta * z
    z     <- discount * trace_decay * z + gradient                         eligibility in value
"""

import abc
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._cells.parts import check_key
from foretrace._credit.table import check_rule
from foretrace._engine.carry import init_carry
from foretrace._engine.data import Data
from foretrace._engine.forward import forward
from foretrace._engine.gradient import Evaluation, evaluate
from foretrace._learner.optimizer import norm
from foretrace._network import Network
from foretrace._recurrence.chunk import Carry
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, Bool, Float, PRNGKeyArray
from foretrace.rl._checks import check_flags, check_numbers, check_options
from foretrace.rl._moments import Moments, RewardScale
from foretrace.rl._overshoot import ObGD
from foretrace.rl._state import AgentInfo, AgentState, Outcome


class AbstractAgent(abc.ABC):
    """An agent that learns from every step of one stream, or of a batch of streams side by side, without replay.

    The loop is

        action, state = agent.act(state, observation)
        ...                                                    the environment takes the action
        state, info = agent.learn(state, reward, terminated, truncated, final_observation=…)

    `learn` notes what followed; the next `act` learns from it, because the value of the next observation is known only
    then. So an environment step is one compiled call, and a network is run and differentiated once. The value of an
    observation and its gradient belong to the parameters before the update of the same call: they are one update old
    when they are used first. Gradients in the trace and sensitivities in the carry are older, as always with traces;
    they are exact if the parameters stay as they are.

    Args:
        network: network to begin with.
        rule: learning rule or its name: what is differentiated through time.
        discount: discount of the value of the next state (gamma).
        trace_decay: decay of the trace of gradients beside the discount (lambda); 0 learns from the last step alone.
        optimizer: `ObGD`, or an Optax optimiser, which gets the mean of `-td_error * trace` over the streams.
        normalize_observations: True to subtract the running mean of observations and divide by their deviation.
        scale_rewards: True to divide rewards by the running deviation of their discounted sum.
        batch_size: number of environments side by side; None for one without a batch axis.

    Raises:
        TypeError: a network or an optimiser of another type.
        ValueError: outputs that do not fit the agent, a number outside [0, 1], an unknown rule, or batch_size below 1.
    """

    def __init__(
        self,
        network: Network,
        *,
        rule: LearningRule | str,
        discount: float = 0.99,
        trace_decay: float = 0.8,
        optimizer: ObGD | optax.GradientTransformation | None = None,
        normalize_observations: bool = False,
        scale_rewards: bool = False,
        batch_size: int | None = None,
    ):
        self.network, self.rule, self.batch_size = network, as_rule(rule), batch_size
        self.discount, self.trace_decay = discount, trace_decay
        self.optimizer = ObGD() if optimizer is None else optimizer
        self.normalize_observations, self.scale_rewards = normalize_observations, scale_rewards
        check_options(self)
        check_rule(network, self.rule, whole_sequences=False)
        self._dtype = network.decoder.linear.weight.dtype
        self._front = () if batch_size is None else (batch_size,)
        self._act = jax.jit(self._traced_act)
        self._final_value = jax.jit(self._traced_final_value)

    def init(self, key: PRNGKeyArray | None = None) -> AgentState:
        """Return the state before the first observation.

        Args:
            key: PRNG key of the actions, and of what a rule samples; `jax.random.key(0)` if not given.

        Raises:
            TypeError: not a PRNG key.
        """
        key = jax.random.key(0) if key is None else key
        check_key("init", key)
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)
        zeros, dtype = jnp.zeros(self._front, self._dtype), self._dtype
        trace = jax.tree.map(lambda leaf: jnp.zeros(self._front + leaf.shape, leaf.dtype), self.network)
        no, counter = jnp.zeros(self._front, bool), jnp.zeros((), jnp.int32)
        state = AgentState(
            network=self.network,
            opt_state=None if isinstance(self.optimizer, ObGD) else self.optimizer.init(self.network),
            carry=init_carry(
                self.network,
                self.rule,
                self.batch_size,
                key=jax.random.fold_in(key, 1) if self.rule.samples else None,
            ),
            trace=trace,
            entropy_grads=trace if self._entropy_bonus else None,
            value=zeros,
            outcome=Outcome(zeros, zeros, zeros, no, jnp.ones(self._front, bool), no),
            observations=Moments.zero((self.network.input_size,), dtype) if self.normalize_observations else None,
            rewards=RewardScale.zero(self._front, dtype) if self.scale_rewards else None,
            step=counter,
            skipped=counter,
            key=key,
            info=AgentInfo(zeros, zeros, zeros, jnp.zeros((), dtype), zeros, jnp.zeros((), dtype), jnp.array(True)),
        )
        return jax.tree.map(jnp.copy, state)

    def act(self, state: AgentState, observation: Any) -> tuple[Array, AgentState]:
        """Learn from what `learn` was told, and choose an action; one compiled call.

        Args:
            state: state from `init`, `learn` or `act`; it is not changed.
            observation: the next observation, (I,) or (B, I); the first of an episode after one has ended.

        Returns:
            The action of each environment, and the next state. If an observation, an error or an update is NaN or
            infinite where that is known only inside a compiled program, the state is the previous one but for
            `skipped`.

        Raises:
            TypeError: not a state of this agent.
            ValueError: an observation of another shape, or one that is NaN or infinite; the state is unharmed.
        """
        if not isinstance(state, AgentState):
            raise TypeError(f"state is a {type(state).__name__}, expected what init(), learn() or act() returned")
        observation = check_numbers("observation", observation, (*self._front, self.network.input_size), self._dtype)
        return self._act(state, observation)

    def learn(
        self,
        state: AgentState,
        reward: Any,
        terminated: Any = False,
        truncated: Any = False,
        *,
        discount: Any = 1.0,
        final_observation: Any = None,
    ) -> tuple[AgentState, AgentInfo]:
        """Note what followed the last action; the next `act` learns from it.

        Args:
            state: state from `act`; it is not changed.
            reward: reward of the action, or the cumulant that is predicted: a number, or (B,).
            terminated: whether the episode has ended in a state of value zero.
            truncated: whether the episode was cut, as gymnasium defines it: the last state still has a value.
            discount: factor beside the agent's own discount, such as the discount of this step of a general value
                function, where the agent's is 1.
            final_observation: last observation of the episode, whose value is needed where it was truncated.

        Returns:
            The next state, and what may be looked at of the newest update: that of the last `act`, for the step before
            this one.

        Raises:
            TypeError: flags that are not boolean.
            ValueError: another shape, a reward that is NaN or infinite, a discount outside [0, 1], or a truncated
                episode without its last observation; the state is unharmed.
        """
        number = partial(check_numbers, shape=self._front, dtype=self._dtype)
        reward, discount = number("reward", reward), number("discount", discount, low=0.0, high=1.0)
        terminated = check_flags("terminated", terminated, self._front)
        truncated = check_flags("truncated", truncated, self._front)
        final_value = state.outcome.final_value
        if final_observation is not None:
            shape = (*self._front, self.network.input_size)
            final_observation = check_numbers("final_observation", final_observation, shape, self._dtype)
            final_value = self._final_value_if(truncated, state, final_observation)
        elif isinstance(truncated, jax.core.Tracer) or (truncated.any() and not np.all(terminated >= truncated)):
            raise ValueError(
                "truncated is True without a final_observation: the value of the last observation stands for the rest "
                "of the episode; give learn(..., final_observation=observation), or terminated=True for a value of zero"
            )
        xp: Any = jnp if any(isinstance(x, jax.core.Tracer) for x in (reward, discount, terminated, truncated)) else np
        outcome = Outcome(
            reward=reward,
            discount=xp.where(terminated, xp.zeros_like(discount), discount * discount.dtype.type(self.discount)),
            final_value=final_value,
            truncated=truncated,
            done=terminated | truncated,
            known=xp.ones(self._front, bool),
        )
        if xp is jnp:
            # Inside a program nothing can be raised: a reward that is not finite is refused here.
            fine = jnp.isfinite(reward).all() & jnp.isfinite(discount).all() & jnp.isfinite(final_value).all()
            outcome = jax.tree.map(partial(jnp.where, fine), outcome, state.outcome)
            state = state._replace(skipped=jnp.where(fine, state.skipped, optax.safe_increment(state.skipped)))
        return state._replace(outcome=outcome), state.info

    @property
    @abc.abstractmethod
    def action_count(self) -> int:
        """Number of actions; 1 where there is nothing to choose."""

    @property
    def _entropy_bonus(self) -> float:
        """Factor of the entropy in the objective."""
        return 0.0

    @abc.abstractmethod
    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "K"]:
        """Draw what the choice of an action of one stream depends on beside the outputs."""

    @abc.abstractmethod
    def _action(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Array:
        """Return the action of one stream."""

    @abc.abstractmethod
    def _objective(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return what the trace collects the gradient of: the value, and the log-probability of the action."""

    @abc.abstractmethod
    def _value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value that the temporal-difference error is of."""

    def _next_value(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Float[Array, ""]:
        """Return the value of what follows a step. Default: the same."""
        return self._value(output, noise)

    @abc.abstractmethod
    def _last_value(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the value of the last observation of a truncated episode, where no action is chosen."""

    def _entropy(self, output: Float[Array, "O"]) -> Float[Array, ""]:
        """Return the entropy of the policy."""
        raise NotImplementedError

    def _cuts_trace(self, output: Float[Array, "O"], noise: Float[Array, "K"]) -> Bool[Array, ""]:
        """Say whether the trace of the past ends before this action."""
        return jnp.array(False)

    def _each(self, function: Any, in_axes: Any = 0, out_axes: Any = 0) -> Any:
        """Apply a function of one stream to all streams."""
        return function if self.batch_size is None else jax.vmap(function, in_axes, out_axes)

    def _seen(self, observations: Moments | None, observation: Array) -> Array:
        return observation if observations is None else observations.normalised(observation)

    def _final_value_if(self, truncated: Array, state: AgentState, observation: Array) -> Float[Array, "*B"]:
        """Run the network on last observations if an episode was truncated."""
        if isinstance(truncated, jax.core.Tracer):
            none = jnp.zeros(self._front, self._dtype)
            return lax.cond(truncated.any(), lambda: self._traced_final_value(state, observation), lambda: none)
        return self._final_value(state, observation) if truncated.any() else state.outcome.final_value

    def _traced_final_value(self, state: AgentState, observation: Array) -> Float[Array, "*B"]:
        def of_stream(carry: Carry, x: Array) -> Array:
            outputs, _ = forward(state.network, Carry(carry.h, None), x[None], keep_carry=False)
            return self._last_value(outputs[0])

        return self._each(of_stream, (1, 0))(state.carry, self._seen(state.observations, observation))

    def _differentiated(
        self, network: Network, carry: Carry, x: Array, noise: Array, reset: Array
    ) -> tuple[Evaluation, Network | None]:
        """Return outputs, gradient of the objective and carry of one stream, and the gradient of the entropy."""
        data = Data(x[None], noise[None], reset=reset[None])
        if not self._entropy_bonus:
            return evaluate(network, carry, data, rule=self.rule, loss=self._objective), None

        def weighted(weights: Array) -> Evaluation:
            def loss(output: Array, noise: Array) -> Array:
                return weights[0] * self._objective(output, noise) + weights[1] * self._entropy(output)

            return evaluate(network, carry, data, rule=self.rule, loss=loss)

        # The network is run once; only the backward pass is made for both.
        axes = Evaluation(loss=0, grads=0, carry=None, outputs=None)  # type: ignore[arg-type]
        both = jax.vmap(weighted, out_axes=axes)(jnp.eye(2, dtype=self._dtype))
        objective, entropy = (jax.tree.map(lambda leaf, i=i: leaf[i], both.grads) for i in range(2))
        return both._replace(loss=both.loss[0], grads=objective), entropy

    def _traced_act(self, state: AgentState, observation: Array) -> tuple[Array, AgentState]:
        outcome, network = state.outcome, state.network
        observations = state.observations
        if observations is not None:
            observations = observations.including(observation.reshape(-1, self.network.input_size))
        x = self._seen(observations, observation)
        key, draw = jax.random.split(state.key)
        keys = draw if self.batch_size is None else jax.random.split(draw, self.batch_size)
        noise = self._each(partial(self._noise, step=state.step))(keys)
        of_stream = partial(self._differentiated, network)
        axes = Evaluation(loss=0, grads=0, carry=1, outputs=0)  # type: ignore[arg-type]
        found, entropy_grads = self._each(of_stream, (1, 0, 0, 0), (axes, 0))(state.carry, x, noise, outcome.done)
        output = found.outputs[..., 0, :]

        rewards, reward = state.rewards, outcome.reward
        if rewards is not None:
            moved = rewards.including(reward, self.discount, outcome.done)
            rewards = jax.tree.map(partial(jnp.where, outcome.known.any()), moved, rewards)
            reward = rewards.scaled(reward)
        following = self._each(self._next_value)(output, noise)
        following = jnp.where(outcome.truncated, outcome.final_value, following)
        td_error = jnp.where(outcome.known, reward + outcome.discount * following - state.value, 0.0)
        trace = self._with_entropy(state.trace, state.entropy_grads, td_error)
        network, opt_state, step_size, update_norm = self._updated(state, td_error, trace)

        keep = outcome.discount * self.trace_decay
        keep = jnp.where(outcome.done | self._each(self._cuts_trace)(output, noise), 0.0, keep)
        after = state._replace(
            network=network,
            opt_state=opt_state,
            carry=found.carry,
            trace=jax.tree.map(lambda z, g: self._along(keep, z) * z + g, trace, found.grads),
            entropy_grads=entropy_grads,
            value=self._each(self._value)(output, noise),
            outcome=outcome._replace(known=jnp.zeros_like(outcome.known), done=jnp.zeros_like(outcome.done)),
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
        before = state._replace(skipped=optax.safe_increment(state.skipped))
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
        chosen = jax.tree.map(partial(jnp.where, accepted), after._replace(info=info), before._replace(info=info))
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
        opt_state = jax.tree.map(partial(jnp.where, moves), opt_state, state.opt_state)
        return optax.apply_updates(state.network, updates), opt_state, step_size, norm(updates)

    def _mean(self, weights: Array, trace: Network) -> Network:
        """Return the mean over streams of a weight times the trace."""
        if self.batch_size is None:
            return jax.tree.map(lambda z: weights * z, trace)
        return jax.tree.map(lambda z: jnp.tensordot(weights, z, 1) / self.batch_size, trace)

    def _along(self, weights: Array, leaf: Array) -> Array:
        """Return one weight for each stream in the shape that multiplies a leaf."""
        return weights.reshape(weights.shape + (1,) * (leaf.ndim - weights.ndim))
