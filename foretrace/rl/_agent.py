"""What all agents share: their options, and the loop of `act` and `learn`.

The compiled step is in `_step.py`; what tells agents apart is in `_method.py`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._cells.parts import check_key, is_key
from foretrace._credit.table import check_rule
from foretrace._engine.carry import init_carry, is_finite
from foretrace._network import Network
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._checks import check_flags, check_numbers, check_options
from foretrace.rl._moments import Moments, RewardScale
from foretrace.rl._overshoot import ObGD
from foretrace.rl._state import AgentInfo, AgentState, Outcome
from foretrace.rl._step import LearningStep

LEARNING_RATE = 3e-4
"""Learning rate of Adam where no optimiser is given."""


class AbstractAgent(LearningStep):
    """An agent that learns from every step of one stream, or of a batch of streams side by side, without replay.

    The loop is

        action, state = agent.act(state, observation)
        ...                                                    the environment takes the action
        state, info = agent.learn(state, reward, terminated, truncated, final_observation=…)

    `learn` notes what followed; the next `act` learns from it, because the value of the next observation is known only
    then. So an environment step is one compiled call: it runs the network for that value, updates, and runs and
    differentiates the network again with the new parameters. Gradients in the trace belong to the parameters of their
    time, and sensitivities in the carry are as stale as in any real-time recurrent learning; both are exact if the
    parameters stay as they are.

    Args:
        network: network to begin with.
        rule: learning rule or its name: what is differentiated through time.
        discount: discount of the value of the next state (gamma).
        trace_decay: decay of the trace of gradients beside the discount (lambda); 0 learns from the last step alone.
        optimizer: `ObGD`, or an Optax optimiser, which gets the mean of `-td_error * trace` over the streams. Default:
            Adam at 3e-4 (docs/agents.md has what it reached).
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
        self.network: Network = network
        self.rule: LearningRule = as_rule(rule)
        self.batch_size: int | None = batch_size
        self.discount: float = discount
        self.trace_decay: float = trace_decay
        self.optimizer: ObGD | optax.GradientTransformation = (
            optax.adam(LEARNING_RATE) if optimizer is None else optimizer
        )
        self.normalize_observations: bool = normalize_observations
        self.scale_rewards: bool = scale_rewards
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
        if not is_key(key):
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
            outcome=Outcome(zeros, zeros, zeros, no, ~no, no, no),
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
            `skipped`, and within an episode the step before it is not learned from: its next observation is missing.
            What is taken instead, and its reward, belong to no observation that the agent has seen, so that `learn`
            leaves them out until an observation is accepted.

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

        Each action has one outcome. After the end of an episode, further calls change nothing until `act` has accepted
        the first observation of the next one, which learns from the last reward. A second call for one action within
        an episode is an error; inside a compiled program, where nothing can be raised, the first reward is kept.

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
            ValueError: another shape, a reward that is NaN or infinite, a discount outside [0, 1], a truncated
                episode without its last observation, or a second call for one action; the state is unharmed.
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
        old = state.outcome
        given = (reward, discount, terminated, truncated, old.done)
        xp: Any = jnp if any(isinstance(x, jax.core.Tracer) for x in given) else np
        noted = Outcome(
            reward=reward,
            discount=xp.where(terminated, xp.zeros_like(discount), discount * discount.dtype.type(self.discount)),
            final_value=final_value,
            truncated=truncated,
            done=terminated | truncated,
            known=xp.ones(self._front, bool),
            awaited=xp.zeros(self._front, bool),
        )
        if xp is np:
            return state._replace(outcome=_noted(old, noted)), state.info
        # Inside a program nothing can be raised: a reward that is not finite is refused here.
        fine = is_finite((noted.reward, noted.discount, noted.final_value))
        # Its episodes end all the same.
        noted = optax.tree.where(fine, noted, old._replace(done=old.done | noted.done))
        skipped = jnp.where(fine, state.skipped, optax.safe_increment(state.skipped))
        return state._replace(outcome=_kept(old, noted, jnp), skipped=skipped), state.info

    def _final_value_if(self, truncated: Array, state: AgentState, observation: Array) -> Float[Array, "*B"]:
        """Run the network on last observations if an episode was truncated."""
        if isinstance(truncated, jax.core.Tracer):
            none = jnp.zeros(self._front, self._dtype)
            return lax.cond(truncated.any(), lambda: self._traced_final_value(state, observation), lambda: none)
        return self._final_value(state, observation) if truncated.any() else state.outcome.final_value


def _noted(old: Outcome, new: Outcome) -> Outcome:
    """Return what is known of the last actions.

    Raises:
        ValueError: an action within an episode has an outcome already.
    """
    if np.all(np.asarray(old.awaited) & ~np.asarray(old.done)):
        return new
    if np.any(np.asarray(old.known) & ~np.asarray(old.done)):
        raise ValueError(
            "learn() was called twice for one action: each action has one outcome; give the next observation to act() "
            "first, with finite numbers in place of those that are not"
        )
    return _kept(old, new, np)


def _kept(old: Outcome, new: Outcome, xp: Any) -> Outcome:
    """Return the new outcomes of those actions that wait for one."""
    # Of other actions only the end of the episode counts; what is known then says nothing of the next observation.
    ends = new.done & ~old.done
    others = old._replace(done=old.done | ends, known=old.known & ~ends)
    return jax.tree.map(partial(xp.where, old.awaited & ~old.done), new, others)
