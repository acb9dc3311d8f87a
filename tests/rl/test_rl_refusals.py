"""What is refused, and the words that say why: one table for the room."""

import dataclasses
import functools
import re
import types

import numpy as np
import pytest
from rl_cases import Space, Walk, make_agent, make_network

import foretrace as ft
from foretrace import rl
from foretrace.rl import _gymnasium, _live
from foretrace.rl._config import TASKS, AgentConfig, RLConfig
from foretrace.rl._program import build

MAZE, CONDITIONING = rl.TMaze(), rl.TraceConditioning()
masked = functools.partial(rl.Masked, MAZE)


def learns(environment=MAZE, run=None, **agent):
    """Make the agent of a run with options of the agent."""
    build(RLConfig(environment, agent=AgentConfig(**agent), **(run or {})))


predicted = functools.partial(learns, CONDITIONING, method="prediction")
solved = functools.partial(learns, run={"rule": "reservoir"}, optimizer="lstd", method="sarsa")
wide = functools.partial(rl.Agent, make_network(2, 4), rule=ft.ONLINE)
BY_SQUARES = {"optimizer": rl.LSTD(), "rule": "reservoir"}
squares = functools.partial(make_agent, cell=None, **BY_SQUARES)
hidden = functools.partial(rl.Agent, make_network(2, 1, readout_size=3), **BY_SQUARES)
STEERED = {"environment": Walk(action_space=Space(shape=(3,))), "method": rl.ActorCritic(2)}
SHAPELESS, MANY = Walk(), types.SimpleNamespace(shape=(2,), nvec=(2, 3))
SHAPELESS.observation_space = Space(n=2)


def step(state=None, transition=None, **given):
    given = rl.Transition(**({"observation": np.zeros(2), "reward": 0.0} | given))
    make_agent().step(
        make_agent().init() if state is None else state, given if transition is None else transition
    )


def evaluated(state=None, environment=rl.MemoryChain(8), episodes=2, method=None, **options):  # noqa: B008
    agent = make_agent(method)
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
    live.step(np.zeros(3, np.int32))


class Broken(rl.MemoryChain):
    """A memory chain with one thing that does not fit."""

    def step(self, state, action, key):
        return self.spoil(*super().step(state, action, key))


def checked(spoil):
    environment = Broken(2)
    object.__setattr__(environment, "spoil", spoil)
    rl.check_environment(environment)


class Boundless(rl.MemoryChain):
    """Says that its actions are continuous, and not within which bounds."""

    action_count = None


class Curious(rl.ValuePrediction):
    """Has a bonus that is not a value."""

    entropy = 0.1


def options_of(kind, prefix="", **given):
    """Return a row for each value of an option, whose message names both."""
    pairs = [(name, value) for name, values in given.items() for value in values]
    return [(kind, {name: value}, f"{prefix}{name}={value}") for name, value in pairs]


def each(call, *rows):
    """Return a row for each argument with a value, and the words about it."""
    return [(call, {name: value}, words) for name, value, words in rows]


