"""What is refused, and the words that say why: one table for the room."""

import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import Walk, make_agent, make_network

import foretrace as ft
from foretrace import rl
from foretrace.rl import _gymnasium, _live
from foretrace.rl._config import TASKS, AgentConfig, RLConfig
from foretrace.rl._program import build

AGENT = functools.cache(make_agent)
CHAIN, MAZE, CONDITIONING = rl.MemoryChain(8), rl.TMaze(), rl.TraceConditioning()
SQUARES = AgentConfig(optimizer="lstd", method="sarsa")
PREDICTION = AgentConfig("prediction")
LEAST = {"rule": "reservoir", "optimizer": rl.LSTD()}
SEEN = np.zeros(2)
OTHER = dataclasses.replace(TASKS["t-maze"].network, depth=3, glu=False)


def step(state=None, **given):
    """Take a step of an agent."""
    given = {"observation": np.zeros(2), "reward": 0.0} | given
    AGENT().step(AGENT().init() if state is None else state, rl.Transition(**given))


def evaluated(state=None, environment=CHAIN, episodes=2, **options):
    AGENT().evaluate(AGENT().init() if state is None else state, environment, episodes, **options)


def interacted(environment=None, **options):
    agent = make_agent(**options)
    list(rl.interact(agent, agent.init(), Walk() if environment is None else environment, 4))


def within(**wrong):
    """Take a step in an environment that is wrong, as a compiled program does."""
    live = _live.Live(lambda: Walk(wrong_from=1, **wrong), None)
    live.reset(0)
    live.step(0, 0, [], 0)


class Broken(rl.MemoryChain):
    """A memory chain with one thing that does not fit."""

    def step(self, state, action, key):
        return self.spoil(*super().step(state, action, key))


def checked(spoil):
    environment = Broken(2)
    object.__setattr__(environment, "spoil", spoil)
    rl.check_environment(environment)


class Curious(rl.ValuePrediction):
    """Has a bonus that is not a value."""

    entropy = 0.1


class Delegating:
    """Has what the step asks for, but not by inheritance."""

    entropy = 0.0

    def __getattr__(self, name):
        return getattr(rl.ActorCritic(), name)


def squares(outputs=1, method=None, **options):
    """Make an agent that learns by least squares."""
    method = rl.ValuePrediction() if method is None else method
    options = {"optimizer": rl.LSTD(), "rule": "reservoir"} | options
    rl.Agent(make_network(2, outputs, None), method, **options)


def options_of(kind, prefix, given):
    return [
        (kind, {name: value}, f"{prefix}{name}={value}")
        for name, values in given.items()
        for value in values
    ]


