"""What is refused, and the words that say why: one table for the room."""

import dataclasses
import functools
import re

import numpy as np
import pytest
from rl_cases import Walk, make_agent, make_network

import foretrace as ft
from foretrace import rl
from foretrace.rl import _gymnasium, _live
from foretrace.rl._config import TASKS, AgentConfig, RLConfig
from foretrace.rl._program import build

MAZE, CONDITIONING = rl.TMaze(), rl.TraceConditioning()
AGENT = functools.cache(make_agent)
masked = functools.partial(rl.Masked, MAZE)
predicted = functools.partial(
    RLConfig, **{"environment": CONDITIONING, "agent": AgentConfig("prediction")}
)


def solved(**given):
    return AgentConfig(**({"method": "sarsa", "optimizer": "lstd"} | given))


def step(state=None, transition=None, opt_state=AGENT, **given):
    state = AGENT().init() if state is None else state
    state = state if opt_state is AGENT else state._replace(opt_state=opt_state)
    given = rl.Transition(**({"observation": np.zeros(2), "reward": 0.0} | given))
    AGENT().step(state, given if transition is None else transition)


def evaluated(state=None, environment=rl.MemoryChain(8), episodes=2, method=None, **options):  # noqa: B008
    agent = AGENT(method)
    agent.evaluate(agent.init() if state is None else state, environment, episodes, **options)


def interacted(environment=None, **options):
    agent = make_agent(**options)
    list(rl.interact(agent, agent.init(), environment or Walk(), 4))


def walked(**wrong):
    interacted(Walk(**wrong))


def within(**wrong):
    """Take a step in an environment that is wrong, as a compiled program does."""
    live = _live.Live(lambda: Walk(wrong_from=1, **wrong), None)
    live.reset(0)
    live.step(0, 0, [], 0)


def agent_of_four(method):
    rl.Agent(make_network(2, 4), method, rule=ft.ONLINE)


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


def squares(method=None, network=None, **options):
    """Make an agent that learns by least squares."""
    method = method or rl.ValuePrediction()
    network = network or make_network(2, 1 if isinstance(method, rl.ValuePrediction) else 3, None)
    rl.Agent(network, method, **({"optimizer": rl.LSTD(), "rule": "reservoir"} | options))


def options_of(kind, prefix="", **given):
    """Return a row for each value of an option, whose message names both."""
    pairs = [(name, value) for name, values in given.items() for value in values]
    return [(kind, {name: value}, f"{prefix}{name}={value}") for name, value in pairs]


def each(call, name, *rows):
    """Return a row for each value of an argument."""
    return [(call, {name: value}, words) for value, words in rows]