LEAST = "which learns values alone"
OTHER = {"network": dataclasses.replace(TASKS["t-maze"].network, depth=3, glu=False)}
VALUES = [
    *options_of(rl.TMaze, corridor=[0]),
    *options_of(rl.TraceConditioning, interval=[1, 2.0], distractors=[-1]),
    *options_of(rl.RepeatPrevious, decks=[0], back=[51]),
    *options_of(masked, hide=[(3,), (-1,), (1, 1), (0, 1, 2), [1], (True,), (0.5,)]),
    *options_of(rl.LSTD, "LSTD(", forget=[0.0, 1.1], prior=[0.0, np.inf]),
    *options_of(rl.ObGD, "ObGD(", kappa=[0]),
    *options_of(rl.ActorCritic, action_size=[0]),
    *options_of(rl.QLearning, epsilon=[1.1]),
    *options_of(make_agent, trace_decay=[1.1], discount=[-0.1], batch_size=[0]),
    *options_of(learns, "agent.", learning_rate=[0.0, np.nan, np.inf], kappa=[3.0]),
    *options_of(learns, "agent.", epsilon=[-0.1], entropy=[-1.0], method=["prediction"]),
    *options_of(predicted, "agent.", method=["sarsa"], scale_rewards=[True]),
    *options_of(solved, "agent.", learning_rate=[0.1], scale_rewards=[True]),
    *options_of(RLConfig, steps=[0], seed=[-1], evaluation_episodes=[-1], environments=[2**31]),
    *each(
        predicted, ("run", {"evaluation_episodes": 2}, "evaluation_episodes=2 does not fit agent.")
    ),
    *each(learns, ("environment", _gymnasium.as_environment(Walk()), "must be MemoryChain or")),
    *each(
        solved,
        ("method", "actor-critic", f"{LEAST}; give QLearning(on_policy=True), which is"),
        ("run", {}, "rule=ONLINE) does not fit optimizer=LSTD"),
        ("run", OTHER, "network.depth, network.glu does not fit agent.optimizer=lstd"),
    ),
    *each(
        wide,
        ("method", rl.ValuePrediction(), "expected 1, the value"),
        ("method", rl.ActorCritic(3), "and a deviation for each element of an action: 7"),
    ),
    *each(make_agent, ("actions", 1, "logit for each of at least two")),
    (make_agent, {"method": rl.QLearning(), "actions": 1}, "expected one for each action"),
    *each(squares, ("method", rl.ActorCritic(), LEAST)),
    (squares, {"method": Curious(), "actions": 0}, LEAST),
    *each(hidden, ("method", rl.ValuePrediction(), "needs a linear decoder")),
    *each(
        step,
        ("observation", np.zeros(3), "shape (3,), expected (2,)"),
        ("observation", np.nan, "observation holds nan"),
        ("reward", np.inf, "reward holds inf"),
        ("reward", None, "give what the last action brought"),
        ("truncated", True, "final_observation"),
        ("discount", 1.5, "discount holds 1.5"),
    ),
    *options_of(evaluated, "evaluate(", episodes=[0, 2.0], most_steps=[-1]),
    *each(
        evaluated,
        ("most_steps", 3, "0 of 2 episodes ended within 3 steps"),
        ("environment", MAZE, "observations have 3 elements, the network 2 inputs"),
        ("environment", rl.Masked(MAZE, (0,)), "has 4 discrete actions, the agent 2"),
        ("environment", Boundless(8), "has continuous actions, the agent 2 discrete actions"),
        ("environment", Walk(reward=np.nan), "is NaN or infinite at step 3"),
        ("method", rl.ValuePrediction(), "only predicts"),
    ),
    *(
        (call, STEERED, "actions of 3 numbers, the agent actions")
        for call in (evaluated, interacted)
    ),
    *each(
        interacted,
        ("inputs", 3, "have 2 elements, the network 3 inputs"),
        ("actions", 3, "has 2 discrete actions, the agent 3"),
        ("method", rl.ActorCritic(3), "has 2 discrete actions, the agent actions of 3 numbers"),
        ("batch_size", 2, "batch_size=2"),
        ("environment", SHAPELESS, "wrap the environment in"),
    ),
    *each(
        walked,
        ("observation", np.array([0, np.inf]), "observation holds inf"),
        ("reward", np.nan, "reward holds nan"),
        ("step", 4, "step() returned 4 values, expected (observation, reward"),
        ("reset", 1, "reset() returned 1 values"),
    ),
    *each(
        within,
        ("observation", np.zeros(3), "observation has shape (3,), expected (2,)"),
        ("observation", np.array(["1", "2"]), "holds no numbers"),
        ("observation", np.array([1j, 0]), "they are complex128"),
        ("reward", None, "reward is a ndarray that holds no numbers"),
        ("reward", np.zeros(2), "reward has shape (2,), expected ()"),
    ),
    *each(
        checked,
        ("spoil", lambda s, t: (s, t._replace(reward=t.reward[None])), "reward has shape (1,)"),
        ("spoil", lambda s, t: (s, t._replace(observation=t.observation[:1])), "at every step"),
        ("spoil", lambda s, t: (s._replace(step=t.reward), t), "same structure, shapes and dtypes"),
    ),
]
TYPES = [
    *options_of(rl.LSTD, "LSTD(", prior=[True, None]),
    *each(
        squares,
        ("optimizer", rl.LSTD, "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
        ("optimizer", ft.kalman(), "must be foretrace.rl.ObGD, foretrace.rl.LSTD"),
        ("method", rl.Agent, "must be foretrace.rl.ActorCritic"),
    ),
    *each(
        step,
        ("first", 1, "first is int64, expected booleans"),
        ("transition", np.zeros(2), "is a ndarray, expected foretrace.rl.Transition"),
        ("state", (), "state is a tuple"),
        ("state", make_agent().init()._replace(opt_state=None), "an agent with another optimizer"),
    ),
    *each(
        evaluated,
        ("state", 3, "state is a int"),
        ("environment", 7, "evaluate(environment=7) must be"),
        ("key", 3, "evaluate"),
    ),
    (within, {"terminated": 0}, "terminated is int64, expected booleans"),
    *each(
        checked,
        ("spoil", lambda s, t: (s, t._replace(terminated=t.reward)), "is float32, expected bool"),
        ("spoil", lambda s, t: (s, t._replace(reward=t.terminated)), "is bool, expected floating"),
        ("spoil", lambda s, t: (s, tuple(t)), "Broken.step returned a tuple, expected"),
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
        (rl.Gymnax("Chess"), "unknown; choose one of"),
    ],
)
def test_environments_that_cannot_be_run_are_named(environment, words):
    pytest.importorskip("gymnax")
    pytest.importorskip("gymnasium")
    with pytest.raises(ValueError, match=re.escape(words)):
        learns(environment)


def test_a_method_of_discrete_actions_refuses_continuous_ones():
    pytest.importorskip("gymnasium")
    for method in ("q-learning", "sarsa"):
        with pytest.raises(ValueError, match=f"method={method} does not fit Gymnasium.id='Pend"):
            learns(rl.Gymnasium("Pendulum-v1"), method=method)
    with pytest.raises(ValueError, match="actions are .*nvec=.*, expected Discrete, or a Box"):
        interacted(Walk(action_space=MANY))


def test_the_ends_of_the_ranges_are_allowed():
    for value in (0.0, 1.0):
        AgentConfig(epsilon=value, discount=value, trace_decay=value, entropy=value)
    assert rl.RepeatPrevious(back=50).card_count == 52