VALUES = [
    *options_of(rl.MemoryChain, "", {"length": (0,)}),
    *options_of(rl.TMaze, "", {"corridor": (0,), "limit": (0,)}),
    *options_of(
        rl.TraceConditioning, "", {"interval": (0, 1, 2.0), "pause": (0,), "distractors": (-1,)}
    ),
    *options_of(rl.RepeatFirst, "", {"decks": (0,)}),
    *options_of(rl.RepeatPrevious, "", {"back": (-1, 51)}),
    *options_of(rl.Gymnasium, "", {"limit": (0,)}),
    *options_of(rl.LSTD, "LSTD(", {"forget": (0.0, 1.1), "prior": (0.0, np.inf)}),
    *options_of(rl.ObGD, "ObGD(", {"kappa": (0,)}),
    *options_of(rl.ActorCritic, "", {"action_size": (0,), "entropy": (-1,), "actor_weight": (-1,)}),
    *options_of(rl.QLearning, "", {"epsilon": (1.1,)}),
    *options_of(make_agent, "", {"trace_decay": (1.1,), "discount": (-0.1,), "batch_size": (0,)}),
    *options_of(
        AgentConfig,
        "agent.",
        {
            "learning_rate": (-1.0, 0.0, np.nan, np.inf),
            "epsilon": (7.0, -0.1, np.nan),
            "epsilon_steps": (0,),
            "kappa": (0.0,),
            "discount": (1.1,),
            "trace_decay": (-0.1,),
            "entropy": (-1.0,),
            "actor_weight": (np.inf,),
        },
    ),
    (AgentConfig, {"optimizer": "lstd"}, "agent.method=actor-critic does not fit"),
    *(
        (functools.partial(AgentConfig, "sarsa", optimizer="lstd"), given, "does not fit agent.opt")
        for given in ({"learning_rate": 0.1}, {"kappa": 3.0}, {"scale_rewards": True})
    ),
    *(
        (functools.partial(rl.Masked, MAZE), {"hide": hide}, words)
        for hide, words in (
            ((3,), "from 0 to 2"),
            ((-1,), "from 0 to 2"),
            ((1, 1), "different positions"),
            ((0, 1, 2), "hides all 3"),
            ([1], "tuple of integers"),
            ((True,), "tuple of integers"),
        )
    ),
    (RLConfig, {"environment": MAZE, "hide": (0.5,)}, "hide"),
    (RLConfig, {"environment": CONDITIONING}, "nothing to choose; use prediction"),
    (RLConfig, {"environment": MAZE, "agent": PREDICTION}, "actions to choose"),
    (RLConfig, {"log_every": 20, "checkpoint_every": 30}, "checkpoint_every=30 must be a multiple"),
    (RLConfig, {"steps": 0}, "steps=0 must be at least 1"),
    (RLConfig, {"environments": 2**31}, "environments=2147483648 must be below 2^31"),
    (RLConfig, {"seed": -1}, "seed=-1 must lie in [0, 2^31)"),
    (RLConfig, {"evaluation_episodes": -1}, "evaluation_episodes=-1 must lie in [0, 2^31)"),
    (
        RLConfig,
        {"environment": CONDITIONING, "agent": PREDICTION, "evaluation_episodes": 2},
        "evaluation_episodes=2 does not fit agent.method=prediction",
    ),
    (
        RLConfig,
        {"environment": CONDITIONING, "agent": AgentConfig("prediction", scale_rewards=True)},
        "scale_rewards=True does not fit agent.method=prediction",
    ),
    (RLConfig, {"environment": MAZE, "agent": SQUARES}, "rule=online does not fit"),
    (
        RLConfig,
        {"environment": MAZE, "agent": SQUARES, "rule": "reservoir", "network": OTHER},
        "network.depth, network.glu does not fit agent.optimizer=lstd",
    ),
    (RLConfig, {"network": None}, "network=None does not fit agent.optimizer=adam"),
    (RLConfig, {"environment": _gymnasium.as_environment(Walk())}, "must be MemoryChain or"),
    (make_agent, {"rule": "nothing"}, "nothing"),
    (make_agent, {"method": rl.ActorCritic(), "actions": 1}, "logit for each of at least two"),
    (make_agent, {"method": rl.QLearning(), "actions": 1}, "expected one for each action"),
    (squares, {"outputs": 2}, "expected 1, the value"),
    (squares, {"outputs": 5, "method": rl.ActorCritic(action_size=3)}, "an action: 7"),
    *(
        (squares, {"outputs": outputs, "method": method}, "which learns values alone")
        for outputs, method in (
            (3, rl.ActorCritic()),
            (1, Curious()),
            (3, object.__new__(Delegating)),
        )
    ),
    (squares, {"rule": ft.ONLINE}, "rule=ONLINE) does not fit optimizer=LSTD"),
    (
        lambda **options: rl.Agent(make_network(2, 1, **options), rl.ValuePrediction(), **LEAST),
        {"readout_size": 3},
        "needs a linear decoder",
    ),
    (step, {"truncated": True}, "final_observation"),
    (step, {"observation": np.zeros(3)}, "shape (3,), expected (2,)"),
    (step, {"reward": [0.0]}, "shape (1,)"),
    (step, {"reward": None}, "has no reward: give what the last action brought"),
    (step, {"discount": 1.5}, "discount holds 1.5"),
    *(
        (step, {part: value}, f"{part} holds {value}")
        for part, value in itertools.product(("reward", "observation"), (np.nan, np.inf))
    ),
    (evaluated, {"episodes": 0}, "evaluate(episodes=0)"),
    (evaluated, {"episodes": 2.0}, "evaluate(episodes=2.0)"),
    (evaluated, {"most_steps": -1}, "evaluate(most_steps=-1)"),
    (evaluated, {"most_steps": 3}, "0 of 2 episodes ended within 3 steps"),
    (evaluated, {"environment": MAZE}, "observations have 3 elements, the network 2 inputs"),
    (evaluated, {"environment": rl.Masked(MAZE, (0,))}, "has 4 discrete actions, the agent 2"),
    (evaluated, {"environment": Walk(reward=np.nan)}, "is NaN or infinite at step 3"),
    (
        lambda method: make_agent(method).evaluate(make_agent(method).init(), CONDITIONING, 1),
        {"method": rl.ValuePrediction()},
        "only predicts",
    ),
    (interacted, {"inputs": 3}, "have 2 elements, the network 3 inputs"),
    (interacted, {"actions": 3}, "has 2 discrete actions, the agent 3"),
    (interacted, {"batch_size": 2}, "batch_size=2"),
    *(
        (interacted, {"environment": Walk(**{part: value})}, words)
        for part, value, words in (
            ("observation", np.zeros(3), "observation has shape (3,), expected (2,)"),
            ("observation", np.array([0, np.inf]), "observation holds inf"),
            ("observation", np.array(["1", "2"]), "holds no numbers"),
            ("observation", np.array([1j, 0]), "they are complex128"),
            ("reward", np.nan, "reward holds nan"),
            ("reward", None, "reward"),
            ("reward", np.zeros(2), "reward has shape (2,), expected ()"),
            ("step", 4, "step() returned 4 values, expected (observation, reward"),
            ("reset", 1, "reset() returned 1 values"),
        )
    ),
    (within, {"observation": np.zeros(3)}, "an observation of 3 elements, its space has 2"),
    (within, {"observation": np.array(["a", "b"])}, "as observation, expected real numbers"),
    (within, {"reward": np.zeros(2)}, "a reward of shape (2,)"),
    (within, {"reward": None}, "as reward, expected real numbers"),
    *(
        (checked, {"spoil": spoil}, words)
        for spoil, words in (
            (lambda s, t: (s, t._replace(reward=t.reward[None])), "reward has shape (1,)"),
            (lambda s, t: (s, t._replace(observation=t.observation[:1])), "the same at every step"),
            (lambda s, t: (s._replace(step=t.reward), t), "same structure, shapes and dtypes"),
        )
    ),
]

