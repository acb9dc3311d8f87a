"""An agent: a network, a method of learning, and options that all methods share."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._cells.parts import wrapped_key
from foretrace._credit.table import check_rule
from foretrace._engine.carry import init_carry
from foretrace._learner.optimizer import adam
from foretrace._network import AbstractNetwork
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, PRNGKeyArray
from foretrace.rl._checks import check_evaluation, check_options
from foretrace.rl._evaluation import Episodes, episodes_of, play
from foretrace.rl._gymnasium import as_environment
from foretrace.rl._learning_step import learn_and_act
from foretrace.rl._live import MOST_STEPS, errors_of_python
from foretrace.rl._method import Method
from foretrace.rl._moments import Moments, RewardScale
from foretrace.rl._options import Options
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._transition import Final, Outcome, Transition, check_transition
from foretrace.rl._update import Update, as_update

LEARNING_RATE = 3e-4
"""Learning rate of Adam if no optimiser is given."""


class Agent(Options):
    """An agent that learns from every step of one stream, or of a batch of streams, without replay.

    The loop is:

        action, state, info = agent.step(agent.init(), Transition(observation, first=True))
        ...                                                 the environment takes the action
        action, state, info = agent.step(state, Transition(observation, reward, terminated))

    A step is one compiled call. It runs the network for the value of the new observation, updates
    the parameters, and then runs and differentiates the network again. The gradients in the trace
    and the sensitivities in the carry belong to the parameters with which they were computed. They
    are exact while the parameters do not change, and stale after an update, as in any real-time
    recurrent learning.

    Args:
        network: initial network.
        method: method of learning, `ActorCritic`, `QLearning` or `ValuePrediction` with its
            options.
        rule: learning rule or its name, which determines the paths that are differentiated through
            time.
        discount: discount of the value of the next state (gamma).
        trace_decay: decay of the trace of gradients, in addition to the discount (lambda). With 0,
            the agent learns only from the last step.
        optimizer: `ObGD`; or an Optax optimiser, which gets the mean of `-td_error * trace` over
            the streams; or `LSTD`, which solves only for the decoder. Default: Adam with a learning
            rate of 3e-4 (docs/agents.md shows its results).
        normalize_observations: whether to subtract the running mean from observations and divide
            them by their running standard deviation.
        scale_rewards: whether to divide rewards by the running standard deviation of their
            discounted sum.
        batch_size: number of environments side by side. Default: one environment, without a batch
            axis.

    Raises:
        TypeError: the network, the method or the optimiser has the wrong type.
        ValueError: the outputs do not fit the method, a number is outside of its range, the rule is
            unknown, batch_size is below 1, or `LSTD` cannot learn with the method, the rule or the
            decoder.
    """

    def __init__(
        self,
        network: AbstractNetwork,
        method: Method,
        *,
        rule: LearningRule | str,
        discount: float = 0.99,
        trace_decay: float = 0.8,
        optimizer: Update | optax.GradientTransformation | None = None,
        normalize_observations: bool = False,
        scale_rewards: bool = False,
        batch_size: int | None = None,
    ):
        self.network = network
        self.method = method
        self.rule: LearningRule = as_rule(rule)
        self.batch_size = batch_size
        self.discount = discount
        self.trace_decay = trace_decay
        given = adam(LEARNING_RATE) if optimizer is None else optimizer
        self.optimizer: Update = as_update(type(self).__name__, given)
        self.normalize_observations = normalize_observations
        self.scale_rewards = scale_rewards
        check_options(self)
        check_rule(network, self.rule, whole_sequences=False)
        self._dtype = network.dtype
        self._front = () if batch_size is None else (batch_size,)
        self._step = jax.jit(partial(learn_and_act, self))
        self._play = jax.jit(partial(play, self), static_argnums=(0, 1, 2))
        init = partial(self.optimizer.init, front=self._front)
        self._kept = type(jax.eval_shape(init, network))

    @property
    def action_count(self) -> int | None:
        """Number of actions; 1 if there is only a prediction, None for continuous actions."""
        return self.method.action_count(self.network.output_size)

    def init(self, key: PRNGKeyArray | None = None) -> AgentState:
        """Return the state before the first observation.

        Args:
            key: PRNG key of the actions and of the modules that a rule samples. Default:
                `jax.random.key(0)`.

        Raises:
            TypeError: `key` is no PRNG key.
        """
        key = wrapped_key("init", jax.random.key(0) if key is None else key)
        front, dtype, network = self._front, self._dtype, self.network
        part = self.optimizer.trained(network)
        trace = jax.tree.map(lambda leaf: jnp.zeros(front + leaf.shape, leaf.dtype), part)
        counter, value = jnp.zeros((), jnp.int32), jnp.zeros(front, dtype)
        inputs, never = (network.input_size,), jnp.zeros(front, bool)
        final = Final(value, trace if self.optimizer.asks_following else None)
        sampled = jax.random.fold_in(key, 1) if self.rule.samples else None
        state = AgentState(
            network=network,
            opt_state=self.optimizer.init(network, front),
            carry=init_carry(network, self.rule, self.batch_size, key=sampled),
            trace=trace,
            entropy_grads=trace if self.method.entropy else None,
            value=value,
            outcome=Outcome(value, value, final, truncated=never, done=~never, known=never),
            awaited=never,
            observations=Moments.zero(inputs, dtype) if self.normalize_observations else None,
            rewards=RewardScale.zero(front, dtype) if self.scale_rewards else None,
            step=counter,
            skipped=counter,
            key=key,
        )
        return jax.tree.map(jnp.copy, state)

    def step(
        self, state: AgentState, transition: Transition
    ) -> tuple[Array, AgentState, AgentInfo]:
        """Learn from the outcome of the last action, and choose the next one, in a compiled call.

        Args:
            state: state from `init` or `step`. It is not changed.
            transition: next observation, and outcome of the last action.

        Returns:
            The action of each environment, the next state, and information about the update.

            No error can be raised inside a compiled program. A step whose observation, error or
            update is NaN or infinite is refused there: the state does not change, except for
            `skipped` and for the ends of episodes. Two outcomes are then not learned from. Within
            an episode, the step before the refused step lacks its next observation. The action that
            is returned for the refused step belongs to no observation, so its reward is ignored. A
            reward that is NaN or infinite is also ignored.

        Raises:
            TypeError: the state belongs to another agent, the transition is no `Transition`, or its
                flags are not boolean.
            ValueError: a shape is wrong, an observation or reward is NaN or infinite, the discount
                is outside [0, 1], the reward is missing, or a truncated episode has no last
                observation. The state is not changed.
        """
        self._check_state(state)
        given = check_transition(transition, self._front, self.network.input_size, self._dtype)
        return self._step(state, given)

    def evaluate(
        self,
        state: AgentState,
        environment: Any,
        episodes: int,
        *,
        greedy: bool = True,
        key: PRNGKeyArray | None = None,
        most_steps: int | None = None,
    ) -> Episodes:
        """Act in new episodes without learning. The program is compiled once for each environment.

        An environment of gymnasium is copied at each call, and its program is compiled again. By
        its id, it is compiled once.

        The moments of observations do not change. The environments of a batch play equal numbers of
        episodes. Each environment plays its first episodes to their end, however long they are.

        Args:
            state: state from `init` or `step`. It is not changed.
            environment: an `Environment`, an environment of gymnasium, or the id of one.
            episodes: number of episodes.
            greedy: whether to take the action that seems best: the most probable action, the mean
                of a Gaussian, or the action with the largest value. If False, actions are chosen as
                in learning: a sample of the policy, or a random action with the present
                probability. Default: True.
            key: PRNG key of the environments and the actions. Default: `jax.random.key(0)`.
            most_steps: maximum number of steps of each environment. Default: 10,000 for each of its
                episodes.

        Returns:
            The return (without discount) and the length of each episode.

        Raises:
            TypeError: the state belongs to another agent, `environment` is no environment, or `key`
                is no PRNG key.
            ValueError: a number is below one, the environment does not fit the agent, the method
                chooses no actions, too few episodes ended within `most_steps`, or a reward or
                output is NaN or infinite.

        >>> import foretrace as ft, jax
        >>> cell = ft.LRU.factory(state_size=4)
        >>> network = ft.Network(2, 3, model_size=4, depth=1, cell=cell, key=jax.random.key(0))
        >>> agent = ft.rl.Agent(network, ft.rl.ActorCritic(), rule=ft.ONLINE)
        >>> agent.evaluate(agent.init(), ft.rl.MemoryChain(length=3), 5).lengths.tolist()
        [4, 4, 4, 4, 4]
        """
        self._check_state(state)
        environment = as_environment(environment)
        check_evaluation(self, environment, episodes, most_steps)
        key = wrapped_key("evaluate", jax.random.key(0) if key is None else key)
        streams = self.batch_size or 1
        wanted = np.full(streams, episodes // streams, np.int32)
        wanted[: episodes % streams] += 1
        most = int(wanted[0])
        limit = MOST_STEPS * most if most_steps is None else most_steps
        with errors_of_python():
            played = self._play(environment, most, greedy, state, wanted, limit, key)
            return episodes_of(jax.device_get(played), wanted, limit)

    def _check_state(self, state: Any) -> None:
        if not isinstance(state, AgentState):
            raise TypeError(
                f"state is a {type(state).__name__}, expected what init() or step() returned"
            )
        if type(state.opt_state) is not self._kept:
            raise TypeError("state is of an agent with another optimizer")