VALUES = [
    *options_of(rl.MemoryChain, length=[0]),
    *options_of(rl.TMaze, corridor=[0], limit=[0]),
    *options_of(rl.TraceConditioning, interval=[0, 1, 2.0], pause=[0], distractors=[-1]),
    *options_of(rl.RepeatFirst, decks=[0]),
    *options_of(rl.RepeatPrevious, back=[-1, 51]),
    *options_of(rl.Gymnasium, limit=[0]),
    *options_of(rl.LSTD, "LSTD(", forget=[0.0, 1.1], prior=[0.0, np.inf]),
    *options_of(rl.ObGD, "ObGD(", kappa=[0]),
    *options_of(rl.ActorCritic, action_size=[0], entropy=[-1], actor_weight=[-1]),
    *options_of(rl.QLearning, epsilon=[1.1]),
    *options_of(make_agent, trace_decay=[1.1], discount=[-0.1], batch_size=[0]),
    *options_of(AgentConfig, "agent.", learning_rate=[-1.0, 0.0, np.nan, np.inf], kappa=[0.0]),
    *options_of(AgentConfig, "agent.", epsilon=[7.0, -0.1, np.nan], epsilon_steps=[0]),
    *options_of(AgentConfig, "agent.", discount=[1.1], trace_decay=[-0.1]),
    *options_of(AgentConfig, "agent.", entropy=[-1.0], actor_weight=[np.inf]),
    *options_of(solved, "agent.", learning_rate=[0.1], kappa=[3.0], scale_rewards=[True]),
    *options_of(solved, "agent.", method=["actor-critic"]),
    *options_of(RLConfig, steps=[0], seed=[-1], evaluation_episodes=[-1]),
    *options_of(RLConfig, environments=[2**31], checkpoint_every=[30], network=[None]),
    *each(
        masked,
        "hide",
        ((3,), "from 0 to 2"),
        ((-1,), "from 0 to 2"),
        ((1, 1), "different integers"),
        ((0, 1, 2), "not all 3"),
        ([1], "tuple of different integers"),
        ((True,), "tuple of different integers"),
        ((0.5,), "tuple of different integers"),
    ),
    *each(
        RLConfig,
        "environment",
        (CONDITIONING, "nothing to choose; use prediction"),
        (_gymnasium.as_environment(Walk()), "must be MemoryChain or"),
    ),
    *each(
        RLConfig,
        "agent",
        (AgentConfig("prediction"), "actions to choose"),
        (solved(), "rule=online does not fit agent.optimizer=lstd"),
    ),
    (
        lambda **given: RLConfig(MAZE, agent=solved(), rule="reservoir", **given),
        {"network": dataclasses.replace(TASKS["t-maze"].network, depth=3, glu=False)},
        "network.depth, network.glu does not fit agent.optimizer=lstd",
    ),
    *options_of(predicted, evaluation_episodes=[2]),
    *each(
        predicted, "agent", (AgentConfig("prediction", scale_rewards=True), "scale_rewards=True")
    ),
    (make_agent, {"actions": 1}, "logit for each of at least two"),
    (make_agent, {"method": rl.QLearning(), "actions": 1}, "expected one for each action"),
    *each(
        agent_of_four,
        "method",
        (rl.ValuePrediction(), "expected 1, the value"),
        (rl.ActorCritic(action_size=3), "a mean and a deviation for each element of an action: 7"),
    ),
    *each(
        squares,
        "method",
        (rl.ActorCritic(), "which learns values alone"),
        (Curious(), "which learns values alone"),
        (object.__new__(Delegating), "which learns values alone"),
    ),
    *each(squares, "rule", (ft.ONLINE, "rule=ONLINE) does not fit optimizer=LSTD")),
    *each(squares, "network", (make_network(2, 1, readout_size=3), "needs a linear decoder")),
    *each(step, "observation", (np.zeros(3), "shape (3,), expected (2,)")),
    *each(step, "observation", *((bad, f"observation holds {bad}") for bad in (np.nan, np.inf))),
    *each(step, "reward", *((bad, f"reward holds {bad}") for bad in (np.nan, np.inf))),
    *each(step, "reward", ([0.0], "shape (1,)"), (None, "give what the last action brought")),
    *each(step, "truncated", (True, "final_observation")),
    *each(step, "discount", (1.5, "discount holds 1.5")),
    *options_of(evaluated, "evaluate(", episodes=[0, 2.0], most_steps=[-1]),
    *each(evaluated, "most_steps", (3, "0 of 2 episodes ended within 3 steps")),
    *each(
        evaluated,
        "environment",
        (MAZE, "observations have 3 elements, the network 2 inputs"),
        (rl.Masked(MAZE, (0,)), "has 4 discrete actions, the agent 2"),
        (Walk(reward=np.nan), "is NaN or infinite at step 3"),
    ),
    *each(evaluated, "method", (rl.ValuePrediction(), "only predicts")),
    *each(interacted, "inputs", (3, "have 2 elements, the network 3 inputs")),
    *each(interacted, "actions", (3, "has 2 discrete actions, the agent 3")),
    *each(interacted, "batch_size", (2, "batch_size=2")),
    *each(walked, "observation", (np.array([0, np.inf]), "observation holds inf")),
    *each(walked, "reward", (np.nan, "reward holds nan")),
    *each(walked, "step", (4, "step() returned 4 values, expected (observation, reward")),
    *each(walked, "reset", (1, "reset() returned 1 values")),
    *(
        (call, {part: value}, words)
        for call in (walked, within)
        for part, value, words in (
            ("observation", np.zeros(3), "observation has shape (3,), expected (2,)"),
            ("observation", np.array(["1", "2"]), "holds no numbers"),
            ("observation", np.array([1j, 0]), "they are complex128"),
            ("reward", None, "reward is a ndarray that holds no numbers"),
            ("reward", np.zeros(2), "reward has shape (2,), expected ()"),
        )
    ),
    *each(
        checked,
        "spoil",
        (lambda s, t: (s, t._replace(reward=t.reward[None])), "reward has shape (1,)"),
        (lambda s, t: (s, t._replace(observation=t.observation[:1])), "the same at every step"),
        (lambda s, t: (s._replace(step=t.reward), t), "same structure, shapes and dtypes"),
    ),
]
TYPES = [
    *options_of(rl.LSTD, "LSTD(", prior=[True, None]),
    *each(
        squares,
        "optimizer",
        (rl.LSTD, "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
        (ft.kalman(), "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
    ),
    *each(squares, "method", (rl.Agent, "must be foretrace.rl.ActorCritic")),
    *each(step, "terminated", (1, "terminated is int64, expected booleans")),
    *each(step, "first", (1, "first is int64, expected booleans")),
    *each(step, "transition", (np.zeros(2), "is a ndarray, expected foretrace.rl.Transition")),
    *each(step, "state", ((), "state is a tuple")),
    *each(step, "opt_state", (None, "an agent with another optimizer")),
    *each(evaluated, "state", (3, "state is a int")),
    *each(evaluated, "environment", (7, "evaluate(environment=7) must be")),
    *each(evaluated, "key", (3, "evaluate")),
    *each(walked, "terminated", (0, "terminated is int64, expected booleans")),
    *each(within, "terminated", (0, "terminated is int64, expected booleans")),
    *each(
        checked,
        "spoil",
        (lambda s, t: (s, t._replace(terminated=t.reward)), "is float32, expected bool"),
        (lambda s, t: (s, t._replace(reward=t.terminated)), "is bool, expected floating"),
        (lambda s, t: (s, tuple(t)), "Broken.step returned a tuple, expected"),
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