TYPES = [
    *options_of(rl.LSTD, "LSTD(", {"prior": (True, None)}),
    (squares, {"optimizer": rl.LSTD}, "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
    (squares, {"optimizer": ft.kalman()}, "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
    (squares, {"method": rl.Agent}, "must be foretrace.rl.ActorCritic"),
    (step, {"terminated": 1}, "terminated is int64, expected booleans"),
    (step, {"first": 1}, "first is int64, expected booleans"),
    (lambda **given: AGENT().step(AGENT().init(), **given), {"transition": SEEN}, "is a ndarray"),
    (step, {"state": ()}, "state is a tuple"),
    (
        lambda **part: step(AGENT().init()._replace(**part)),
        {"opt_state": None},
        "an agent with another optimizer",
    ),
    (evaluated, {"state": 3}, "state is a int"),
    (evaluated, {"environment": 7}, "evaluate(environment=7) must be"),
    (evaluated, {"key": 3}, "evaluate"),
    (interacted, {"environment": Walk(terminated=0)}, "terminated is int64, expected booleans"),
    (within, {"terminated": 0}, "terminated is int64, expected booleans"),
    *(
        (checked, {"spoil": spoil}, words)
        for spoil, words in (
            (lambda s, t: (s, t._replace(terminated=t.reward)), "is float32, expected bool"),
            (lambda s, t: (s, t._replace(reward=t.terminated)), "is bool, expected floating"),
            (lambda s, t: (s, tuple(t)), "Broken.step returned a tuple, expected"),
        )
    ),
]


@pytest.mark.parametrize(
    ("error", "call", "given", "words"),
    [(error, *row) for error, rows in ((ValueError, VALUES), (TypeError, TYPES)) for row in rows],
)
def test_what_does_not_fit_is_named(error, call, given, words):
    with pytest.raises(error, match=re.escape(words)):
        call(**given)


@pytest.mark.full
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (rl.Gymnasium("Chess-v9"), "Gymnasium(id='Chess-v9') cannot be made"),
        (rl.Gymnasium("Pendulum-v1"), "has continuous actions"),
        (rl.Gymnax("Chess"), "unknown; choose one of"),
    ],
)
def test_environments_that_cannot_be_run_are_named(environment, words):
    pytest.importorskip("gymnax")
    pytest.importorskip("gymnasium")
    with pytest.raises(ValueError, match=re.escape(words)):
        build(RLConfig(environment=environment))


def test_the_ends_of_the_ranges_are_allowed():
    ends = {"epsilon": (0.0, 1.0), "discount": (0.0, 1.0), "trace_decay": (0.0, 1.0)}
    ends |= {"epsilon_steps": (1,), "entropy": (0.0,), "actor_weight": (0.0,)}
    for name, values in ends.items():
        for value in values:
            AgentConfig(**{name: value})
    assert rl.RepeatPrevious(back=50).card_count == 52
